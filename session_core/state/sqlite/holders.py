"""Errors about the other processes that have a database file open.

`processes` finds these processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from session_core.errors import Busy

if TYPE_CHECKING:
    from session_core.types import Holder


def require_no_holders(path: Path, holders: Sequence[Holder]) -> None:
    """Refuse a rewrite of a file that other processes have open.

    Raises:
        Busy: a process has the file open.
    """
    names = [str(holder) for holder in holders]
    if names:
        raise Busy(
            f"{path} is open in {', '.join(names)}; stop that process, then try again",
            holders=names,
        )


def make_busy_error(path: Path, holders: Sequence[Holder]) -> Busy:
    """Return the error for a database that another connection has locked."""
    names = [str(holder) for holder in holders]
    listed = ", ".join(names) or "another connection, possibly of this process"
    return Busy(
        f"the database {path} is held by {listed}; let it finish, then try again", holders=names
    )
