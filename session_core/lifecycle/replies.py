"""Results of agents, the replies made from them, and titles that wait for their session."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from session_core.hooks.foreign_calls import Reporter
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.routing.entries import SessionEntry

AgentResult = Mapping[str, Any] | str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply, and the session in which the turn ended."""

    text: str
    session_id: str
    session_key: str
    superseded: bool = False
    failed: bool = False


def normalize_result(result: AgentResult) -> Mapping[str, Any]:
    """Return the result of an agent as a mapping. Text or None becomes a completed turn."""
    if isinstance(result, Mapping):
        return result
    return {"final_response": result, "api_calls": 1}


def pick_hook_arguments(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the values of `names` that are not None, as arguments of a hook."""
    return {name: values[name] for name in names if values.get(name) is not None}


def get_selected_model(entry: SessionEntry) -> dict[str, str] | None:
    """Return the model that a chat has selected. An agent is rebuilt after it changes."""
    return dict(entry.model_override) if entry.model_override else None


_LONG_HISTORY_MESSAGES = 50
_MAX_FAILURE_CHARS = 300
_MAX_STOP_CHARS = 200

_SIZE_ERROR = re.compile(
    r"too (?:large|long)|payload|context[ _-]?(?:length|window|size|limit|overflow)"
)
_POSSIBLE_SIZE_ERROR = re.compile(r"context|token|exceed")
_STATUS_400 = re.compile(r"(?<!\d)400(?!\d)")

# The words of `_POSSIBLE_SIZE_ERROR` occur in other errors too: an "invalid auth token", a "rate
# limit exceeded", a "context deadline exceeded", an "unexpected token in JSON". Compression does
# not fix these, and suggesting it would hide the real error.
_OTHER_ERROR = re.compile(
    r"(?<!\d)(?:401|402|403|407|408|429)(?!\d)"
    r"|auth|credential|unauthori|forbidden|permission|denied|api[ _-]?key|bearer|jwt|csrf"
    r"|(?:access|refresh|bot|invalid|expired|revoked|missing) token"
    r"|token (?:is |was |has )?(?:been )?(?:invalid|expired|revoked|missing|not valid)"
    r"|rate.?limit|too many requests|quota|credit|billing|per (?:second|minute|hour|day)"
    r"|deadline|time.?out|timed out|retries|recursion|cancell?ed"
    r"|(?:unexpected|illegal|unknown) token|\bssl|certificate"
)
_HIDDEN_REASONING_TEXT = "remained incomplete after"
"""Part of the error that an agent reports if all its attempts produced only reasoning."""


def normalize_empty_agent_response(
    agent_result: Mapping[str, Any], response: str | None, *, history_len: int = 0
) -> str:
    """Return the response, or a text that suggests the next step if it is empty.

    The first matching rule decides. The reply stays empty if the turn was interrupted while it
    worked, or if the agent produced only reasoning.
    """
    if response:
        return response
    if agent_result.get("failed"):
        return _format_failure(_get_error(agent_result, "unknown error"), history_len)
    calls = _parse_count(agent_result.get("api_calls"))
    if agent_result.get("interrupted"):
        return "" if calls else "Your message was stopped before it was looked at. Send it again."
    if calls:
        return _format_unfinished_work(agent_result)
    if agent_result.get("partial"):
        return ""
    return "Your message was not processed: the turn before it was still ending. Send it again."


def _format_failure(error: str, history_len: int) -> str:
    if _is_too_large(error.lower(), history_len):
        return (
            "This session is too large for the model's context window. "
            "Use /compact to make it smaller, or /reset to start afresh."
        )
    return (
        f"The request failed: {error[:_MAX_FAILURE_CHARS]}\nTry again, or use /reset to "
        "start afresh."
    )


def _is_too_large(error: str, history_len: int) -> bool:
    if _SIZE_ERROR.search(error):
        return True
    if _OTHER_ERROR.search(error):
        return False
    if _POSSIBLE_SIZE_ERROR.search(error):
        return True
    return history_len > _LONG_HISTORY_MESSAGES and bool(_STATUS_400.search(error))


def _format_unfinished_work(agent_result: Mapping[str, Any]) -> str:
    error = _get_error(agent_result, "it was not finished")
    if _has_only_reasoning(agent_result, error):
        return ""
    if agent_result.get("partial"):
        return f"Processing stopped: {error[:_MAX_STOP_CHARS]}. Try again."
    return "The work was done, but no answer came of it. This may pass: send your message again."


def _has_only_reasoning(agent_result: Mapping[str, Any], error: str) -> bool:
    response = str(agent_result.get("final_response") or "").strip()
    return (
        bool(agent_result.get("partial"))
        and _HIDDEN_REASONING_TEXT in error.lower()
        and response in ("", error.strip())
    )


def _get_error(agent_result: Mapping[str, Any], unknown: str) -> str:
    return str(agent_result.get("error") or unknown)


def _parse_count(value: Any) -> int:
    try:
        return max(int(value or 0), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


class PendingTitles:
    """Titles that are not stored yet, by session key."""

    def __init__(self, db: StateDatabase, report: Reporter) -> None:
        self._db = db
        self._report = report
        self._lock = threading.Lock()
        self._titles: dict[str, str] = {}

    def request_title(self, session_key: str, title: str) -> None:
        """Remember a title to set later. It replaces an earlier request of the chat."""
        with self._lock:
            self._titles[session_key] = title

    def drop_title(self, session_key: str) -> None:
        """Remove the pending title of a chat that has moved to another session."""
        with self._lock:
            self._titles.pop(session_key, None)

    def apply_title(self, session_key: str, session_id: str) -> None:
        """Set the pending title if the session exists.

        Keep it for the next turn after an error. A title that the database refuses is dropped, so
        that it does not block later requests.
        """
        with self._lock:
            title = self._titles.get(session_key)
        if title is not None and self._try_set_title(session_key, session_id, title):
            with self._lock:
                # A title that was requested meanwhile stays for the next turn.
                if self._titles.get(session_key) == title:
                    del self._titles[session_key]

    def _try_set_title(self, session_key: str, session_id: str, title: str) -> bool:
        try:
            return self._db.set_session_title(session_id, title)
        except ValueError as error:
            self._report(f"the title of {session_key} was refused", error)
            return True
        except Exception as error:  # noqa: BLE001 -- a failed title must not lose the reply
            self._report(f"the title of {session_key} is not set yet", error)
            return False
