"""What a person is told where a turn of an agent ended without a word.

The first rule that fits decides; what the agent did say is never changed.

Titles that were asked for before their session was there.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

from session_core.hooks.calls import Reporter
from session_core.state.protocol import StateDatabase

_LONG_HISTORY_MESSAGES = 50
_MAX_FAILURE_CHARS = 300
_MAX_STOP_CHARS = 200

_SIZE_ERROR = re.compile(
    r"too (?:large|long)|payload|context[ _-]?(?:length|window|size|limit|overflow)"
)
_POSSIBLE_SIZE_ERROR = re.compile(r"context|token|exceed")
_STATUS_400 = re.compile(r"(?<!\d)400(?!\d)")

# The words of `_PERHAPS_TOO_LARGE` are at home elsewhere too: an "invalid auth token", a "rate
# limit exceeded", a "context deadline exceeded", an "unexpected token in JSON". To compress helps
# against none of these, and to say so would hide the error that is to be seen to.
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
"""How an agent says that it only ever thought, to the end of its tries."""


def normalize_empty_agent_response(
    agent_result: Mapping[str, Any], response: str | None, *, history_len: int = 0
) -> str:
    """Return the reply of a turn: what the agent said, or what can be done where that is nothing.

    An empty reply stays one where silence is right: a turn that was interrupted at work, and one
    that only thought.
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
    said = str(agent_result.get("final_response") or "").strip()
    return (
        bool(agent_result.get("partial"))
        and _HIDDEN_REASONING_TEXT in error.lower()
        and said in ("", error.strip())
    )


def _get_error(agent_result: Mapping[str, Any], unknown: str) -> str:
    return str(agent_result.get("error") or unknown)


def _parse_count(given: Any) -> int:
    try:
        return max(int(given or 0), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


class PendingTitles:
    """Titles by session key, until they are set or refused."""

    def __init__(self, db: StateDatabase, report: Reporter) -> None:
        self._db = db
        self._report = report
        self._lock = threading.Lock()
        self._titles: dict[str, str] = {}

    def request_title(self, session_key: str, title: str) -> None:
        """Remember a title, in place of one that was asked for before."""
        with self._lock:
            self._titles[session_key] = title

    def drop_title(self, session_key: str) -> None:
        """Forget it: the chat is in another session now."""
        with self._lock:
            self._titles.pop(session_key, None)

    def apply_title(self, session_key: str, session_id: str) -> None:
        """Set the title of a session that is there; after a fault it is tried at the next turn.

        One that is refused is dropped, or nobody could ever ask for another.
        """
        with self._lock:
            title = self._titles.get(session_key)
        if title is not None and self._try_title(session_key, session_id, title):
            with self._lock:
                if self._titles.get(session_key) == title:
                    del self._titles[session_key]

    def _try_title(self, session_key: str, session_id: str, title: str) -> bool:
        try:
            return self._db.set_session_title(session_id, title)
        except ValueError as error:
            self._report(f"the title of {session_key} was refused", error)
            return True
        except Exception as error:  # noqa: BLE001 -- a title is worth no reply
            self._report(f"the title of {session_key} is not set yet", error)
            return False
