"""Whether two database objects are of one home."""

from __future__ import annotations

from session_core.home import is_same_file
from session_core.state.protocol import StateDatabase


def is_same_home(first: StateDatabase, second: StateDatabase) -> bool:
    """Return True if both are of one home: the same file, or the same id without a file."""
    if first is second:
        return True
    if first.path is not None and second.path is not None:
        # A Hermes home has no id, and a copy of another home has the id of its original.
        return is_same_file(first.path, second.path)
    if first.path is not None or second.path is not None:
        return False
    home_id = first.admin.get_home_id()
    return home_id is not None and home_id == second.admin.get_home_id()


def name_home(db: StateDatabase) -> str:
    """Return the path of a home, or its id if it has no file."""
    return str(db.path) if db.path is not None else f"home {db.admin.get_home_id()}"
