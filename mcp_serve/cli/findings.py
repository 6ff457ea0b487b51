"""A finding in a sentence: how many of what, in the singular where it is one."""

from __future__ import annotations

_ABOUT_ONE = (
    *("unreadable", "broken_entries", "free_pages", "long_log", "no_database"),
    *("engine_fault", "damaged", "search_index_damaged", "search_index_incomplete"),
    "blocked_index",
)
"""Findings that are about one thing, which nobody counts."""

_OF_ONE = {
    "abandoned": "conversation that never ended and was not active for 30 days",
    "old_sessions": "conversation that ended and was not active for 90 days",
    "orphaned_continuations": "continuation that never ran",
    "expired": "session of a chat that its policy has ended",
    "ghosts": "empty session",
    "never_ended": "session that never ended",
    "broken_parents": "session whose parent is not there",
    "duplicate_titles": "title of several sessions",
    "dangling_routes": "route to a session that is not there",
    "foreign_routes": "route of a folder that is gone",
    "stale_routes": "route to a session that has ended",
    "dead_locks": "lock of a compression that ran out",
    "orphaned_files": "file of a session that is not there",
}
"""What there is one of; what is told behind a semicolon stays as it is."""


def said(code: str, count: int, what: str) -> str:
    """Return a finding as a sentence begins."""
    if code in _ABOUT_ONE:
        return what
    if count == 1 and code in _OF_ONE:
        _, semicolon, rest = what.partition(";")
        what = _OF_ONE[code] + semicolon + rest
    return f"{count:,} {what}"
