"""The bytes of one session: the file of its agent, or its rows in a database.

A source that has gone is read from its kept copy, which has the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from session_core.errors import Changed, NotFound
from session_core.transcripts.catalog import Catalog, RootCatalog
from session_core.transcripts.database_feed import get_database_errors
from session_core.transcripts.format import DatabaseFormat
from session_core.transcripts.keep.copies import split_rows_path
from session_core.transcripts.keep.session_rows import read_session_rows
from session_core.transcripts.roots import is_database_format
from session_core.transcripts.sources import BLOCK_BYTES

_ROWS_SUFFIX = ".rows.jsonl"


@dataclass(frozen=True, slots=True)
class RawSource:
    """The bytes of a session as its source contains them, and a suffix for a file name."""

    suffix: str
    parts: Iterator[bytes]


def open_raw_source(catalog: Catalog, source_id: int, native_id: str) -> RawSource:
    """Open the bytes of a session: its whole file, or its rows in a database.

    A row is a line of canonical JSON; the first line of each table has its columns.

    Raises:
        NotFound: the source is no longer served.
    """
    place = catalog.find_source(source_id)
    if place is None:
        raise NotFound(f"the source of session {native_id!r:.80} is gone; list the sessions again")
    root, path = place
    database, kept_session = split_rows_path(path)
    reader = root.root.format
    if not is_database_format(reader):
        return RawSource(_find_suffix(root, path), _read_file(root, path))
    if kept_session is not None:
        return RawSource(_ROWS_SUFFIX, _read_file(root, path))
    return RawSource(_ROWS_SUFFIX, _read_rows(root, database, reader, native_id))


def _find_suffix(root: RootCatalog, path: str) -> str:
    """Return the part of a file name after the session id, which may contain dots."""
    name, file = PurePosixPath(path).name, root.match_file(path)
    suffix = name.partition(file.session_id)[2] if file is not None else ""
    return suffix or name[name.find(".") :]


def _read_file(root: RootCatalog, path: str) -> Iterator[bytes]:
    """Yield the bytes of a file up to its current size."""
    try:
        with root.copies.open_source(f"{root.root.path}/{path}") as source:
            offset, size = 0, source.identity.size
            while offset < size:
                data = source.read(offset, min(BLOCK_BYTES, size - offset))
                if not data:
                    raise Changed(f"{path} was truncated during the read; try again")
                offset += len(data)
                yield data
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror or error}") from error


def _read_rows(
    root: RootCatalog, database: str, reader: DatabaseFormat, native_id: str
) -> Iterator[bytes]:
    path = f"{root.root.path}/{database}"
    try:
        for line, _ in read_session_rows(path, reader, native_id):
            yield line
    except get_database_errors() as error:
        raise NotFound(f"{database} cannot be read now; try again") from error
