"""Calls of the caller's summarizer, and the consequences of its failures.

A summarizer may raise, hang or be async. A failure is a value, not an exception: its kind
determines the cooldown, and whether an extractive summary may replace the missing summary. Failures
are recorded in the columns of the session that Hermes has for them, so that both programs respect
them, a restart keeps them, and they move to the continuation.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from session_core.compression import rebuild, summary_message
from session_core.compression.ranges import Refusal
from session_core.compression.types import NotCompressed, SummaryBrief, SummaryRequest
from session_core.event_loops import EventLoop
from session_core.hooks.foreign_calls import IsolatedCall
from session_core.ledger.execute import suppress_note_errors
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow


class SummaryAttempt:
    """An attempt to summarize a session, and the record of its outcome."""

    def __init__(self, db: StateDatabase, session_id: str, clock: Callable[[], float]) -> None:
        self._db = db
        self._session_id = session_id
        self._clock = clock
        self._outcome: str | SummaryFailure | None = None

    def require_no_cooldown(self, *, force: bool) -> None:
        """Check that the summarizer may be called now.

        Raises:
            NotCompressed: earlier failures forbid it.
        """
        refusal = find_cooldown_reason(self._read_state(), self._clock(), force)
        if refusal is not None:
            raise NotCompressed(refusal.code, refusal.reason)

    def request_summary(
        self,
        summarizer: Summarizer,
        brief: SummaryBrief,
        messages: Sequence[MessageRow],
        timeout_s: float,
        loop: EventLoop | None = None,
    ) -> str | None:
        """Call the summarizer.

        Return None if an extractive summary may replace its summary. A summarizer that has failed
        is not called again.

        Raises:
            NotCompressed: the failure is of a kind that leaves the session unchanged.
        """
        if isinstance(self._outcome, SummaryFailure):
            return None
        request = build_request(brief, messages)
        self._outcome = call_summarizer(summarizer, request, timeout_s, loop)
        if not isinstance(self._outcome, SummaryFailure):
            return self._outcome
        state = compute_failed_state(self._read_state(), self._outcome, self._clock())
        # Recorded before the error is raised, so that the next call finds the cool-down.
        self._write_state(self._session_id, state)
        if self._outcome.is_aborting:
            raise NotCompressed(
                f"summary_{self._outcome.kind}",
                f"no summary: {self._outcome.message}; fix that, then try again",
            ) from self._outcome.error
        return None

    def record_commit(self, session_id: str) -> None:
        """Record the outcome in the session that continues the conversation."""
        if self._outcome is None:
            return
        with suppress_note_errors("the outcome of the summary"):
            state = FailureState()
            if isinstance(self._outcome, SummaryFailure):
                before = self._read_state()
                state = replace(before, streak=before.streak + 1)
            self._write_state(session_id, state)

    def _read_state(self) -> FailureState:
        return FailureState.from_row(self._read_row(self._session_id))

    def _read_row(self, session_id: str) -> Mapping[str, Any]:
        return self._db.get_session(session_id) or {}

    def _write_state(self, session_id: str, state: FailureState) -> None:
        row = self._read_row(session_id)
        # An older home has no columns for it.
        columns = {name: value for name, value in state.to_columns().items() if name in row}
        if any(row[name] != value for name, value in columns.items()):
            self._db.rows.put_session_fields(session_id, columns)


def build_request(brief: SummaryBrief, messages: Sequence[MessageRow]) -> SummaryRequest:
    """Return the request for a summarizer, with earlier summaries separate from the messages."""
    new = [
        _strip_summary(message) for message in messages if not summary_message.is_summary(message)
    ]
    return SummaryRequest(
        brief, rebuild.condense_messages(new), tuple(summary_message.list_summaries(messages))
    )


def _strip_summary(message: MessageRow) -> Mapping[str, Any]:
    """Return a message without the summary in it, but with its other text."""
    summary = summary_message.parse_summary(message)
    if summary is None:
        return message
    return {**message, "content": "\n\n".join(filter(None, (summary.before, summary.after)))}


Summarizer = Callable[[Any], str | Awaitable[str]]
"""Takes a SummaryRequest and returns a summary."""

FailureKind = Literal[
    "no_provider", "timeout", "stream", "authentication", "quota", "network", "other"
]
ABORTING_KINDS: frozenset[FailureKind] = frozenset(("authentication", "quota", "network"))
"""Failures that leave the conversation unchanged; after others an extractive summary is used."""

TIMEOUT_COOLDOWNS_S = (60.0, 300.0, 900.0)
COOLDOWNS_S: Mapping[FailureKind, float] = {"no_provider": 600.0, "stream": 30.0, "network": 30.0}
DEFAULT_COOLDOWN_S = 60.0
MAX_STREAK = 2

_MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """The reason for a missing summary. `error` is the exception of the summarizer."""

    kind: FailureKind
    message: str
    error: BaseException | None = None

    @property
    def is_aborting(self) -> bool:
        """Whether the conversation must stay unchanged."""
        return self.kind in ABORTING_KINDS


@dataclass(frozen=True, slots=True)
class FailureState:
    """Recorded failures: end and reason of the cooldown, and consecutive fallbacks."""

    cooldown_until: float | None = None
    error: str | None = None
    streak: int = 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> FailureState:
        """Build the state from the row of a session."""
        return cls(
            row.get("compression_failure_cooldown_until"),
            row.get("compression_failure_error"),
            row.get("compression_fallback_streak") or 0,
        )

    def to_columns(self) -> dict[str, Any]:
        """Return the state as columns of a session row."""
        return {
            "compression_failure_cooldown_until": self.cooldown_until,
            "compression_failure_error": self.error,
            "compression_fallback_streak": self.streak,
        }


def call_summarizer(
    summarizer: Summarizer,
    request: object,
    timeout_s: float,
    loop: EventLoop | None = None,
) -> str | SummaryFailure:
    """Call a summarizer, and return its summary or the failure.

    A call that exceeds the timeout is abandoned. A coroutine runs on `loop`, or on a new loop. The
    calling thread must not run that loop.
    """
    # IsolatedCall reports an error or a timeout, not the value, so it is collected here.
    results: list[object] = []

    async def store_result(result: Awaitable[object]) -> None:
        results.append(await result)

    def start_summarizer() -> object:
        result = summarizer(request)
        if inspect.isawaitable(result):
            return store_result(result)
        results.append(result)
        return None

    call = IsolatedCall(start_summarizer, timeout_s, loop)
    outcome = call.wait()
    if outcome == "timed_out":
        return SummaryFailure("timeout", f"no summary within {timeout_s:g} s")
    if call.error is not None:
        return _make_failure(call.error)
    if results and isinstance(results[0], str) and results[0].strip():
        return results[0]
    return SummaryFailure("other", "the summarizer returned no text")


def find_cooldown_reason(state: FailureState, now: float, force: bool = False) -> Refusal | None:
    """Return the reason why the summarizer may not be called now, or None.

    With `force`, it may always be called.
    """
    if force:
        return None
    if state.cooldown_until is not None and state.cooldown_until > now:
        reason = f" ({state.error})" if state.error else ""
        remaining = state.cooldown_until - now
        return Refusal("cooldown", f"summaries failed{reason}; wait {remaining:.0f} s, or force it")
    if state.streak >= MAX_STREAK:
        return Refusal(
            "ineffective",
            f"the summarizer failed {state.streak} times in a row; fix it, or force it",
        )
    return None


def compute_failed_state(state: FailureState, failure: SummaryFailure, now: float) -> FailureState:
    """Return the state after a failure. Only `record_commit` changes the fallback streak."""
    count = 1
    cooldown = COOLDOWNS_S.get(failure.kind, DEFAULT_COOLDOWN_S)
    message = f"{failure.kind}: {failure.message}"
    if failure.kind == "timeout":
        count += _count_timeouts(state)
        cooldown = TIMEOUT_COOLDOWNS_S[min(count, len(TIMEOUT_COOLDOWNS_S)) - 1]
        message = f"timeout {count}: {failure.message}"
    return replace(state, cooldown_until=now + cooldown, error=message)


_TIMEOUT_COUNT = re.compile(r"timeout (\d{1,9}):")
_KEY_PATTERN = re.compile(r"[\w+/=-]{20,}")
_KIND_BY_STATUS: Mapping[int, FailureKind] = {
    401: "authentication",
    403: "authentication",
    402: "quota",
    408: "timeout",
    429: "timeout",
    502: "timeout",
    504: "timeout",
}
_PHRASES_BY_KIND: Mapping[FailureKind, str] = {
    "no_provider": r"no (?:\w+ ){0,2}provider|provider (?:is )?not configured",
    "quota": r"quota|billing|insufficient (?:credit|balance|funds)|credit balance",
    "authentication": r"authenticat|unauthori[sz]ed|permission ?denied|forbidden"
    r"|(?:invalid|incorrect|missing|no) api.?key",
    "timeout": r"time.?out|timed out|deadline|rate.?limit|too many requests",
    "stream": r"json|expecting value|stream|chunked|incomplete ?read|ended prematurely"
    r"|unexpected eof|peer closed|protocol ?error",
    "network": r"connect|network|unreachable|name resolution|getaddrinfo|\bdns\b|\bssl",
}
_PATTERN_BY_KIND = {
    kind: re.compile(words, re.IGNORECASE) for kind, words in _PHRASES_BY_KIND.items()
}


def _make_failure(error: BaseException) -> SummaryFailure:
    name = type(error).__name__
    # Providers quote API keys in their errors; long tokens are removed.
    message = _KEY_PATTERN.sub("…", str(error).strip().partition("\n")[0])[:_MAX_MESSAGE_CHARS]
    return SummaryFailure(_classify_error(error), f"{name}: {message}" if message else name, error)


def _classify_error(error: BaseException) -> FailureKind:
    text = f"{type(error).__name__} {error}"
    kind_by_status = _KIND_BY_STATUS.get(_find_status(error))
    if kind_by_status:
        return (
            "quota"
            if kind_by_status == "timeout" and _PATTERN_BY_KIND["quota"].search(text)
            else kind_by_status
        )
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, json.JSONDecodeError):
        return "stream"
    if isinstance(error, ConnectionError):
        return "network"
    return next((kind for kind, words in _PATTERN_BY_KIND.items() if words.search(text)), "other")


def _find_status(error: BaseException) -> int:
    status = getattr(error, "status_code", None)
    if status is None:
        status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else 0


def _count_timeouts(state: FailureState) -> int:
    match = _TIMEOUT_COUNT.match(state.error or "")
    return int(match.group(1)) if match else 0
