"""Quantities, dates, times and names of a text, in a form that all languages share.

`twenty seconds`, `20 s` and `20秒` are the same value. Two values can replace each other if they
are of the same kind.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from session_core.compression.extractive.patterns import VALUE_PREFIX
from session_core.state.search_text import SPACELESS_CHARS

_STEM_CHARS = 4
_PREFIX_CHARS = 16
_NOON = 12
_MIN_BARE_WORD = 13
"""The smallest number that counts as a value if it is written as a word."""


class Value(NamedTuple):
    """One value: its kind, its amount, and its place in the text."""

    kind: str
    amount: object
    start: int
    end: int
    is_free: bool = True
    """Whether it is a value and not part of a name such as `room 12`"""
    unit: float = 1.0
    """The factor of its unit to the base unit of its kind."""
    clause: int = 0
    """The number of its clause in the sentence."""


def _read_table(text: str) -> dict[str, int]:
    """Return the words of each line, mapped to the number of the line from 1."""
    lines = text.strip().splitlines()
    return {word: number for number, line in enumerate(lines, 1) for word in line.split()}


_MONTHS = _read_table("""
january jan januar jänner janvier janv enero января январь
february feb februar février févr febrero февраля февраль
march mar märz mars marzo марта март
april apr avril avr abril апреля апрель
may mai mayo мая май
june jun juni juin junio июня июнь
july jul juli juillet julio июля июль
august aug août agosto августа август
september sept sep septembre septiembre сентября сентябрь
october oct oktober okt octobre octubre октября октябрь
november nov novembre noviembre ноября ноябрь
december dec dezember dez décembre déc diciembre декабря декабрь
""")
_WEEKDAYS = {
    word.removesuffix("+") + end: number
    for word, number in _read_table("""
monday+ montag+ lundi+ lunes понедельник понедельникам 周一 星期一 月曜
tuesday+ dienstag+ mardi+ martes вторник вторникам 周二 星期二 火曜
wednesday+ mittwoch+ mercredi+ miércoles среда среду средам 周三 星期三 水曜
thursday+ donnerstag+ jeudi+ jueves четверг четвергам 周四 星期四 木曜
friday+ freitag+ vendredi+ viernes пятница пятницу пятницам 周五 星期五 金曜
saturday+ samstag+ samedi+ sábado+ суббота субботу субботам 周六 星期六 土曜
sunday+ sonntag+ dimanche+ domingo+ воскресенье воскресеньям 周日 星期日 日曜
""").items()
    for end in (("", "s") if word.endswith("+") else ("",))
}
"""The weekdays by name. In the table a plus sign marks an optional `s`"""
_NUMBERS = _read_table("""
one eins einem einer une uno una один одна одну
two zwei deux dos два две
three drei trois tres три
four vier quatre cuatro четыре
five fünf cinq cinco пять
six sechs seis шесть
seven sieben sept siete семь
eight acht huit ocho восемь
nine neun neuf nueve девять
ten zehn dix diez десять
eleven elf onze once одиннадцать
twelve zwölf douze doce двенадцать
""")
_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_NUMBERS |= {word: number for number, word in enumerate(_TEENS.split(), 13)}
_TENS = """
twenty zwanzig vingt veinte двадцать
thirty dreißig trente treinta тридцать
forty vierzig quarante cuarenta сорок
fifty fünfzig cinquante cincuenta пятьдесят
sixty sechzig soixante sesenta шестьдесят
seventy siebzig setenta семьдесят
eighty achtzig ochenta восемьдесят
ninety neunzig noventa девяносто
hundred hundert cent cien сто
"""
_NUMBERS |= {word: 10 * (line + 1) for word, line in _read_table(_TENS).items()}
_KANJI = {sign: number for number, sign in enumerate("〇一二三四五六七八九十")} | {"两": 2}

_UNITS: Mapping[str, tuple[str, float]] = {
    word: (kind, factor)
    for kind, factor, words in (
        ("time", 0.001, "ms"),
        ("time", 1, "s sec secs seco seku sécu сек секу 秒"),
        ("time", 60, "min mins minu мину 分钟 分間"),
        ("time", 3600, "h hour hours stun heur hora часа часо 小时 時間"),
        ("time", 86400, "d day days tag tage tagen jour día días дней день дня 天 日 日間"),
        ("time", 604800, "week woch sema неде 周 週間"),
        ("time", 2592000, "mont mona mois mese меся 个月 か月 ヶ月"),
        ("time", 31536000, "year jahr ans año años лет года 年"),
        ("size", 1, "kb kib ko кб"),
        ("size", 1e3, "mb mib mo мб"),
        ("size", 1e6, "gb gib go гб"),  # noqa: RUF001 -- Russian
        ("size", 1e9, "tb tib to тб"),
        ("share", 1, "% perc proz pour проц"),
        ("euro", 1, "€ euro eur евро"),
        ("dollar", 1, "$ doll dóla usd долл"),
        ("pound", 1, "£ poun gbp"),
        ("rouble", 1, "₽ руб рубл"),  # noqa: RUF001 -- Russian
        ("yen", 1, "¥ yen 円 元"),
        ("people", 1, "peop pers gäst gues invi чело 人 名"),
    )
    for word in words.split()
}
_WIDE_UNITS = sorted((w for w in _UNITS if re.match(f"[{SPACELESS_CHARS}]", w)), key=len)[::-1]

_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY = "|".join(sorted(_WEEKDAYS, key=len, reverse=True))
_WORDS = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?<![\d.])(?P<d1>\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?\s(?:of\s|de\s)?(?P<m1>{_MONTH})(?!\w)"
    rf"|(?<!\w)(?P<m2>{_MONTH})\s(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:])"
    r"|(?<!\d)20\d\d-(?P<m3>\d\d)-(?P<d3>\d\d)(?!\d)"
    r"|(?<![\d.])(?P<d4>\d{1,2})\.(?P<m4>\d{1,2})\.(?:20\d\d)?(?!\d)"
    r"|(?P<m5>\d{1,2})月(?P<d5>\d{1,2})[日号]"
)
_CLOCK = re.compile(
    r"(?<![\d:.])(?P<h1>\d{1,2}):(?P<n1>\d\d)(?![\d:])"
    r"|(?<![\d:.,])(?P<h2>\d{1,2})(?:[.:](?P<n2>\d\d))?\s?(?:uhr\b|o'clock)"
    r"|(?<![\d:.,])(?P<h3>\d{1,2}) h(?: (?P<n3>\d\d))?(?!\w)"
    r"|(?<![\d:.,])(?P<h4>\d{1,2})\s?(?P<half>[ap])\.?m\b"
    rf"|(?P<h5>\d{{1,2}}|[{''.join(_KANJI)}]{{1,2}})[時点](?!間)(?:(?P<n5>\d{{1,2}})分)?"
)
_WEEKDAY = re.compile(rf"(?<![^\W{SPACELESS_CHARS}])(?:{_DAY})(?![^\W{SPACELESS_CHARS}])")
_NAME = re.compile(
    r"(?<![\w.@/-])(?:"
    r"(?P<ip>\d{1,3}(?:\.\d{1,3}){3})(?:[:/]\d{1,5})?"
    r"|(?:\w{1,12}://)?(?P<host>[a-z0-9-]{1,60}(?:\.[a-z0-9-]{1,60}){0,4}\.[a-z]{2,12})"
    r"(?:[:/][\w./-]{0,80})?"
    r"|(?P<path>(?:~?/(?:[\w.@-]{1,60}/)*|(?:[\w.@-]{1,60}/){2,12})[\w.@-]{1,60}/?)"
    r"|(?P<code>(?=[a-z0-9]*\d[a-z])(?=[a-z0-9]*[a-z]\d)[a-z0-9]{6,40})"
    r")(?![\w])"
)
_PERSON = re.compile(
    r"(?<!\w)(?:herrn?|frau|mr\.?|mrs\.?|ms\.?|mme|sr\.?|sra\.?|doña|don|г-н|г-жа)\s(?P<name>[^\W\d_]{2,30})"  # noqa: RUF001 -- Russian
    r"|(?P<wide>[\u4e00-\u9fff\u30a0-\u30ff]{2,4}?)(?:さん|氏|様|先生|女士)"
    r"|由(?P<agent>[\u4e00-\u9fff]{2,3})(?=负责|安排|管理|接手|处理|主持|保管)"
)
_DIGITS_WITH_GROUPS = r"\d{1,3}(?:[., '\u00a0\u202f\u2019]\d{3})+(?!\d)|\d+(?:[.,]\d+)?"
_WIDE_UNIT = rf"{'|'.join(_WIDE_UNITS)}|[{SPACELESS_CHARS}]"
_NUMBER = re.compile(
    rf"(?P<sign>[$€£¥₽])?\s?(?<![\w.,:/_-])(?:(?P<digits>{_DIGITS_WITH_GROUPS})"
    rf"|(?P<word>{_WORDS})(?![^\W{SPACELESS_CHARS}]))"
    rf"(?:(?P<wide>{_WIDE_UNIT})|[ \u00a0\u202f-]?(?P<unit>[%$€£₽]|[^\W\d_{SPACELESS_CHARS}]+))?"
    rf"|(?<=[{SPACELESS_CHARS}])(?P<after>\d+(?:[.,]\d+)?)(?P<wide2>[%$€£]|{_WIDE_UNIT})?"
)
_NO_UNIT_LIST = """
    a an and are as at but by for from has in is it no not of on or so than that the then they to
    too was we were with am auf aus bei bis das der die ein für im in ist mit nach oder pro statt
    um und von vor zu à au aux car dans de des du en est et la le les ou par pas pour que qui si
    sur un al como con del el es o para por que se su y а в для и из или как на не но о от по с у
"""  # noqa: RUF001 -- Russian
_NO_UNITS = frozenset(_NO_UNIT_LIST.split())
_CLAUSE_END = re.compile(r"[,;:](?=\s)|[、,;]|\s[–—-]\s")  # noqa: RUF001 -- Russian
_DIGITS = re.compile(r"\d+")
_GROUPED = re.compile(r"\d{1,3}(?:[., '\u00a0\u202f\u2019]\d{3})+")


def read_values(folded: str, min_word: int = _MIN_BARE_WORD) -> list[Value]:
    """Return the values of a text in lower case, by position.

    Numbers without a unit that are written as words are values from `min_word`.
    """
    all_values: list[Value] = []
    free = folded
    for read in (
        _read_names,
        _read_persons,
        _read_dates,
        _read_clock_times,
        _read_weekdays,
        partial(_read_numbers, min_word=min_word),
    ):
        values = list(read(free))
        for value in values:
            blank = " " * (value.end - value.start)
            free = f"{free[: value.start]}{blank}{free[value.end :]}"
        all_values += values
    ends = [match.start() for match in _CLAUSE_END.finditer(folded)]
    return sorted(
        (value._replace(clause=bisect_left(ends, value.start)) for value in all_values),
        key=lambda value: value.start,
    )


def _read_dates(text: str) -> Iterator[Value]:
    for match in _DATE.finditer(text):
        groups = {key[0]: value for key, value in match.groupdict().items() if value}
        month = _MONTHS.get(groups["m"]) or int(groups["m"])
        yield Value("date", (month, int(groups["d"])), *match.span())


def _read_clock_times(text: str) -> Iterator[Value]:
    for match in _CLOCK.finditer(text):
        groups = {
            key[:1]: value for key, value in match.groupdict().items() if value and key != "half"
        }
        hour = groups["h"]
        number = int(hour) if hour.isdigit() else _parse_kanji_number(hour)
        number += _NOON if match["half"] == "p" and number < _NOON else 0
        yield Value("clock", (number, int(groups.get("n", 0))), *match.span())


def _parse_kanji_number(text: str) -> int:
    tens, mark, ones = text.rpartition("十")
    if not mark:
        return _KANJI.get(text[-1:], 0)
    return 10 * (_KANJI.get(tens, 0) or 1) + _KANJI.get(ones, 0)


def _read_weekdays(text: str) -> Iterator[Value]:
    for match in _WEEKDAY.finditer(text):
        yield Value("weekday", _WEEKDAYS[match.group()], *match.span())


def _read_names(text: str) -> Iterator[Value]:
    for match in _NAME.finditer(text):
        name = match.group().rstrip("./:")
        if match["ip"]:
            kind = "address"
        elif match["host"]:
            kind = f"host {_DIGITS.sub('', match['host'])}"
        elif match["path"]:
            kind = f"path {_DIGITS.sub('', name.rpartition('/')[0])}"
        else:
            kind = f"code {len(name)}"
        yield Value(kind, name, *match.span())


def _read_persons(text: str) -> Iterator[Value]:
    for match in _PERSON.finditer(text):
        name = match["name"] or match["wide"] or match["agent"]
        yield Value("person", name, *match.span(match.lastgroup or 0))


def _read_numbers(text: str, min_word: int) -> Iterator[Value]:
    for match in _NUMBER.finditer(text):
        digits = match["digits"] or match["after"]
        amount = _parse_number(digits) if digits else float(_NUMBERS[match["word"]])
        sign, unit = match["sign"], match["unit"] or match["wide"] or match["wide2"] or ""
        if unit in _NO_UNITS:
            unit = ""
        known = _UNITS.get(sign or unit) or _UNITS.get(unit[:_STEM_CHARS])
        group = "digits" if match["digits"] else "word" if match["word"] else "after"
        end = match.end() if unit else match.end(group)
        begin = match.end() - len(match.group().lstrip())
        if known:
            yield Value(known[0], amount * known[1], begin, end, unit=known[1])
        elif unit:
            yield Value(f"unit {unit[:_STEM_CHARS]}", amount, begin, end)
        elif digits or amount >= min_word:
            prefix = text[max(begin - _PREFIX_CHARS, 0) : begin]
            yield Value("number", amount, begin, end, bool(VALUE_PREFIX.search(prefix)))


def _parse_number(text: str) -> float:
    if _GROUPED.fullmatch(text):
        return float("".join(filter(str.isdigit, text)))
    return float(text.replace(",", "."))
