"""Plans: what of a conversation is compressed, in which shape, and what a summary has to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from session_core.compression import chat_messages, ranges
from session_core.compression import ranges as compression_shape
from session_core.compression.chat_messages import Estimate
from session_core.compression.extractive import passages, scoring, summarize
from session_core.compression.ranges import Limits, Range, Refused, Shape, Wanted
from session_core.compression.types import (
    COMPRESS,
    Brief,
    Clean,
    Method,
    NotCompressed,
    Planned,
    Work,
    digest,
)
from session_core.errors import Changed, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

T = TypeVar("T")

TABLES = ("messages",)
"""Tables whose rows a compression and its undo insert and delete."""

_INEFFECTIVE = 2
_MUST_SURVIVE = 40
_CHARS_PER_TOKEN = (0.25, 4.0)
_SAMPLES = 200
_SAMPLE_CHARS = 200
_BRIEF_MESSAGES = 10_000
_BRIEF_CHARS = 250_000
"""So much is read for a brief, which somebody waits for; a summary without a model reads more."""
_BRIEF_LEAST_CHARS = 100_000
_CHARS_PER_MESSAGE = 1.5
"""So much less is read for each message that had to be looked at: that takes as long."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A session that can be compressed, its live messages, and when that was."""

    row: SessionRow
    rows: list[MessageRow]
    revision: Revision


class Planner:
    """Plans compressions of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        limits: Limits,
        estimate: Estimate,
        clean: Clean,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._limits = limits
        self._estimate = estimate
        self._clean = clean
        self._clock = clock

    def plan(
        self,
        session_id: str,
        wanted: Wanted,
        keep_last: int | None,
        method: Method | None = None,
        *,
        force: bool,
    ) -> tuple[Planned, list[MessageRow]]:
        """Record a plan; return it with the messages of its range."""
        seen = self.look(session_id)
        self._db.check_rows_writable(TABLES)
        if not force:
            self._require_effect(seen.row["id"])
        limits = self._limits if keep_last is None else replace(self._limits, keep_last=keep_last)
        found = ranges.choose_range(seen.rows, limits, self._estimate)
        if isinstance(found, Refused):
            raise NotCompressed(found.code, f"{found.reason}; {self._hint(seen, limits)}")
        shape = self.shape(seen, (found.start, found.end), wanted)
        part = seen.rows[found.start : found.end]
        chars_per_token = _chars_per_token(part, self._estimate)
        work = Work(
            session_id=seen.row["id"],
            shape=shape,
            start=found.start,
            end=found.end,
            digest=digest(part),
            target_chars=int(limits.summary_tokens(found.tokens) * chars_per_token),
            method=method,
        )
        why = f"{len(part)} messages, {found.tokens} tokens"
        member = Member(work.session_id, list(seen.revision), why)
        plan = self._ledger.add_plan(COMPRESS, [member], work.stored())
        brief = _brief(part, found, work.target_chars, self._clean(part))
        return Planned(plan.handle, work.session_id, shape, plan.expires_at, brief), part

    def summary(self, work: Work) -> str:
        """Return a summary of what was planned, without a model.

        Raises:
            Changed: it is not what it was.
        """
        part = self.look_again(work).rows[work.start : work.end]
        return self._clean(part)(summarize.summarize(part, work.target_chars))

    def look(self, session_id: str) -> Seen:
        """Return the session in which a conversation goes on, as it is at one moment.

        Raises:
            NotFound: there is no such session.
            NotCompressed: it has ended.
        """
        tip = self._db.get_compression_tip(session_id)
        revision = self._db.revision(tip)
        while True:
            row, rows = self._db.get_session(tip), self._db.get_messages(tip)
            now = self._db.revision(tip)
            if now == revision:
                break
            revision = now
        if row is None:
            raise NotFound(f"no session {tip!r}")
        if row["ended_at"] is not None:
            raise NotCompressed(
                "ended", f"session {tip} has ended ({row['end_reason']}); reopen it, then try again"
            )
        return Seen(row, rows, revision)

    def look_again(self, work: Work) -> Seen:
        """Return what `look` does, where the range is still what was planned.

        Raises:
            Changed: it is not.
        """
        seen = self.look(work.session_id)
        part = seen.rows[work.start : work.end]
        if seen.row["id"] != work.session_id or digest(part) != work.digest:
            raise Changed(
                f"session {work.session_id} was changed since it was planned; plan it again"
            )
        return seen

    def shape(self, seen: Seen, part: tuple[int, int], wanted: Wanted) -> Shape:
        """Return the shape in which a range may be compressed now.

        Raises:
            NotCompressed: there is none.
        """
        return _granted(
            compression_shape.choose(
                self._db,
                seen.row,
                seen.rows,
                part,
                wanted=wanted,
                routed=compression_shape.route_of(self._store, seen.row) is not None,
                now=self._clock(),
            )
        )

    def _hint(self, seen: Seen, limits: Limits) -> str:
        """Return what would let a range be found, in numbers where nobody has said how much."""
        hint = "go on, or keep less with keep_last"
        if limits.keep_last is not None:
            return hint
        there = sum(map(self._estimate, seen.rows))
        return f"{hint}: without it the last {limits.tail_tokens:,} tokens stay, of {there:,} here"

    def _require_effect(self, session_id: str) -> None:
        """Refuse where the last runs left a conversation as long as it may be."""
        conversation = self._db.get_compression_lineage(session_id)
        last = self._ledger.results(COMPRESS, conversation, _INEFFECTIVE)
        most = self._limits.threshold_tokens
        in_vain = [each for each in last if each["compressed"]["tokens_after"] >= most]
        if len(in_vain) == _INEFFECTIVE:
            raise NotCompressed(
                "ineffective",
                f"the last {_INEFFECTIVE} compressions of session {session_id} left it as long as "
                "it may be; begin a new session, or force it",
            )


def _brief(
    part: list[MessageRow], found: Range, target_chars: int, clean: Callable[[str], str]
) -> Brief:
    room = max(_BRIEF_CHARS - int(_CHARS_PER_MESSAGE * len(part)), _BRIEF_LEAST_CHARS)
    weighed = scoring.weigh(passages.read(part[-_BRIEF_MESSAGES:], room))
    return Brief(
        from_id=part[0]["id"],
        to_id=part[-1]["id"],
        messages=len(part),
        tokens=found.tokens,
        must_survive=tuple(
            fact for fact in scoring.best(weighed, _MUST_SURVIVE) if clean(fact) == fact
        ),
        target_chars=target_chars,
        digest=clean(summarize.summary_of(weighed, target_chars))[:target_chars],
    )


def _chars_per_token(part: list[MessageRow], estimate: Estimate) -> float:
    """Return how many characters a token has in a text such as this: one in some scripts."""
    every = max(1, len(part) // _SAMPLES)
    sample = "\n".join(chat_messages.text(row)[:_SAMPLE_CHARS] for row in part[::every])
    empty = estimate({"role": "user", "content": ""})
    weight = estimate({"role": "user", "content": sample}) - empty
    least, most = _CHARS_PER_TOKEN
    return min(max(len(sample) / weight, least), most) if weight > 0 else most


def _granted(found: T | Refused) -> T:
    if not isinstance(found, Refused):
        return found
    raise NotCompressed(found.code, found.reason)
