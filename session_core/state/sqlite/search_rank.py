"""The order of matches: how much of the query, how close together, how new, said by whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from session_core.state.matcher import Word
from session_core.state.snippet import Findable
from session_core.state.sqlite.search_rows import Match

USUAL_LENGTH = 600
_LIFE_S = 45 * 86400
_RECENT = 0.35
_LITERAL = 0.6
_NEAR = 0.5
_ROLES = {"tool": -0.25, "system": -0.2, "session_meta": -0.3}
_REACH = 60


def score(matches: Sequence[Match], words: Sequence[Word], literal: str, newest: float) -> None:
    """Give every match its score; `literal` is what was typed, folded."""
    for match in matches:
        worth = _frequency(match.folded, words)
        if literal and literal in match.folded:
            worth += _LITERAL
        match.score = worth + beside(match, words, newest)


def beside(match: Match, words: Sequence[Findable], newest: float) -> float:
    """Return what a match is worth beside its words: their nearness, its age, who said it."""
    near = _NEAR * _nearness(match.folded, words) if len(words) > 1 else 0.0
    length = 0.15 * min(1.0, len(match.folded) / (10 * USUAL_LENGTH))
    age = max(0.0, newest - match.at)
    recent = _RECENT * math.exp(-age / _LIFE_S)
    return near + recent - length + _ROLES.get(match.role, 0.0) - 0.02 * match.compacted


def ordered(matches: Iterable[Match]) -> list[Match]:
    """Return the best first; of equals the newest."""
    return sorted(matches, key=lambda match: (-match.score, -match.id))


def _frequency(folded: str, words: Sequence[Word]) -> float:
    length = 0.4 + 0.6 * len(folded) / USUAL_LENGTH
    counts = [word.count(folded) for word in words]
    parts = [0.5 + 0.5 * count / (count + length) for count in counts if count]
    return sum(parts) / len(words) if words else 0.0


def _nearness(folded: str, words: Sequence[Findable]) -> float:
    """Return which part of the words stands near another one, by their first places."""
    places = sorted(at[0] for word in words if (at := word.find(folded)))
    steps = (places[place + 1] - places[place] for place in range(len(places) - 1))
    return sum(step <= _REACH for step in steps) / (len(words) - 1)
