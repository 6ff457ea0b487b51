"""A summary by a function of the caller's, and what follows where it fails.

The function may raise, hang or be async. A failure is a value, not an error: it says of what kind
it is, and with that how long to leave the function alone and whether a summary may be made without
it. What is noted of failures stands in the columns of the session that Hermes has for it, so that
both programs keep to it, and a restart forgets nothing.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from session_core.compression.boundaries import Refused
from session_core.event_loops import EventLoop
from session_core.isolated import Call

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
