"""The values that a statement claims and denies, as in `port 8443, not 8080`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from session_core.compression.extractive import topics, values
from session_core.compression.extractive.values import Value

_REACH = 28
_MAX_DENIED_CHARS = 40

_STRONG_BEFORE = (
    r"instead of|rather than|no longer|not any ?more|in place of|nicht mehr|statt|anstelle(?: von)?"
    r"|nicht|doch nicht|au lieu de|plutôt que|n'est plus|ne sont plus|plus|pas|en lugar de"
    r"|en vez de|used to be|früher|vorher|bisher|avant|auparavant|antes(?: era)?|раньше|et non"
    r"|sondern nicht|ya no(?: son| es| está)?|no|больше не|уже не|вместо|а не|не|not|no"  # noqa: RUF001 -- Russian
)
_ARTICLE = (
    r"(?:on|the|at|in|am|um|den|dem|der|die|das|le|la|les|l'|el|los|las|de|du|d'|à|в|с|по|an?|is)"  # noqa: RUF001 -- Russian
)
_DENIED_BEFORE = re.compile(
    rf"(?<!\w)(?:{_STRONG_BEFORE})[\s,:]+(?:{_ARTICLE}\s?){{0,2}}(?:\w{{2,8}} )?$"
    r"|(?:不是|而不是|不再用?|并非)$"
)
_DENIED_AFTER = re.compile(
    r"[^\w.;]{0,3}(?:(?:one |entry )?(?:was|were)\b|(?:war|waren|était|fue|eran?|был[аио]?)\b"
    r"|too (?:much|many|long|short|tight)|is (?:gone|deleted|dead|retired|outdated)"
    r"|ではなく|じゃなく|の代わり|でした|だった)"
)
_FROM = re.compile(r"(?:\bfrom|\bvon|\bde|\bdu|\bdes|\bс|\bсо|从|由)\s?$")  # noqa: RUF001 -- Russian
_TO = re.compile(r"\W{0,3}(?:to|auf|à|au|a|до|на)\s|\s?(?:->|→|=>)|から|[^,、。\d]{0,6}到")
_ARROW = re.compile(r"\s?(?:->|→|=>)")
_CHANGE_VERB = re.compile(
    r"\b(?:rais|increas|lower|reduc|cut\b|mov|chang|extend|grew\b|grow|went\b|goes\b|erhöh|senk"
    r"|gesenkt|stieg|steig|verleg|verschob|verläng|gekürzt|pass|mont|augment|port|baiss|prolong"
    r"|déplac|sub[eió]|baj[aó]|pas[aó]|aument|redu[cj]|cambi|amplí|подн|увелич|сниз|сокра|перен"
    r"|продл|измен|сдвин)"
    r"|auf|変|増|減|延|上げ|下げ|改|延长|提高|增加|减|调|缩短"
)
_CONTRAST = re.compile(r"[,;]?\s(?:but|aber|mais|pero|но|however|jedoch)\s|でしたが|但是?")
_DENIED_WORDS = re.compile(
    r"(?<!\w)(?P<mark>instead of|rather than|no longer|in place of|nicht mehr|statt|anstelle von"
    r"|doch nicht|au lieu de|plutôt que|n'est plus|en lugar de|en vez de|ya no|больше не|вместо"
    r"|not|nicht|no|pas|plus de|non,|нет,)\s(?P<text>[^,.;:!?\n]{2,40})"
    r"|(?:不再用?|而不是|不是|不用)(?P<wide>[^,、。;:\uff0c]{1,12})"
    r"|(?P<before>[^,、。]{1,12})(?:ではなく|じゃなく|の代わりに)"
)
_CLEAR_MARKS = frozenset(("not", "nicht", "no", "pas", "non,", "нет,"))
_REJECTED = re.compile(
    r"^(?:(?:hm+|oh|ah|ach|well|eh|also)[,.]? )?(?:no|nein|non|нет|nope)\b[,.]?"
    r"|^(?:いや|いいえ|不[,,]|不行)"
)
"""The beginning of a reply that rejects the text before it."""


_FIXED_KINDS = frozenset(("date", "clock", "weekday", "address", "host", "path", "code", "person"))
"""Kinds of values (their first word) that a bare number cannot replace."""


_DENIAL = re.compile(
    rf"{_CONTRAST.pattern}|(?:->|→|=>)|(?<!\w)(?:from|von|de|du|с|со|used to be|früher|vorher"  # noqa: RUF001 -- Russian
    r"|bisher|avant|auparavant|antes|раньше|а не|et non)(?!\w)|从|から"  # noqa: RUF001 -- Russian
)
"""Words that may deny a value although they show no correction."""


class Claims(NamedTuple):
    """The values that a statement claims, the values that it denies, and the denied words."""

    claimed: list[Value]
    denied: list[Value]
    denied_words: frozenset[str]
    rejected_words: frozenset[str]
    """Words after a bare `no`, which deny only the text just before."""
    value_words: frozenset[str]
    """The words of its values, which do not belong to its subject."""
    amounts: frozenset[object]
    is_strong: bool
    """Whether its words clearly show a correction."""


def read_claims(folded: str, is_strong: bool = False) -> Claims:
    """Return the claims of a text in lower case."""
    claimed: list[Value] = []
    denied: list[Value] = []
    for value in values.read_values(folded):
        (denied if _is_denied(folded, value) else claimed).append(value)
    contrast = _CONTRAST.search(folded)
    if contrast and not denied:
        after = [value for value in claimed if value.start >= contrast.end()]
        denied = [
            value
            for value in claimed
            if value.end <= contrast.start()
            and any(can_replace_value(value, new) and value.amount != new.amount for new in after)
        ]
        claimed = [value for value in claimed if value not in denied]
    denied += [old for old, new in pairwise(claimed) if _is_change(folded, old, new)]
    claimed = [value for value in claimed if value not in denied]
    clear, weak = _read_denied_words(folded)
    spans = " ".join(folded[value.start : value.end] for value in (*claimed, *denied))
    return Claims(
        claimed,
        denied,
        clear,
        weak,
        topics.extract_words(spans),
        frozenset(value.amount for value in claimed),
        is_strong,
    )


def _is_change(folded: str, before: Value, after: Value) -> bool:
    """Return whether a text says that one value became another, as in `from 120 to 150 euros`."""
    between = folded[before.end : after.start]
    if (
        before.amount == after.amount
        or not can_replace_value(before, after)
        or not _TO.match(between)
    ):
        return False
    if _ARROW.match(between):
        return True
    begins = _FROM.search(folded[: before.start]) or between.startswith("から")
    return bool(begins and _CHANGE_VERB.search(folded))


def can_replace_value(value: Value, other: Value) -> bool:
    """Return whether one value can replace the other."""
    if value.kind == other.kind:
        return True
    kinds = {value.kind.partition(" ")[0], other.kind.partition(" ")[0]}
    return "number" in kinds and kinds.isdisjoint(_FIXED_KINDS)


def is_denied_amount(denied: Value, value: Value, claimed: list[Value]) -> bool:
    """Return whether a denied bare number is the amount of an earlier value.

    The number counts in the unit of the earlier value or of a newly claimed value.
    """
    if value.kind == "number":
        return denied.amount == value.amount
    return any(
        new.kind in (value.kind, "number")
        and value.amount in (denied.amount, denied.amount * new.unit)
        for new in claimed
        if isinstance(denied.amount, float)
    )


def has_denial(folded: str) -> bool:
    """Return whether a text may deny a value without a word that shows a correction."""
    return _DENIAL.search(folded) is not None


def is_rejection(folded: str) -> bool:
    """Return whether a text begins with a rejection of the text before it."""
    return _REJECTED.search(folded) is not None


def _is_denied(folded: str, value: Value) -> bool:
    before = folded[max(value.start - _REACH, 0) : value.start]
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.match(folded, value.end))


def _read_denied_words(folded: str) -> tuple[frozenset[str], frozenset[str]]:
    clear: set[str] = set()
    weak: set[str] = set()
    for match in _DENIED_WORDS.finditer(folded):
        text = match["text"] or match["wide"] or match["before"]
        words = topics.extract_words(text)
        (weak if match["mark"] in _CLEAR_MARKS else clear).update(words)
    return frozenset(clear), frozenset(weak)
