"""Which SQLite library the command runs on."""

from __future__ import annotations

from session_core import Driver, Unsupported, choose_sqlite


def choose_driver() -> Driver:
    """Take the bundled SQLite where it is installed, else the standard one."""
    try:
        return choose_sqlite("bundled")
    except Unsupported:
        return choose_sqlite("standard")
