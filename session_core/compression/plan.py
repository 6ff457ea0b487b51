"""Planning a compression: choose its range and shape, and build the brief."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from session_core.compression import chat_messages, ranges
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.extractive import statements, summarize
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
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

T = TypeVar("T")

WATCHED_TABLES = ("messages",)
"""Tables in which a compression or its undo inserts or deletes rows."""

_MAX_INEFFECTIVE_RUNS = 2
_CHARS_PER_TOKEN_RANGE = (0.25, 4.0)
_MAX_SAMPLES = 200
_MAX_SAMPLE_CHARS = 200
_MAX_BRIEF_MESSAGES = 10_000
_MAX_BRIEF_CHARS = 250_000
"""Characters to read for a brief, while the caller waits. An extractive summary reads more."""
_MIN_BRIEF_CHARS = 50_000
_CHARS_PER_MESSAGE = 1.9
"""The reduction of the characters to read per message, because messages take time too."""


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session that can be compressed, with its live messages and their revision."""

    row: SessionRow
    rows: list[MessageRow]
    revision: Revision


class CompressionPlanner:
    """Plans the compressions of one home."""

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

    def plan_compression(
        self,
        session_id: str,
        requested_shape: RequestedShape,
        keep_last: int | None,
        method: Method | None = None,
        *,
        force: bool,
    ) -> tuple[CompressionPlan, list[MessageRow]]:
        """Store a plan, and return it with the messages of its range."""
        session = self.read_session(session_id)
        # Before a plan is stored that could only fail at a blocked index.
        self._db.rows.check_rows_writable(WATCHED_TABLES)
        if not force:
            self._refuse_if_ineffective(session.row["id"])
        limits = self._limits if keep_last is None else replace(self._limits, keep_last=keep_last)
        message_range = ranges.choose_range(session.rows, limits, self._estimate)
        if isinstance(message_range, Refusal):
            raise NotCompressed(
                message_range.code, f"{message_range.reason}; {self._build_hint(session, limits)}"
            )
        shape = self.choose_shape(
            session, (message_range.start, message_range.end), requested_shape
        )
        messages = session.rows[message_range.start : message_range.end]
        chars_per_token = _measure_chars_per_token(messages, self._estimate)
        planned = PlannedRange(
            session_id=session.row["id"],
            shape=shape,
            start=message_range.start,
            end=message_range.end,
            digest=digest_rows(messages),
            target_chars=int(limits.summary_tokens(message_range.tokens) * chars_per_token),
            method=method,
        )
        why = f"{len(messages)} messages, {message_range.tokens} tokens"
        member = Member(planned.session_id, list(session.revision), why)
        plan = self._ledger.add_plan(COMPRESS, [member], planned.to_json())
        brief = _build_brief(messages, message_range, planned.target_chars, self._clean(messages))
        return CompressionPlan(
            plan.handle, planned.session_id, shape, plan.expires_at, brief
        ), messages

    def write_summary(self, planned: PlannedRange) -> str:
        """Return an extractive summary of a planned range.

        Raises:
            Changed: the range has changed.
        """
        messages = self.reread_session(planned).rows[planned.start : planned.end]
        return self._clean(messages)(summarize.summarize(messages, planned.target_chars))

    def read_session(self, session_id: str) -> LiveSession:
        """Return the open session that continues a conversation, in one consistent state.

        Raises:
            NotFound: the session does not exist.
            NotCompressed: the session has ended.
        """
        tip = self._db.get_compression_tip(session_id)
        revision = self._db.get_revision(tip)
        while True:
            row, rows = self._db.get_session(tip), self._db.get_messages(tip)
            current = self._db.get_revision(tip)
            # The two reads belong together only if the revision did not change between them.
            if current == revision:
                break
            revision = current
        if row is None:
            raise NotFound(f"there is no session {tip!r}")
        if row["ended_at"] is not None:
            raise NotCompressed(
                "ended", f"session {tip} has ended ({row['end_reason']}); reopen it, then try again"
            )
        return LiveSession(row, rows, revision)

    def reread_session(self, planned: PlannedRange) -> LiveSession:
        """Read the session of a plan again if its range is unchanged.

        Raises:
            Changed: the range has changed.
        """
        session = self.read_session(planned.session_id)
        messages = session.rows[planned.start : planned.end]
        if session.row["id"] != planned.session_id or digest_rows(messages) != planned.digest:
            raise Changed(
                f"session {planned.session_id} was changed since it was planned; plan it again"
            )
        return session

    def choose_shape(
        self, session: LiveSession, part: tuple[int, int], requested: RequestedShape
    ) -> Shape:
        """Return the shape in which a range can be compressed now.

        Raises:
            NotCompressed: neither shape is possible.
        """
        return _raise_if_refused(
            ranges.choose_shape(
                self._db,
                session.row,
                session.rows,
                part,
                requested=requested,
                routed=ranges.find_chat_key(self._store, session.row) is not None,
                now=self._clock(),
            )
        )

    def _build_hint(self, session: LiveSession, limits: CompressionLimits) -> str:
        """Return a hint on how to obtain a range.

        It has token counts if `keep_last` was not given.
        """
        hint = "continue the session, or protect less with keep_last"
        if limits.keep_last is not None:
            return hint
        total_tokens = sum(map(self._estimate, session.rows))
        tail = f"the last {limits.tail_tokens:,} tokens stay, of {total_tokens:,} here"
        return f"{hint}: without it {tail}"

    def _refuse_if_ineffective(self, session_id: str) -> None:
        """Raise NotCompressed if the last compressions did not get below the threshold."""
        session_ids = self._db.get_compression_lineage(session_id)
        # From the stored plans, so that a restart does not forget them.
        results = self._ledger.list_results(COMPRESS, session_ids, _MAX_INEFFECTIVE_RUNS)
        threshold = self._limits.threshold_tokens
        ineffective = [
            result for result in results if result["compressed"]["tokens_after"] >= threshold
        ]
        if len(ineffective) == _MAX_INEFFECTIVE_RUNS:
            raise NotCompressed(
                "ineffective",
                f"the last {_MAX_INEFFECTIVE_RUNS} compressions of session {session_id} did not "
                "make it short enough; begin a new session, or force it",
            )


def _build_brief(
    messages: list[MessageRow],
    message_range: MessageRange,
    target_chars: int,
    clean: Callable[[str], str],
) -> SummaryBrief:
    max_chars = max(_MAX_BRIEF_CHARS - int(_CHARS_PER_MESSAGE * len(messages)), _MIN_BRIEF_CHARS)
    statement_set = statements.read_statements(messages[-_MAX_BRIEF_MESSAGES:], max_chars)
    chosen = summarize.choose_items(statement_set, target_chars)
    return SummaryBrief(
        from_id=messages[0]["id"],
        to_id=messages[-1]["id"],
        messages=len(messages),
        tokens=message_range.tokens,
        must_survive=tuple(summarize.list_essential_texts(chosen, clean, statement_set.current)),
        target_chars=target_chars,
        digest=clean(summarize.write_summary(statement_set, chosen, target_chars))[:target_chars],
    )


def _measure_chars_per_token(messages: list[MessageRow], estimate: TokenEstimator) -> float:
    """Return the average number of characters of a token in these messages.

    In some scripts it is 1 or less.
    """
    # From the whole range, whose parts may be in different scripts.
    step = max(1, len(messages) // _MAX_SAMPLES)
    sample = "\n".join(chat_messages.get_text(row)[:_MAX_SAMPLE_CHARS] for row in messages[::step])
    empty = estimate({"role": "user", "content": ""})
    tokens = estimate({"role": "user", "content": sample}) - empty
    least, most = _CHARS_PER_TOKEN_RANGE
    return min(max(len(sample) / tokens, least), most) if tokens > 0 else most


def _raise_if_refused(outcome: T | Refusal) -> T:
    if not isinstance(outcome, Refusal):
        return outcome
    raise NotCompressed(outcome.code, outcome.reason)
