"""Exit codes, and errors of the tools translated to verbs and options of the command."""

from __future__ import annotations

import re
from collections.abc import Iterable

from session_core import Busy, Conflict, InvalidInput, NotFound, SessionError, TitleTaken

_TOOL_PATTERN = re.compile(r"\bsessions_(\w+)")

_REPLACEMENTS = {
    "`mcp-sessions read`": "`mcp-sessions show`",
    "routes_list": "`mcp-sessions routes`",
    "keep_last": "--keep-last",
    "; pass store": "; pass --store NAME",
    "older_than_days": "--older-than",
    "pass the sessions to finalize": "pass the sessions to finalize with --session",
    "what='expired', 'orphaned' or 'abandoned'": "expired, orphaned or abandoned",
    "takes no sessions and no filter": "takes no --session and no filter",
    "status='archived'": "--status archived",
    "(query=…)": "",
    "No exclude_source": "No source",
}

_VALUE_PATTERN = re.compile(r"\bwhat='(\w+)'")

_ARGUMENT_LABELS = {
    "query": "WORD",
    "what": "WHAT",
    "session": "ID",
    "sessions": "--session",
    "roles": "--role",
    "batch": "BATCH",
}
"""Command-line names of arguments whose option has another name."""


class QuestionInterrupted(KeyboardInterrupt):
    """Raised by Ctrl-C at a question, before anything was changed."""


def format_error(error: SessionError) -> str:
    """Return the message of an error with tool names replaced by verbs."""
    text = translate_tool_text(str(error))
    nearest = error.nearest if isinstance(error, NotFound) else ()
    if not nearest or "did you mean" in text:
        return text
    return f"{text}; nearest: {', '.join(nearest[:5])}"


def translate_tool_text(text: str) -> str:
    """Return a text of a tool with tool and argument names replaced by verbs and options."""
    text = _TOOL_PATTERN.sub(r"`mcp-sessions \1`", text)
    for name, word in _REPLACEMENTS.items():
        text = text.replace(name, word)
    return _VALUE_PATTERN.sub(r"\1", text)


def translate_arguments(text: str, arguments: Iterable[str]) -> str:
    """Return a text with names of tool arguments replaced by options."""
    names = "|".join(sorted(arguments, key=len, reverse=True))
    pattern = re.compile(rf"(^|\. )({names})(?:\.\d+)?(?= (?:is|must|cannot) )")
    text = pattern.sub(lambda match: match[1] + _format_argument(match[2]), text)
    return text.replace(" cannot be passed with plan;", " cannot be passed with --plan;")


def _format_argument(argument: str) -> str:
    return _ARGUMENT_LABELS.get(argument, f"--{argument.replace('_', '-')}")


def get_exit_code(error: SessionError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, NotFound):
        return UNKNOWN_ID
    if isinstance(error, InvalidInput):
        return USAGE
    if isinstance(error, TitleTaken):
        return FAILED  # a retry fails in the same way
    return BUSY if isinstance(error, (Busy, Conflict)) else FAILED


DONE, FAILED, USAGE, UNKNOWN_ID, BUSY, DECLINED, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
