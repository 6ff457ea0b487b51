"""Reading of whole files by a format, as the index does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.format import FileFormat, Message, Query, ReaderState, Record

FIXTURES = Path(__file__).parent


def read_lines(
    reader: FileFormat, data: bytes, state: ReaderState | None = None, begin: int = 0
) -> Iterator[Record]:
    """Yield the records of the complete lines of a file from an offset on."""
    state = {} if state is None else state
    offset = begin
    for line in data[begin:].split(b"\n")[:-1]:
        yield reader.read_record(line, offset, state)
        offset += len(line) + 1


def read_fixture(reader: FileFormat, path: str) -> list[Record]:
    """Return the records of a fixture."""
    return list(read_lines(reader, (FIXTURES / path).read_bytes()))


def list_messages(records: list[Record]) -> list[Message]:
    """Return the messages of records in order."""
    return [message for record in records for message in record.messages]


def list_texts(records: list[Record]) -> list[tuple[str, str]]:
    """Return the role and the text of each message that has a text."""
    return [(message.role, message.text) for message in list_messages(records) if message.text]


def collect_facts(records: list[Record]) -> dict[str, Any]:
    """Return the facts of a session: the best title, the sums of usage, else the last values."""
    facts: dict[str, Any] = {}
    for record in records:
        new: dict[str, Any] = dict(record.facts or {})
        if "title" in new and new.get("title_rank", 0) > facts.get("title_rank", 99):
            del new["title"], new["title_rank"]
        if "usage" in new and "usage" in facts:
            new["usage"] = type(new["usage"])(
                *map(sum, zip(facts["usage"], new["usage"], strict=True))
            )
        facts |= new
    return facts


def list_unknown_types(records: list[Record]) -> list[str]:
    """Return the types of the records that the reader does not know."""
    return [record.type for record in records if not record.is_known]


@contextmanager
def open_database(path: Path, schema: str = "") -> Iterator[tuple[Any, Query]]:
    """Open a database for writing, made by these statements, and the query of a reader on it."""
    connection: Any = _sqlite3.connect(f"file:{path}", busy_timeout_s=5)
    try:
        connection.executescript(schema)
        yield connection, lambda sql, values: connection.execute(sql, values).fetchall()
    finally:
        connection.close()
