"""Plans: what of a conversation is compressed, in which shape, and what a summary has to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from session_core.compression import chat_messages, ranges
from session_core.compression import ranges as compression_shape
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.extractive import passages, scoring, summarize
from session_core.compression.ranges import (
    CompressionLimits,
    MessageRange,
    Refusal,
    RequestedShape,
    Shape,
)
from session_core.compression.types import (
    COMPRESS,
    Clean,
    CompressionPlan,
    Method,
    NotCompressed,
    PlannedRange,
    SummaryBrief,
    digest_rows,
)
from session_core.errors import Changed, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

T = TypeVar("T")

WATCHED_TABLES = ("messages",)
"""Tables whose rows a compression and its undo insert and delete."""

_MAX_INEFFECTIVE_RUNS = 2
_MAX_SURVIVING_FACTS = 40
_CHARS_PER_TOKEN_RANGE = (0.25, 4.0)
_MAX_SAMPLES = 200
_MAX_SAMPLE_CHARS = 200
_MAX_BRIEF_MESSAGES = 10_000
_MAX_BRIEF_CHARS = 250_000
"""So much is read for a brief, which somebody waits for; a summary without a model reads more."""
_MIN_BRIEF_CHARS = 100_000
_CHARS_PER_MESSAGE = 1.5
"""So much less is read for each message that had to be looked at: that takes as long."""


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session that can be compressed, its live messages, and when that was."""

    row: SessionRow
    rows: list[MessageRow]
    revision: Revision


class CompressionPlanner:
    """Plans compressions of one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        limits: CompressionLimits,
        estimate: TokenEstimator,
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
        wanted: RequestedShape,
        keep_last: int | None,
        method: Method | None = None,
        *,
        force: bool,
    ) -> tuple[CompressionPlan, list[MessageRow]]:
        """Record a plan; return it with the messages of its range."""
        seen = self.read_session(session_id)
        self._db.check_rows_writable(WATCHED_TABLES)
        if not force:
            self._require_effect(seen.row["id"])
        limits = self._limits if keep_last is None else replace(self._limits, keep_last=keep_last)
        found = ranges.choose_range(seen.rows, limits, self._estimate)
        if isinstance(found, Refusal):
            raise NotCompressed(found.code, f"{found.reason}; {self._build_hint(seen, limits)}")
        shape = self.choose_shape(seen, (found.start, found.end), wanted)
        part = seen.rows[found.start : found.end]
        chars_per_token = _measure_chars_per_token(part, self._estimate)
        work = PlannedRange(
            session_id=seen.row["id"],
            shape=shape,
            start=found.start,
            end=found.end,
            digest=digest_rows(part),
            target_chars=int(limits.summary_tokens(found.tokens) * chars_per_token),
            method=method,
        )
        why = f"{len(part)} messages, {found.tokens} tokens"
        member = Member(work.session_id, list(seen.revision), why)
        plan = self._ledger.add_plan(COMPRESS, [member], work.to_json())
        brief = _build_brief(part, found, work.target_chars, self._clean(part))
        return CompressionPlan(plan.handle, work.session_id, shape, plan.expires_at, brief), part

    def write_summary(self, work: PlannedRange) -> str:
        """Return a summary of what was planned, without a model.

        Raises:
            Changed: it is not what it was.
        """
        part = self.reread_session(work).rows[work.start : work.end]
        return self._clean(part)(summarize.summarize(part, work.target_chars))

    def read_session(self, session_id: str) -> LiveSession:
        """Return the session in which a conversation goes on, as it is at one moment.

        Raises:
            NotFound: there is no such session.
            NotCompressed: it has ended.
        """
        tip = self._db.get_compression_tip(session_id)
        revision = self._db.get_revision(tip)
        while True:
            row, rows = self._db.get_session(tip), self._db.get_messages(tip)
            now = self._db.get_revision(tip)
            if now == revision:
                break
            revision = now
        if row is None:
            raise NotFound(f"no session {tip!r}")
        if row["ended_at"] is not None:
            raise NotCompressed(
                "ended", f"session {tip} has ended ({row['end_reason']}); reopen it, then try again"
            )
        return LiveSession(row, rows, revision)

    def reread_session(self, work: PlannedRange) -> LiveSession:
        """Return what `look` does, where the range is still what was planned.

        Raises:
            Changed: it is not.
        """
        seen = self.read_session(work.session_id)
        part = seen.rows[work.start : work.end]
        if seen.row["id"] != work.session_id or digest_rows(part) != work.digest:
            raise Changed(
                f"session {work.session_id} was changed since it was planned; plan it again"
            )
        return seen

    def choose_shape(
        self, seen: LiveSession, part: tuple[int, int], wanted: RequestedShape
    ) -> Shape:
        """Return the shape in which a range may be compressed now.

        Raises:
            NotCompressed: there is none.
        """
        return _raise_if_refused(
            compression_shape.choose_shape(
                self._db,
                seen.row,
                seen.rows,
                part,
                wanted=wanted,
                routed=compression_shape.find_route(self._store, seen.row) is not None,
                now=self._clock(),
            )
        )

    def _build_hint(self, seen: LiveSession, limits: CompressionLimits) -> str:
        """Return what would let a range be found, in numbers where nobody has said how much."""
        hint = "go on, or keep less with keep_last"
        if limits.keep_last is not None:
            return hint
        there = sum(map(self._estimate, seen.rows))
        return f"{hint}: without it the last {limits.tail_tokens:,} tokens stay, of {there:,} here"

    def _require_effect(self, session_id: str) -> None:
        """Refuse where the last runs left a conversation as long as it may be."""
        conversation = self._db.get_compression_lineage(session_id)
        last = self._ledger.list_results(COMPRESS, conversation, _MAX_INEFFECTIVE_RUNS)
        most = self._limits.threshold_tokens
        in_vain = [each for each in last if each["compressed"]["tokens_after"] >= most]
        if len(in_vain) == _MAX_INEFFECTIVE_RUNS:
            raise NotCompressed(
                "ineffective",
                f"the last {_MAX_INEFFECTIVE_RUNS} compressions of session {session_id} left it "
                "as long as "
                "it may be; begin a new session, or force it",
            )


def _build_brief(
    part: list[MessageRow], found: MessageRange, target_chars: int, clean: Callable[[str], str]
) -> SummaryBrief:
    room = max(_MAX_BRIEF_CHARS - int(_CHARS_PER_MESSAGE * len(part)), _MIN_BRIEF_CHARS)
    weighed = scoring.score_passages(passages.read_passages(part[-_MAX_BRIEF_MESSAGES:], room))
    return SummaryBrief(
        from_id=part[0]["id"],
        to_id=part[-1]["id"],
        messages=len(part),
        tokens=found.tokens,
        must_survive=tuple(
            fact
            for fact in scoring.select_best_facts(weighed, _MAX_SURVIVING_FACTS)
            if clean(fact) == fact
        ),
        target_chars=target_chars,
        digest=clean(summarize.build_summary(weighed, target_chars))[:target_chars],
    )


def _measure_chars_per_token(part: list[MessageRow], estimate: TokenEstimator) -> float:
    """Return how many characters a token has in a text such as this: one in some scripts."""
    every = max(1, len(part) // _MAX_SAMPLES)
    sample = "\n".join(chat_messages.get_text(row)[:_MAX_SAMPLE_CHARS] for row in part[::every])
    empty = estimate({"role": "user", "content": ""})
    weight = estimate({"role": "user", "content": sample}) - empty
    least, most = _CHARS_PER_TOKEN_RANGE
    return min(max(len(sample) / weight, least), most) if weight > 0 else most


def _raise_if_refused(found: T | Refusal) -> T:
    if not isinstance(found, Refusal):
        return found
    raise NotCompressed(found.code, found.reason)
