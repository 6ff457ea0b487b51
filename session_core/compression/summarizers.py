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
from session_core.compression.ranges import Refused
from session_core.compression.types import Brief, NotCompressed, Request
from session_core.event_loops import EventLoop
from session_core.hooks.calls import Call
from session_core.ledger.execute import noting
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow


class Asked:
    """One time that a summary of a session is asked for, and what is noted of it."""

    def __init__(self, db: StateDatabase, session_id: str, clock: Callable[[], float]) -> None:
        self._db = db
        self._session_id = session_id
        self._clock = clock
        self._outcome: str | Failure | None = None

    def require_allowed(self, *, force: bool) -> None:
        """Make sure that a summary may be asked for now.

        Raises:
            NotCompressed: it is not, after failures.
        """
        refused = decide(self._state(), self._clock(), force)
        if refused is not None:
            raise NotCompressed(refused.code, refused.reason)

    def summary(
        self,
        summarizer: Summarizer,
        brief: Brief,
        messages: Sequence[MessageRow],
        timeout_s: float,
        loop: EventLoop | None = None,
    ) -> str | None:
        """Return a summary by the function; None where one without a model may take its place.

        A function that has failed is not asked again.

        Raises:
            NotCompressed: its failure leaves the session as it is.
        """
        if isinstance(self._outcome, Failure):
            return None
        request = request_of(brief, messages)
        self._outcome = call(summarizer, request, timeout_s, loop)
        if not isinstance(self._outcome, Failure):
            return self._outcome
        state = failed(self._state(), self._outcome, self._clock())
        self._store(self._session_id, state)
        if self._outcome.aborts:
            raise NotCompressed(
                f"summary_{self._outcome.kind}",
                f"no summary: {self._outcome.message}; mend that, then try again",
            ) from self._outcome.error
        return None

    def committed(self, session_id: str) -> None:
        """Note what came of it, in the session in which the conversation goes on."""
        if self._outcome is None:
            return
        with noting("what came of the summary"):
            state = State()
            if isinstance(self._outcome, Failure):
                before = self._state()
                state = replace(before, streak=before.streak + 1)
            self._store(session_id, state)

    def _state(self) -> State:
        return State.of(self._row(self._session_id))

    def _row(self, session_id: str) -> Mapping[str, Any]:
        return self._db.get_session(session_id) or {}

    def _store(self, session_id: str, state: State) -> None:
        row = self._row(session_id)
        here = {name: value for name, value in state.columns().items() if name in row}
        if any(row[name] != value for name, value in here.items()):
            self._db.put_session_fields(session_id, here)


def request_of(brief: Brief, messages: Sequence[MessageRow]) -> Request:
    """Return what a function is given; an earlier summary is no message, but beside them."""
    new = [
        _without_summary(message) for message in messages if not summary_message.is_summary(message)
    ]
    return Request(brief, rebuild.condense(new), tuple(summary_message.earlier(messages)))


def _without_summary(message: MessageRow) -> Mapping[str, Any]:
    """Return a message without the summary in it, with what it says beside that."""
    found = summary_message.read(message)
    if found is None:
        return message
    return {**message, "content": "\n\n".join(filter(None, (found.before, found.after)))}


Summarizer = Callable[[Any], "str | Awaitable[str]"]
"""Takes the request."""

FailureKind = Literal[
    "no_provider", "timeout", "stream", "authentication", "quota", "network", "other"
]
ABORTING: frozenset[FailureKind] = frozenset(("authentication", "quota", "network"))
"""With these the conversation stays as it is; with others another summary may take the place."""

TIMEOUT_COOLDOWNS_S = (60.0, 300.0, 900.0)
COOLDOWNS_S: Mapping[FailureKind, float] = {"no_provider": 600.0, "stream": 30.0, "network": 30.0}
COOLDOWN_S = 60.0
STREAK_MAX = 2

_MESSAGE_MAX = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no summary; `error` is what the function raised."""

    kind: FailureKind
    message: str
    error: BaseException | None = None

    @property
    def aborts(self) -> bool:
        """Whether the conversation is to be left as it is."""
        return self.kind in ABORTING


@dataclass(frozen=True, slots=True)
class State:
    """What is noted of failures: until when to wait and why, and fallbacks in a row."""

    cooldown_until: float | None = None
    error: str | None = None
    streak: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> State:
        """Return what stands in the row of a session."""
        return cls(
            row.get("compression_failure_cooldown_until"),
            row.get("compression_failure_error"),
            row.get("compression_fallback_streak") or 0,
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns of the row of a session."""
        return {
            "compression_failure_cooldown_until": self.cooldown_until,
            "compression_failure_error": self.error,
            "compression_fallback_streak": self.streak,
        }


def call(
    summarizer: Summarizer,
    request: object,
    timeout_s: float,
    loop: EventLoop | None = None,
) -> str | Failure:
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

    running = Call(begin, timeout_s, loop)
    how = running.wait()
    if how == "timed_out":
        return Failure("timeout", f"no summary within {timeout_s:g} s")
    if running.error is not None:
        return _failure(running.error)
    if results and isinstance(results[0], str) and results[0].strip():
        return results[0]
    return Failure("other", "the summarizer returned no text")


def decide(state: State, now: float, force: bool = False) -> Refused | None:
    """Return why no summary is to be asked for now; who insists always may."""
    if force:
        return None
    if state.cooldown_until is not None and state.cooldown_until > now:
        why = f" ({state.error})" if state.error else ""
        left = state.cooldown_until - now
        return Refused("cooldown", f"summaries failed{why}; wait {left:.0f} s, or force it")
    if state.streak >= STREAK_MAX:
        return Refused(
            "ineffective",
            f"{state.streak} times in a row no summary came from the summarizer; mend it, or force",
        )
    return None


def failed(state: State, failure: Failure, now: float) -> State:
    """Return what is noted after a failure; the streak is that of fallbacks, and stays."""
    in_a_row = 1
    wait = COOLDOWNS_S.get(failure.kind, COOLDOWN_S)
    message = f"{failure.kind}: {failure.message}"
    if failure.kind == "timeout":
        in_a_row += _timeouts(state)
        wait = TIMEOUT_COOLDOWNS_S[min(in_a_row, len(TIMEOUT_COOLDOWNS_S)) - 1]
        message = f"timeout {in_a_row}: {failure.message}"
    return replace(state, cooldown_until=now + wait, error=message)


_TIMEOUTS = re.compile(r"timeout (\d{1,9}):")
_KEYLIKE = re.compile(r"[\w+/=-]{20,}")
_STATUS: Mapping[int, FailureKind] = {
    401: "authentication",
    403: "authentication",
    402: "quota",
    408: "timeout",
    429: "timeout",
    502: "timeout",
    504: "timeout",
}
_SAID: Mapping[FailureKind, str] = {
    "no_provider": r"no (?:\w+ ){0,2}provider|provider (?:is )?not configured",
    "quota": r"quota|billing|insufficient (?:credit|balance|funds)|credit balance",
    "authentication": r"authenticat|unauthori[sz]ed|permission ?denied|forbidden"
    r"|(?:invalid|incorrect|missing|no) api.?key",
    "timeout": r"time.?out|timed out|deadline|rate.?limit|too many requests",
    "stream": r"json|expecting value|stream|chunked|incomplete ?read|ended prematurely"
    r"|unexpected eof|peer closed|protocol ?error",
    "network": r"connect|network|unreachable|name resolution|getaddrinfo|\bdns\b|\bssl",
}
_WORDS = {kind: re.compile(words, re.IGNORECASE) for kind, words in _SAID.items()}


def _failure(error: BaseException) -> Failure:
    name = type(error).__name__
    said = _KEYLIKE.sub("…", str(error).strip().partition("\n")[0])[:_MESSAGE_MAX]
    return Failure(_kind(error), f"{name}: {said}" if said else name, error)


def _kind(error: BaseException) -> FailureKind:
    said = f"{type(error).__name__} {error}"
    known = _STATUS.get(_status(error))
    if known:
        return "quota" if known == "timeout" and _WORDS["quota"].search(said) else known
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, json.JSONDecodeError):
        return "stream"
    if isinstance(error, ConnectionError):
        return "network"
    return next((kind for kind, words in _WORDS.items() if words.search(said)), "other")


def _status(error: BaseException) -> int:
    given = getattr(error, "status_code", None)
    if given is None:
        given = getattr(getattr(error, "response", None), "status_code", None)
    return given if isinstance(given, int) else 0


def _timeouts(state: State) -> int:
    match = _TIMEOUTS.match(state.error or "")
    return int(match.group(1)) if match else 0
