"""Notes of the programs that hold a home.

A program stores its note with its changes, by the clock of the server and at most once a minute, so
no thread has to refresh it. The note ends when the program closes the home, or an hour after its
last change, since a session that old counts as inactive anyway. Processes of this machine are also
checked directly.
"""

from __future__ import annotations

import os
import platform
import re
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from session_core import processes
from session_core.state import sql_blocks
from session_core.types import Holder

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("holders", "session_core.state.postgres")

_KEPT_S = 3600
_NOTE_INTERVAL_S = 60.0
_ODD_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]")


class HolderNote:
    """The note of one instance of a database."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._noted_at: float | None = None

    @property
    def is_due(self) -> bool:
        """True if the next change must contain the note."""
        return self._noted_at is None or time.monotonic() - self._noted_at > _NOTE_INTERVAL_S

    @property
    def is_stored(self) -> bool:
        """True if a change with the note was committed."""
        return self._noted_at is not None

    def compose(self) -> str:
        """Compose the statements that store the note."""
        return SQL["note_holder"].format(
            token=self._token,
            host=_get_host(),
            space=_get_process_space(),
            pid=os.getpid(),
            started_at=processes.get_start_time(os.getpid()) or "NULL",
            kept_s=_KEPT_S,
        )

    def confirm(self) -> None:
        """Record that a change with the note was committed."""
        self._noted_at = time.monotonic()

    def delete(self, handle: Connection) -> None:
        """Delete the note."""
        handle.execute_update(SQL["delete_holder"], (self._token,))
        self._noted_at = None


def list_holders(handle: Connection) -> list[Holder]:
    """Return the other processes that have written to the home and may still hold it."""
    own_host = _get_host(), _get_process_space()
    holders: dict[tuple[str, str, int], Holder] = {}
    for host, space, pid, started_at in handle.fetch_tuples(SQL["list_holders"]):
        is_local = (host, space) == own_host
        if is_local and (pid == os.getpid() or not processes.is_alive(pid, started_at)):
            continue
        holders[host, space, pid] = Holder(pid, f"a program on {host}")
    return list(holders.values())


def _get_host() -> str:
    """Return the name of this machine, without characters that a statement would need quoted."""
    return _ODD_CHARACTERS.sub("", platform.node()) or "unknown"


def _get_process_space() -> str:
    """Return the PID namespace, which distinguishes containers with one host name."""
    with suppress(OSError):
        return _ODD_CHARACTERS.sub("", os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 -- the target is text, not a path
    return ""
