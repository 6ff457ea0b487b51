"""Index files of earlier versions of the program, which nothing reads once they are abandoned."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from session_core import _sqlite3

_ABANDONED_S = 7 * 86_400.0
"""An earlier version may still be the one of another client; it would build its index again."""

_NAME = re.compile(r"index-(\d{1,9})\.db")
_SUFFIXES = ("-wal", "-shm", "")


def remove_abandoned(folder: Path, layout: int) -> None:
    """Remove the files of earlier layouts that were not written for a week and that none opens."""
    for path in list(_iterate_earlier(folder, layout)):
        with suppress(OSError):
            written = max(file.stat().st_mtime for file in _list_files(path) if file.exists())
            if time.time() - written > _ABANDONED_S:
                _remove_unused(path)


def remove_earlier(folder: Path, layout: int) -> None:
    """Remove the files of earlier layouts at once; a process that has one open keeps it.

    Raises:
        OSError: a file cannot be removed.
    """
    for path in list(_iterate_earlier(folder, layout)):
        for file in _list_files(path):
            file.unlink(missing_ok=True)


def _iterate_earlier(folder: Path, layout: int) -> Iterator[Path]:
    for path in folder.glob("index-*.db"):
        found = _NAME.fullmatch(path.name)
        if found and int(found[1]) < layout:
            yield path


def _list_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _SUFFIXES]


def _remove_unused(path: Path) -> None:
    """Remove a file under its exclusive lock, which fails while another connection is open."""
    library = _sqlite3.load_library()
    with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rw", busy_timeout_s=0)) as db:
        try:
            # The log can be left only by the last connection.
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("BEGIN EXCLUSIVE")
        except library.OperationalError:
            return
        except library.DatabaseError:  # a damaged file serves no version
            pass
        path.unlink()
