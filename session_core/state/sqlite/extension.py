"""Search indexes that this process cannot write, and the extension that lets it.

A newer Hermes may keep an index with a tokenizer of its own. A connection that has not loaded that
tokenizer can neither insert nor delete rows of `messages`. The extension is native code from the
home, so it is loaded only on request, and only if no other user can have changed it.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

from session_core import driver
from session_core.errors import Denied, NotFound, SessionError, Unsupported
from session_core.models import BlockedIndex
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle, quoted

SQL = blocks.load("checks")

LIBRARY = Path("lib", "libfts5_cjk.so")
"""The extension, under the folder of the home."""

OPTION = "--load-extension"

_MISSING = re.compile(r"no such (tokenizer|module): (\w+)")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def list_blocked(handle: Handle) -> list[BlockedIndex]:
    """Return the indexes whose tokenizer or module this connection does not have."""
    if "blocked" not in handle.schema:
        handle.schema["blocked"] = _look_for_blocked(handle)
    return cast("list[BlockedIndex]", handle.schema["blocked"])


def list_usable(handle: Handle) -> list[str]:
    """Return the full-text indexes that this connection can write."""
    blocked = {index.name for index in list_blocked(handle)}
    return [name for (name,) in handle.values(SQL["list_index_tables"]) if name not in blocked]


def find_missing(error: Exception) -> BlockedIndex | None:
    """Return an index without a name for an error of SQLite that a tokenizer is missing."""
    match = _MISSING.match(str(error))
    return None if match is None else BlockedIndex("", f"the {match[1]} {match[2]}", ())


def refuse(path: Path, index: BlockedIndex, *, requested: bool) -> Unsupported:
    """Return the error for a change that a blocked index makes fail, with the choices."""
    name = f"the search index {index.name}" if index.name else "a search index"
    rows = f"rows of {' and '.join(index.tables)}" if index.tables else "such rows"
    return Unsupported(
        f"{path} has {name}, which needs {index.needs}: without it {rows} can be neither added nor "
        f"removed. {_describe_choices(path.parent, requested=requested)}"
    )


def load(connection: driver.Connection, folder: Path) -> None:
    """Load the extension of a home into a connection, and switch loading off again.

    Raises:
        Denied: another user can write the file or a folder above it.
        NotFound: there is no such file.
        Unsupported: this SQLite cannot load extensions, or not this one.
    """
    library = _find_library(folder)
    if not hasattr(connection, "enable_load_extension"):
        raise Unsupported(
            f"the {driver.describe().name} SQLite of this Python is built without extension "
            "loading; install pysqlite3, or use another Python"
        )
    connection.enable_load_extension(True)  # noqa: FBT003 -- its only argument
    try:
        connection.load_extension(str(library))
    except driver.library().Error as error:
        raise Unsupported(f"{library} cannot be loaded; build it again for this system") from error
    finally:
        connection.enable_load_extension(False)  # noqa: FBT003 -- its only argument


def load_if_safe(handle: Handle, folder: Path) -> None:
    """Load the extension of a home; a refused change reports why it is not loaded."""
    try:
        load(handle.connection, folder)
    except SessionError:
        return
    handle.schema.pop("blocked", None)


def _look_for_blocked(handle: Handle) -> list[BlockedIndex]:
    triggers = handle.values(SQL["list_triggers"])
    blocked = []
    for name, sql in handle.values(SQL["list_virtual_tables"]):
        missing = _find_missing_of(handle, name, sql)
        if missing is not None:
            tables = {table for table, body in triggers if name.lower() in body.lower()}
            blocked.append(replace(missing, name=name, tables=tuple(sorted(tables))))
    return blocked


def _find_missing_of(handle: Handle, name: str, sql: str) -> BlockedIndex | None:
    """Return what a virtual table needs and the connection does not have."""
    table = quoted(name)
    # A newer SQLite looks for a tokenizer only when it has a text to cut.
    is_index = "using fts5" in sql.lower()
    where = f"{table} MATCH 'a' AND rowid = 0" if is_index else "0"
    try:
        handle.value(f"SELECT 1 FROM {table} WHERE {where}")  # noqa: S608 -- from the schema, quoted
    except driver.library().Error as error:
        return find_missing(error)
    return None


def _describe_choices(folder: Path, *, requested: bool) -> str:
    otherwise = "or make the change in Hermes"
    if requested:
        return f"The extension is not loaded: {_find_obstacle(folder)}; mend that, {otherwise}"
    return (
        f"Use {OPTION} (in code: SessionDB(path, load_extension=True)), which loads "
        f"{folder / LIBRARY}, {otherwise}"
    )


def _find_obstacle(folder: Path) -> str:
    with closing(driver.connect("file::memory:", busy_timeout_s=0)) as connection:
        try:
            load(connection, folder)
        except SessionError as error:
            return str(error)
    return f"{folder / LIBRARY} does not have what the index needs"


def _find_library(folder: Path) -> Path:
    """Return the extension by its real path, on which every part belongs to this user or root."""
    if not hasattr(os, "geteuid"):
        raise Unsupported("the owner of an extension cannot be checked on this system")
    library = folder.resolve() / LIBRARY
    try:
        checks = [_check_owner(path) for path in (library, *library.parents)]
    except FileNotFoundError as error:
        raise NotFound(f"{library} is not there") from error
    except OSError as error:
        raise Denied(f"{library} cannot be checked: {error.strerror}") from error
    problems = [problem for problem in checks if problem is not None]
    if not stat.S_ISREG(library.lstat().st_mode):
        problems.insert(0, f"{library} is not a regular file")
    if problems:
        raise Denied(problems[0])
    return library


def _check_owner(path: Path) -> str | None:
    """Return why another user could have changed a file or an entry of a folder."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link; put the file itself there"
    if status.st_uid not in {os.geteuid(), 0}:
        return f"{path} belongs to another user"
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS and not is_sticky:
        return f"{path} can be written by other users; run chmod go-w on it"
    return None
