"""A live gateway holds the routes of its home in memory, and would overwrite a change of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from session_core import presence
from session_core.errors import Denied


def homes_of(sessions_dir: Path, database: Path | None) -> list[Path]:
    """Return the homes whose gateway may hold these routes, the one of the database last.

    The folder of the routes need not be in the home.
    """
    folders = [sessions_dir.parent] if database is None else [sessions_dir.parent, database]
    return list({folder.resolve(): folder for folder in folders}.values())


def refuse_beside_one(homes: Iterable[Path]) -> None:
    """Refuse a change of routes that a live gateway would overwrite.

    Raises:
        Denied: one lives, and is not this process.
    """
    for home in homes:
        live = presence.gateway(home)
        if live is not None and live.pid != os.getpid():
            raise Denied(
                f"a gateway (pid {live.pid}) holds the routes of {home} in memory and would "
                "overwrite the change; stop it, then try again"
            )
