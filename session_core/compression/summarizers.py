"""Asking for a summary: a function of the caller's, within what its failures allow.

What is noted of failures stands in the row of the session, so that a restart forgets nothing, and
goes over to the session in which the conversation goes on.

A summary by a function of the caller's, and what follows where it fails.

The function may raise, hang or be async. A failure is a value, not an error: it says of what kind
it is, and with that how long to leave the function alone and whether a summary may be made without
it. What is noted of failures stands in the columns of the session that Hermes has for it, so that
both programs keep to it, and a restart forgets nothing.
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
from session_core.hooks.calls import IsolatedCall
from session_core.ledger.execute import suppress_note_errors
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow


class SummaryAttempt:
    """One time that a summary of a session is asked for, and what is noted of it."""

    def __init__(self, db: StateDatabase, session_id: str, clock: Callable[[], float]) -> None:
        self._db = db
        self._session_id = session_id
        self._clock = clock
        self._outcome: str | SummaryFailure | None = None

    def require_allowed(self, *, force: bool) -> None:
        """Make sure that a summary may be asked for now.

        Raises:
            NotCompressed: it is not, after failures.
        """
        refused = check_cooldown(self._read_state(), self._clock(), force)
        if refused is not None:
            raise NotCompressed(refused.code, refused.reason)

    def request_summary(
        self,
        summarizer: Summarizer,
        brief: SummaryBrief,
        messages: Sequence[MessageRow],
        timeout_s: float,
        loop: EventLoop | None = None,
    ) -> str | None:
        """Return a summary by the function; None where one without a model may take its place.

        A function that has failed is not asked again.

        Raises:
            NotCompressed: its failure leaves the session as it is.
        """
        if isinstance(self._outcome, SummaryFailure):
            return None
        request = build_request(brief, messages)
        self._outcome = call_summarizer(summarizer, request, timeout_s, loop)
        if not isinstance(self._outcome, SummaryFailure):
            return self._outcome
        state = record_failure(self._read_state(), self._outcome, self._clock())
        self._write_state(self._session_id, state)
        if self._outcome.is_aborting:
            raise NotCompressed(
                f"summary_{self._outcome.kind}",
                f"no summary: {self._outcome.message}; mend that, then try again",
            ) from self._outcome.error
        return None

    def record_commit(self, session_id: str) -> None:
        """Note what came of it, in the session in which the conversation goes on."""
        if self._outcome is None:
            return
        with suppress_note_errors("what came of the summary"):
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
        here = {name: value for name, value in state.to_columns().items() if name in row}
        if any(row[name] != value for name, value in here.items()):
            self._db.put_session_fields(session_id, here)


def build_request(brief: SummaryBrief, messages: Sequence[MessageRow]) -> SummaryRequest:
    """Return what a function is given; an earlier summary is no message, but beside them."""
    new = [
        _strip_summary(message) for message in messages if not summary_message.is_summary(message)
    ]
    return SummaryRequest(
        brief, rebuild.condense_messages(new), tuple(summary_message.list_summaries(messages))
    )


def _strip_summary(message: MessageRow) -> Mapping[str, Any]:
    """Return a message without the summary in it, with what it says beside that."""
    found = summary_message.parse_summary(message)
    if found is None:
        return message
    return {**message, "content": "\n\n".join(filter(None, (found.before, found.after)))}


Summarizer = Callable[[Any], "str | Awaitable[str]"]
"""Takes the request."""

FailureKind = Literal[
    "no_provider", "timeout", "stream", "authentication", "quota", "network", "other"
]
ABORTING_KINDS: frozenset[FailureKind] = frozenset(("authentication", "quota", "network"))
"""With these the conversation stays as it is; with others another summary may take the place."""

TIMEOUT_COOLDOWNS_S = (60.0, 300.0, 900.0)
COOLDOWNS_S: Mapping[FailureKind, float] = {"no_provider": 600.0, "stream": 30.0, "network": 30.0}
DEFAULT_COOLDOWN_S = 60.0
MAX_STREAK = 2

_MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why there is no summary; `error` is what the function raised."""

    kind: FailureKind
    message: str
    error: BaseException | None = None

    @property
    def is_aborting(self) -> bool:
        """Whether the conversation is to be left as it is."""
        return self.kind in ABORTING_KINDS


@dataclass(frozen=True, slots=True)
class FailureState:
    """What is noted of failures: until when to wait and why, and fallbacks in a row."""

    cooldown_until: float | None = None
    error: str | None = None
    streak: int = 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> FailureState:
        """Return what stands in the row of a session."""
        return cls(
            row.get("compression_failure_cooldown_until"),
            row.get("compression_failure_error"),
            row.get("compression_fallback_streak") or 0,
        )

    def to_columns(self) -> dict[str, Any]:
        """Return the columns of the row of a session."""
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
    """Return the summary that a function makes; one that hangs is left behind.

    A coroutine runs on `loop`, or on a loop of its own. Whoever waits here must not be that loop.
    """
    results: list[object] = []

    async def keep(result: Awaitable[object]) -> None:
        results.append(await result)

    def begin() -> object:
        result = summarizer(request)
        if inspect.isawaitable(result):
            return keep(result)
        results.append(result)
        return None

    running = IsolatedCall(begin, timeout_s, loop)
    how = running.wait()
    if how == "timed_out":
        return SummaryFailure("timeout", f"no summary within {timeout_s:g} s")
    if running.error is not None:
        return _make_failure(running.error)
    if results and isinstance(results[0], str) and results[0].strip():
        return results[0]
    return SummaryFailure("other", "the summarizer returned no text")


def check_cooldown(state: FailureState, now: float, force: bool = False) -> Refusal | None:
    """Return why no summary is to be asked for now; who insists always may."""
    if force:
        return None
    if state.cooldown_until is not None and state.cooldown_until > now:
        why = f" ({state.error})" if state.error else ""
        left = state.cooldown_until - now
        return Refusal("cooldown", f"summaries failed{why}; wait {left:.0f} s, or force it")
    if state.streak >= MAX_STREAK:
        return Refusal(
            "ineffective",
            f"{state.streak} times in a row no summary came from the summarizer; mend it, or force",
        )
    return None


def record_failure(state: FailureState, failure: SummaryFailure, now: float) -> FailureState:
    """Return what is noted after a failure; the streak is that of fallbacks, and stays."""
    in_a_row = 1
    wait = COOLDOWNS_S.get(failure.kind, DEFAULT_COOLDOWN_S)
    message = f"{failure.kind}: {failure.message}"
    if failure.kind == "timeout":
        in_a_row += _count_timeouts(state)
        wait = TIMEOUT_COOLDOWNS_S[min(in_a_row, len(TIMEOUT_COOLDOWNS_S)) - 1]
        message = f"timeout {in_a_row}: {failure.message}"
    return replace(state, cooldown_until=now + wait, error=message)


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
    said = _KEY_PATTERN.sub("…", str(error).strip().partition("\n")[0])[:_MAX_MESSAGE_CHARS]
    return SummaryFailure(_classify_error(error), f"{name}: {said}" if said else name, error)


def _classify_error(error: BaseException) -> FailureKind:
    said = f"{type(error).__name__} {error}"
    known = _KIND_BY_STATUS.get(_find_status(error))
    if known:
        return "quota" if known == "timeout" and _PATTERN_BY_KIND["quota"].search(said) else known
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, json.JSONDecodeError):
        return "stream"
    if isinstance(error, ConnectionError):
        return "network"
    return next((kind for kind, words in _PATTERN_BY_KIND.items() if words.search(said)), "other")


def _find_status(error: BaseException) -> int:
    given = getattr(error, "status_code", None)
    if given is None:
        given = getattr(getattr(error, "response", None), "status_code", None)
    return given if isinstance(given, int) else 0


def _count_timeouts(state: FailureState) -> int:
    match = _TIMEOUT_COUNT.match(state.error or "")
    return int(match.group(1)) if match else 0
