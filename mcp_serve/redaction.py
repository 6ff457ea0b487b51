"""Secrets are taken out of text on its way out: known shapes only, never by how random they look.

Text is looked at whole and cut afterwards. Where it was cut before, what only begins like a secret
at its end is taken out too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mcp_serve.quoting import HIDDEN
from mcp_serve.secret_shapes import BEGINNINGS, BETWEEN, EXACT, FOLDED, NAMED, START

MARK = "[redacted"

Redact = Callable[[str], str]

_LIKE_DISCORD = re.compile(
    r"\.(?:" + "|".join(rf"(?<=[MNO][\w-]{{{count}}}\.)" for count in range(23, 27)) + ")"
)
_LIKE_NAMED = re.compile(NAMED)
_SIGNS = (*"_-./:=", "key", "pass", *"JKVA")
"""What is in hints and not in every text, the best first."""


def _whole(beginning: str, goes_on: str, least: int) -> str:
    return f"{START}{beginning}{goes_on}{{{least},}}"


_NAMES = [name for name, *_ in BEGINNINGS] + [name for name, _ in BETWEEN]
_PATTERNS = [
    *(_whole(beginning, goes_on, least) for _, beginning, goes_on, least in BEGINNINGS),
    *(pattern for _, pattern in BETWEEN),
]
_ALL = frozenset(_NAMES)

_SHORT = 200
"""Texts as short as titles and the names of tools come again and again."""

_FEW = 3
"""So many kinds are looked for by themselves; of more there are too many choices to keep."""


_OPEN = re.compile(
    "(?:"
    + "|".join(
        f"{beginning}{goes_on}*"
        for _, beginning, goes_on, _ in BEGINNINGS
        if "(?=" not in beginning
    )
    + r"|\bsk-[\w\-]*|\bAKC[A-Za-z0-9]{5,}|\b(?:SK|AC)[0-9a-f]{6,}|\bkey-[0-9a-f]{6,}"
    + r"|\b[0-9a-f]{16,32}(?:-(?:u(?:s\d?)?)?)?"
    + r"|\b[MNO](?=[\w\-]*\d)[\w\-]{11,26}(?:\.[\w\-]*){0,2}"
    + r"|-----? ?BEGIN [^\n]*(?:[\s\S]*)|\beyJ[\w\-.]*|\b\d{8,10}:[\w\-]*"
    + r"|(?<=://)[^\s/:@]+:[^\s/@]*"
    + r"|(?i:(?:key|secret|passw\w*|token|authorization)[\"']?\s*[:=]\s*"
    + r"(?:bearer|basic)?\s*[\"']?)\S*"
    + r")(?P<end>(?:…|\.\.\.)?)\Z"
)


class _Hints(NamedTuple):
    """Hints that have a sign in common, each with its kind."""

    sign: str
    any_of: re.Pattern[str]
    hints: list[tuple[str, str]]


def _by_sign(hints: Mapping[str, str]) -> list[_Hints]:
    """Return hints by a sign that they share: many texts have few of the signs.

    A sign is looked for as memory is, and only around it for a hint.
    """
    shared: dict[str, list[tuple[str, str]]] = {}
    for kind in hints:
        for hint in hints[kind].split():
            sign = next((sign for sign in _SIGNS if sign in hint), hint)
            shared.setdefault(sign, []).append((hint, kind))
    return [_Hints(sign, _around(sign, found), found) for sign, found in shared.items()]


def _around(sign: str, hints: Iterable[tuple[str, str]]) -> re.Pattern[str]:
    """Return what finds any of some hints that have a sign."""
    split = (hint.partition(sign) for hint, _ in hints)
    around = (f"(?<={re.escape(before + sign)}){re.escape(rest)}" for before, _, rest in split)
    return re.compile(f"{re.escape(sign)}(?:{'|'.join(around)})")


_EXACT_BY_SIGN, _FOLDED_BY_SIGN = _by_sign(EXACT), _by_sign(FOLDED)


def _hinted(text: str) -> frozenset[str]:
    """Return the kinds of secrets that may be in a text; in most there are none."""
    folded = text.casefold()
    found = {*_hints_in(text, _EXACT_BY_SIGN), *_hints_in(folded, _FOLDED_BY_SIGN)}
    if _LIKE_DISCORD.search(text):
        found.add("discord token")
    if "secret" in found and not _LIKE_NAMED.search(folded):
        found.discard("secret")
    return frozenset(found)


def _hints_in(text: str, by_sign: Iterable[_Hints]) -> list[str]:
    return [
        kind
        for sign, any_of, hints in by_sign
        if sign in text and any_of.search(text)
        for hint, kind in hints
        if hint in text
    ]


@lru_cache(maxsize=256)
def _patterns(kinds: frozenset[str]) -> re.Pattern[str]:
    """Return what finds secrets of these kinds, the first in the table where several would."""
    begun, others = list[str](), list[str]()
    for number, pattern in enumerate(_PATTERNS):
        if _NAMES[number] in kinds:
            rest = pattern.removeprefix(START)
            (others if rest == pattern else begun).append(f"(?P<n{number}>{rest})")
    # Where a word begins is looked for once for all.
    return re.compile("|".join([f"{START}(?:{'|'.join(begun)})"] * bool(begun) + others))


def _looked_for(text: str) -> re.Pattern[str] | None:
    kinds = _hinted(text)
    return _patterns(kinds if len(kinds) <= _FEW else _ALL) if kinds else None


def redact(text: str) -> str:
    """Return a text with a mark in the place of each secret in it."""
    return (_redacted_again if len(text) <= _SHORT else _redacted)(text)


def _redacted(text: str) -> str:
    shown, at = "", 0
    for start, stop, kind in _secrets(text):
        shown += f"{text[at:start]}{MARK}: {kind}]"
        at = stop
    return shown + text[at:] if at else text


_redacted_again = lru_cache(maxsize=1024)(_redacted)


def redact_cut(text: str) -> str:
    """Return a text that was cut, also without what only begins like a secret at its end."""
    shown = redact(text)
    if not shown.endswith(("…", "...")):
        return shown
    return _OPEN.sub(lambda found: f"{MARK}]{found['end']}", shown)


def keep(text: str) -> str:
    """Return a text as it is, where nothing is to be redacted."""
    return text


def spans(text: str) -> list[tuple[int, int]]:
    """Return where secrets are in a text."""
    return [(start, stop) for start, stop, _ in _secrets(text)]


def _secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield from where to where secrets are, of which kind; hidden signs in one are none."""
    seen = text if text.isascii() else HIDDEN.sub("", text)
    looked_for = _looked_for(seen)
    if looked_for is None:
        return
    places: Sequence[int] = range(len(text))
    if len(seen) < len(text):
        places = [at for at, sign in enumerate(text) if not HIDDEN.match(sign)]
    for found in looked_for.finditer(seen):
        if found.end() > found.start():
            kind = _NAMES[int((found.lastgroup or "n0")[1:])]
            yield places[found.start()], places[found.end() - 1] + 1, kind
