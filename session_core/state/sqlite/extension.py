"""The extension of a Hermes home, and the search indexes that cannot be written without it.

A newer Hermes may have an index with its own tokenizer. A connection without that tokenizer can
neither insert nor delete rows of `messages`. The extension is native code from the home, so it is
loaded only on request, and only if no other user can have changed it.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

from session_core import _sqlite3
from session_core.errors import Denied, NotFound, SessionError, Unsupported
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.types import BlockedIndex

SQL = sql_blocks.load_blocks("integrity")

EXTENSION_PATH = Path("lib", "libfts5_cjk.so")
"""Path of the extension in the home folder."""

EXTENSION_OPTION = "--load-extension"

_MISSING_PATTERN = re.compile(r"no such (tokenizer|module): (\w+)")
_OTHERS_WRITE_MODE = stat.S_IWGRP | stat.S_IWOTH


def list_blocked_indexes(handle: Connection) -> list[BlockedIndex]:
    """Return the indexes whose tokenizer or module this connection lacks."""
    if "blocked" not in handle.schema:
        handle.schema["blocked"] = _find_blocked_indexes(handle)
    return cast("list[BlockedIndex]", handle.schema["blocked"])


def list_usable_indexes(handle: Connection) -> list[str]:
    """Return the full-text indexes that this connection can write."""
    blocked = {index.name for index in list_blocked_indexes(handle)}
    return [
        name for (name,) in handle.fetch_tuples(SQL["list_index_tables"]) if name not in blocked
    ]


def find_missing_module(error: Exception) -> BlockedIndex | None:
    """Return an unnamed blocked index for an SQLite error about a missing tokenizer or module."""
    match = _MISSING_PATTERN.match(str(error))
    return None if match is None else BlockedIndex("", f"the {match[1]} {match[2]}", ())


def make_blocked_error(path: Path, index: BlockedIndex, *, requested: bool) -> Unsupported:
    """Return the error for a change that a blocked index prevents, with the possible remedies."""
    name = f"the search index {index.name}" if index.name else "a search index"
    rows = f"rows of {' and '.join(index.tables)}" if index.tables else "such rows"
    return Unsupported(
        f"{path} has {name}, which needs {index.needs}: without it {rows} can be neither added nor "
        f"removed. {_describe_choices(path.parent, requested=requested)}"
    )


def load_extension(connection: _sqlite3.Connection, folder: Path) -> None:
    """Load the extension of a home into a connection, and disable loading again.

    Raises:
        Denied: another user can write the file or a folder above it.
        NotFound: the file does not exist.
        Unsupported: this SQLite cannot load extensions, or not this one.
    """
    library = _find_library(folder)
    if not hasattr(connection, "enable_load_extension"):
        raise Unsupported(
            f"the {_sqlite3.describe_sqlite().name} SQLite of this Python is built without "
            "extension "
            "loading; install pysqlite3, or use another Python"
        )
    connection.enable_load_extension(True)  # noqa: FBT003 -- the driver takes no keyword
    try:
        connection.load_extension(str(library))
    except _sqlite3.load_library().Error as error:
        raise Unsupported(f"{library} cannot be loaded; build it again for this system") from error
    finally:
        # While it is on, SQL can load libraries too.
        connection.enable_load_extension(False)  # noqa: FBT003 -- the driver takes no keyword


def load_extension_if_safe(handle: Connection, folder: Path) -> None:
    """Load the extension of a home if possible.

    If it is not loaded, the error of a refused change reports the reason.
    """
    try:
        load_extension(handle.connection, folder)
    except SessionError:
        return
    handle.schema.pop("blocked", None)


def _find_blocked_indexes(handle: Connection) -> list[BlockedIndex]:
    triggers = handle.fetch_tuples(SQL["list_triggers"])
    blocked = []
    for name, sql in handle.fetch_tuples(SQL["list_virtual_tables"]):
        missing = _find_blocked_index(handle, name, sql)
        if missing is not None:
            tables = {table for table, body in triggers if name.lower() in body.lower()}
            blocked.append(replace(missing, name=name, tables=tuple(sorted(tables))))
    return blocked


def _find_blocked_index(handle: Connection, name: str, sql: str) -> BlockedIndex | None:
    """Return the missing module of a virtual table, or None if the connection has it."""
    table = quote_name(name)
    # A newer SQLite loads a tokenizer only when it has text to tokenize.
    is_index = "using fts5" in sql.lower()
    where = f"{table} MATCH 'a' AND rowid = 0" if is_index else "0"
    try:
        handle.fetch_value(f"SELECT 1 FROM {table} WHERE {where}")  # noqa: S608 -- quoted names of the schema
    except _sqlite3.load_library().Error as error:
        return find_missing_module(error)
    return None


def _describe_choices(folder: Path, *, requested: bool) -> str:
    otherwise = "or make the change in Hermes"
    if requested:
        return f"The extension is not loaded: {_find_load_obstacle(folder)}; fix that, {otherwise}"
    return (
        f"Use {EXTENSION_OPTION} (in code: SessionDB(path, load_extension=True)), which loads "
        f"{folder / EXTENSION_PATH}, {otherwise}"
    )


def _find_load_obstacle(folder: Path) -> str:
    with closing(_sqlite3.connect("file::memory:", busy_timeout_s=0)) as connection:
        try:
            load_extension(connection, folder)
        except SessionError as error:
            return str(error)
    return f"{folder / EXTENSION_PATH} does not have what the index needs"


def _find_library(folder: Path) -> Path:
    """Return the real path of the extension.

    Every part of the path must belong to this user or to root.
    """
    if not hasattr(os, "geteuid"):
        raise Unsupported("the owner of an extension cannot be checked on this system")
    library = folder.resolve() / EXTENSION_PATH
    try:
        # Another user who can write a folder above it can replace the file.
        checks = [_describe_owner_risk(path) for path in (library, *library.parents)]
    except FileNotFoundError as error:
        raise NotFound(f"{library} does not exist") from error
    except OSError as error:
        raise Denied(f"{library} cannot be checked: {error.strerror}") from error
    problems = [problem for problem in checks if problem is not None]
    if not stat.S_ISREG(library.lstat().st_mode):
        problems.insert(0, f"{library} is not a regular file")
    if problems:
        raise Denied(problems[0])
    return library


def _describe_owner_risk(path: Path) -> str | None:
    """Describe how another user could have changed a file or folder, or return None."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link; put the file itself there"
    if status.st_uid not in {os.geteuid(), 0}:
        return f"{path} belongs to another user"
    # In a sticky folder, such as the temporary one, other users cannot replace the file.
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_WRITE_MODE and not is_sticky:
        return f"{path} can be written by other users; run chmod go-w on it"
    return None
