"""Splitting text into words and sentences, in scripts with and without spaces.

In a script without spaces two characters count as a word. A sentence never ends inside a code span,
a number, a name or an address, nor after an abbreviation: its end is followed by a space, or is a
full stop of a script without spaces.
"""

from __future__ import annotations

import re

from session_core.state.search_text import SPACELESS_CHARS

_VARIABLE = re.compile(r"[^\W\d]{0,30}\d\w*")
_VARIABLE_WIDE = re.compile(rf"[^\W\d{SPACELESS_CHARS}]{{0,30}}\d[^\W{SPACELESS_CHARS}]*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LETTERS = re.compile(r"[^\W\d_]+")
_MIXED = re.compile(r"\w{2,}")
_DIGITS = re.compile(r"\d+")
_TOKEN = re.compile(r"[^\W\d_]+|[^\w\s]")
_WIDE_RUN = re.compile(f"[{SPACELESS_CHARS}]+")
_WIDE_PAIR = re.compile(f"(?=([{SPACELESS_CHARS}]{{2}}))")


def make_template(text: str) -> str:
    """Return a text with its variable parts replaced, so that similar lines are equal."""
    return (_VARIABLE if text.isascii() else _VARIABLE_WIDE).sub("0", text)


def make_form(text: str) -> str:
    """Return a text with each word, number and mixed token replaced by its class."""
    if not text.isascii():
        text = _WIDE_RUN.sub(_replace_run_by_marks, text)
    return _MIXED.sub("x", _DIGITS.sub("0", _LETTERS.sub("a", text)))


def extract_tokens(text: str) -> set[str]:
    """Return the words and signs of a text, without numbers."""
    if text.isascii():
        return set(_TOKEN.findall(text))
    return {*_WIDE_PAIR.findall(text), *_TOKEN.findall(_WIDE_RUN.sub(" ", text))}


def count_words(text: str) -> int:
    """Return the number of words in a text."""
    if text.isascii():
        return len(_WORD.findall(text))
    wide = sum(map(len, _WIDE_RUN.findall(text)))
    return wide // 2 + len(_WORD.findall(_WIDE_RUN.sub(" ", text)))


def _replace_run_by_marks(run: re.Match[str]) -> str:
    return " a" * (len(run.group()) // 2 + 1) + " "


_SENTENCE_END = re.compile(
    r"[.!?…]['\"”\u2019»)\]*]{0,3}\s+(?![\s&,;:=|])|[。\uff01\uff1f]+[」』”\uff09]?"
)
_UNIT = re.compile(r"\d\s?[a-zа-я]$")  # noqa: RUF001 -- Russian
_MAX_LIST_NUMBER_CHARS = 6
_MAX_WORD_CHARS = 12
_MAX_ORDINAL_CHARS = 2

_OPEN_ABBREVIATION_LIST = """
e.g i.e approx ca cf vs no nr vol fig sec st dr mr mrs ms prof jr resp incl excl dept est gen gov
z.b d.h u.a bzw ggf vgl evtl sog zzgl inkl exkl bspw tel str abb hr fr ing hl geb mind max min
p.ej ej ud uds p.ex ex env art mme mlle pp ee sr sra srta dra lic avda núm aprox ing
ул кв стр тел им рис см напр проф обл
"""
_OPEN_ABBREVIATIONS = frozenset(_OPEN_ABBREVIATION_LIST.split())
"""Abbreviations that never end a sentence."""
_CLOSING_ABBREVIATION_LIST = """
etc usw inc ltd co al std p.m a.m u.s u.k uu d.c suiv
jan feb mar apr jun jul aug sep sept oct okt nov dec dez janv févr avr juil déc ene abr ago dic
г гг руб коп тыс млн млрд др пр час мин сек мес янв фев апр авг сент окт нояб дек
"""  # noqa: RUF001 -- Russian
_CLOSING_ABBREVIATIONS = frozenset(_CLOSING_ABBREVIATION_LIST.split())
"""Abbreviations that may end a sentence, unless a digit or a lower-case word follows."""
_MONTHS = """
january february march april may june july august september october november december
januar jänner februar märz mai juni juli oktober dezember
janvier février mars avril juin juillet août septembre octobre novembre décembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
"""
_ORDINAL_FOLLOWERS = frozenset(_MONTHS.split())
_ORDINAL_LEADER_LIST = """
am im der die das den dem des zum zur vom bis beim ab seit ins und oder jede jeder jeden
"""
_ORDINAL_LEADERS = frozenset(_ORDINAL_LEADER_LIST.split())
"""Words before a German ordinal number: `im 19. Jahrhundert`."""
_QUOTE_FOLLOWERS = "でとはがをにのもっへや"
"""Particles that continue a Japanese sentence after a quotation."""


def find_sentence_spans(line: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, without surrounding spaces."""
    spans: list[tuple[int, int]] = []
    begin = ticked = 0
    in_code = False
    for match in _SENTENCE_END.finditer(line):
        in_code ^= line.count("`", ticked, match.start()) % 2 == 1
        ticked = match.start()
        if in_code or not _is_sentence_end(line, match):
            continue
        _add_span(spans, line, begin, match.end())
        begin = match.end()
    _add_span(spans, line, begin, len(line))
    return spans


def _is_sentence_end(line: str, match: re.Match[str]) -> bool:
    end, following = match.start(), line[match.end() : match.end() + _MAX_WORD_CHARS]
    if line[end] == ".":
        return not _is_abbreviation(line, end, following)
    return match.group()[-1] not in "」』" or following[:1] not in _QUOTE_FOLLOWERS


def _is_abbreviation(line: str, end: int, following: str) -> bool:
    words = line[max(0, end - 3 * _MAX_WORD_CHARS) : end].split()
    last = words[-1].lstrip("([\"'«„").lower() if words else ""
    if last.isdigit() and len(last) <= _MAX_ORDINAL_CHARS:
        before = words[-2].lower() if len(words) > 1 else ""
        return _is_list_number(line, end) or _is_ordinal(before, following)
    continued = following[:1].islower() or following[:1].isdigit()
    if last in _CLOSING_ABBREVIATIONS or last.replace(".", "").isdigit():
        return continued
    # "A." begins an item of a list, or shortens a name.
    initial = len(last) == 1 and last.isalpha()
    if initial and _UNIT.search(line, max(0, end - 8), end):
        return continued
    return initial or last in _OPEN_ABBREVIATIONS or _is_list_number(line, end)


def _is_ordinal(before: str, following: str) -> bool:
    """Return whether a number before a full stop is an ordinal number, as in German dates."""
    word = _WORD.match(following)
    if word is None:
        return False
    return (
        word.group().lower() in _ORDINAL_FOLLOWERS
        or (before in _ORDINAL_LEADERS)
        or word.group()[0].islower()
    )


def _is_list_number(line: str, end: int) -> bool:
    return end < _MAX_LIST_NUMBER_CHARS and line[:end].strip().isdigit()


_CONNECTIVE_LIST = """
and also but then now oh ugh hm hmm ok okay right fine yes anyway besides
by_the_way one_more_thing one_thing
und auch aber also dann nun ach gut ja übrigens außerdem noch_etwas
et aussi mais donc alors bon oui ensuite au_fait par_ailleurs
y también pero entonces bueno además por_cierto
и а но также ещё ну да кстати
"""  # noqa: RUF001 -- Russian
_CONNECTIVES = re.compile(
    rf"(?:(?:{'|'.join(_CONNECTIVE_LIST.split()).replace('_', ' ')})"
    r"[,:]?\s+|(?:あと|それから|また|では|じゃあ|なお|另外|还有|那么|对了|好)[、，,])+",  # noqa: RUF001
    re.IGNORECASE,
)
_FULL_STOPS = ".。"


def strip_ornament(sentence: str) -> str:
    """Return a sentence without leading connective words and without its full stop."""
    lead = _CONNECTIVES.match(sentence)
    bare = sentence[lead.end() :] if lead else sentence
    bare = bare if bare.endswith("..") else bare.rstrip(_FULL_STOPS)
    return bare or sentence


def _add_span(spans: list[tuple[int, int]], line: str, begin: int, end: int) -> None:
    text = line[begin:end]
    stripped = text.strip()
    if stripped:
        start = begin + len(text) - len(text.lstrip())
        spans.append((start, start + len(stripped)))
