"""Candidates of a search: messages of the index, their copies in forks, and their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from session_core.state import query as queries
from session_core.state import relevance, search_text
from session_core.state.query import Node
from session_core.state.search_text import TextFinder
from session_core.transcripts.format import Message
from session_core.transcripts.index import Index
from session_core.transcripts.listing import Condition, shorten_prompt
from session_core.transcripts.parts import ROLE_MASK, ROLES
from session_core.transcripts.texts import Place
from session_core.transcripts.windows import WindowReader
from session_core.transcripts.words import build_expression, build_text
from session_core.types import SearchHit, SearchOrder

Step = Literal["all", "conversation", "prefix", "any", "substring", "text"]

WINDOW = 120
"""The number of candidates whose text is read and ranked together."""

MOST_LOADED = 1000
"""The number of messages with the most query words whose text is read."""

_MAX_MARKS = 500
"""The number of values in one statement."""

_REPLY_REACH = 4
"""The number of assistant messages that are searched for a reply with text."""

_SUMMARY_WEIGHT = -0.2

COLUMNS = (
    "m.id, m.session, m.number, m.place, m.length, m.at, m.flags, m.key, s.source_id,"
    " s.session_id, s.native_id, s.store, s.title, s.preview, s.compacted_to, s.active_at,"
    " s.started_at"
)
"""The columns of a candidate."""


class Candidate(NamedTuple):
    """A message that the index returned for a search."""

    id: int
    session: int
    number: int
    place: int
    length: int
    at: int | None
    flags: int
    key: int | None
    source_id: int
    session_id: str
    native_id: str
    store: str
    title: str | None
    preview: str | None
    compacted_to: int
    active_at: int
    started_at: int | None

    @property
    def time(self) -> float:
        """The time of the message, or the last activity of its session if it has no time."""
        return (self.active_at if self.at is None else self.at) / 1000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A parsed search."""

    query: queries.Query
    conditions: Sequence[Condition]
    per_session: bool
    now: float
    order: SearchOrder = "relevance"
    newest_ms: int | None = None
    """The time of the newest message to include, which is the time of the first page."""
    substring: str | None = None
    """The text to search for literally, or None."""

    @property
    def literal(self) -> str:
        """The folded text of the query, or of the substring to search for."""
        text = self.query.text if self.substring is None else self.substring
        return search_text.fold_text(text)

    def find_needle(self) -> bytes:
        """Return ASCII bytes that matches most likely contain, or empty bytes."""
        if self.substring is not None:
            words = [word for word in self.literal.split() if word.isalnum()]
        else:
            leaves = queries.iter_leaves(self.query.node)
            leaf_words = [word for leaf in leaves for word in leaf.words]
            words = [word for word in leaf_words if not queries.is_stop_word(word)] or leaf_words
        needle = max((word for word in words if word.isascii()), key=len, default="")
        return needle.encode()

    @property
    def where(self) -> str:
        """The conditions as one SQL expression."""
        return " AND ".join(condition.sql for condition in self.conditions) or "1"

    @property
    def values(self) -> list[Any]:
        """The values of the conditions, in order."""
        return [value for condition in self.conditions for value in condition.values]


class CandidateReader:
    """Reads the candidates of one search: their rows, copies, texts and replies."""

    def __init__(self, index: Index, windows: WindowReader) -> None:
        self._index = index
        self._windows = windows

    def add_replies(self, hits: Sequence[SearchHit]) -> list[SearchHit]:
        """Return the hits, with the id of the assistant's reply in each hit of the user."""
        return [
            replace(hit, reply_id=self._find_reply(hit)) if hit.role == "user" else hit
            for hit in hits
        ]

    def _find_reply(self, hit: SearchHit) -> int | None:
        """Return the number of the next assistant message with text, if it is near."""
        sql = (
            "SELECT m.number, m.place, m.length, m.key, s.source_id, s.native_id"  # noqa: S608 -- values are parameters
            " FROM sessions s CROSS JOIN messages m ON m.session = s.id"
            " WHERE s.session_id = ? AND s.store = ? AND m.number > ?"
            f" AND m.flags & {ROLE_MASK} = {ROLES.index('assistant')} ORDER BY m.number LIMIT ?"
        )
        values = (hit.session_id, hit.source, hit.message_id, _REPLY_REACH)
        for *place, source_id, native_id in self._index.read(sql, values):
            messages = self._windows.read_texts(source_id, native_id, [Place(*place)])
            if any(message.text for message in messages.values()):
                return int(place[0])
        return None

    def _drop_fork_copies(
        self,
        request: SearchRequest,
        candidates: Sequence[Candidate],
        build_expression: Callable[[int], str | None],
    ) -> list[Candidate]:
        """Keep one of the copies of a message that forks contain.

        The copy of the earliest session that passes the filters is kept. A later copy is dropped
        only if an earlier copy matches the expression too, so that a forged key hides no other
        text.
        """
        sql = (
            "SELECT m.id, m.session, coalesce(s.started_at, s.active_at) AS started, s.session_id"  # noqa: S608 -- values are parameters
            " FROM messages m JOIN sessions s ON s.id = m.session"
            f" WHERE m.key = ? AND {request.where} ORDER BY started, s.session_id LIMIT 50"
        )
        copied, kept = self._find_shared_keys(candidates), []
        for candidate in candidates:
            if candidate.key in copied:
                copies = self._index.read(sql, (candidate.key, *request.values))
                earlier = takewhile(lambda copy: copy[1] != candidate.session, copies)  # noqa: B023 -- the lambda is called in this iteration
                expression = build_expression(candidate.id)
                if any(self._is_match(expression, copy[0]) for copy in earlier):
                    continue
            kept.append(candidate)
        return kept

    def _find_shared_keys(self, candidates: Sequence[Candidate]) -> set[int]:
        """Return the keys that several messages have."""
        keys = sorted({candidate.key for candidate in candidates if candidate.key is not None})
        shared_keys = set[int]()
        for start in range(0, len(keys), _MAX_MARKS):
            part = keys[start : start + _MAX_MARKS]
            sql = (
                f"SELECT key FROM messages WHERE key IN ({', '.join('?' * len(part))})"  # noqa: S608 -- only question marks are inserted
                " GROUP BY key HAVING count(*) > 1"
            )
            shared_keys.update(row[0] for row in self._index.read(sql, part))
        return shared_keys

    def _is_match(self, expression: str | None, message_id: int) -> bool:
        """Return True if a message matches an FTS5 expression, or if there is none."""
        sql = "SELECT 1 FROM words WHERE words MATCH ? AND rowid = ?"
        return expression is None or bool(self._index.read(sql, (expression, message_id)))

    def _find_sessions(self, request: SearchRequest, ids: Sequence[int]) -> dict[int, int]:
        """Return the sessions of messages by message id, for messages that pass the filters."""
        sessions_by_id: dict[int, int] = {}
        for start in range(0, len(ids), _MAX_MARKS):
            part = ids[start : start + _MAX_MARKS]
            sql = (
                "SELECT m.id, m.session FROM messages m JOIN sessions s ON s.id = m.session"  # noqa: S608 -- only question marks are inserted
                f" WHERE m.id IN ({', '.join('?' * len(part))}) AND {request.where}"
            )
            sessions_by_id |= dict(self._index.read(sql, (*part, *request.values)))
        return sessions_by_id

    def _load_candidates(self, request: SearchRequest, ids: Sequence[int]) -> list[Candidate]:
        """Return the candidates with these ids that pass the filters, in the given order."""
        candidates_by_id: dict[int, Candidate] = {}
        for start in range(0, len(ids), _MAX_MARKS):
            part = ids[start : start + _MAX_MARKS]
            sql = (
                f"SELECT {COLUMNS} FROM messages m JOIN sessions s ON s.id = m.session"  # noqa: S608 -- the inserted names are constants
                f" WHERE m.id IN ({', '.join('?' * len(part))}) AND {request.where}"
            )
            rows = self._index.read(sql, (*part, *request.values))
            candidates_by_id |= {row[0]: Candidate(*row) for row in rows}
        return [candidates_by_id[number] for number in ids if number in candidates_by_id]

    def _read_texts(
        self, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Message, str]]:
        """Yield candidates with their message and text.

        Candidates whose source has changed are left out.
        """
        groups: dict[tuple[int, str], list[Candidate]] = {}
        for candidate in candidates:
            place = (candidate.source_id, candidate.native_id)
            groups.setdefault(place, []).append(candidate)
        for (source_id, native_id), group in groups.items():
            places = [Place(item.number, item.place, item.length, item.key) for item in group]
            messages = self._windows.read_texts(source_id, native_id, places)
            for candidate in group:
                message = messages.get(candidate.number)
                if message is not None:
                    yield candidate, message, build_text(message)


def build_step_expression(node: Node, step: str) -> str | None:
    """Return the FTS5 expression for a search step and a query node, or None."""
    if step == "prefix":
        node = queries.add_prefixes(node, except_for=queries.STOP_WORDS)
    return queries.build_match_expression(node, build_expression)


def score_message(
    candidate: Candidate,
    message: Message,
    folded: str,
    words: Sequence[TextFinder],
    now: float,
) -> float:
    """Return the part of a message's score that does not depend on the query words.

    A summary scores lower, because it repeats other messages.
    """
    score = relevance.score_context(
        folded,
        words,
        role=ROLES[candidate.flags & ROLE_MASK],
        age_s=now - candidate.time,
        compacted=candidate.number < candidate.compacted_to,
    )
    return score + _SUMMARY_WEIGHT * message.is_summary


def make_hit(candidate: Candidate, snippet: str, score: float) -> SearchHit:
    """Build the hit of a candidate."""
    return SearchHit(
        session_id=candidate.session_id,
        message_id=candidate.number,
        role=ROLES[candidate.flags & ROLE_MASK],
        at=candidate.time,
        snippet=snippet,
        title=candidate.title or shorten_prompt(candidate.preview),
        source=candidate.store,
        compacted=candidate.number < candidate.compacted_to,
        score=score,
    )
