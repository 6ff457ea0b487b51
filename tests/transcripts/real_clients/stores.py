"""The stores that real clients wrote, read by the formats alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core.transcripts.format import Message, Record
from session_core.transcripts.roots import AnyFormat, find_roots, is_database_format
from tests.transcripts.formats.reading import collect_facts, open_database, read_lines


@dataclass
class StoredSession:
    """A session as the formats read it."""

    session_id: str
    records: list[Record] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    """What the path and the sidecars state."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of the path, the sidecars and the records."""
        return collect_facts([Record(0, 0, "path", facts=self.known), *self.records])  # type: ignore[arg-type]

    @property
    def messages(self) -> list[Message]:
        """The messages of the session after replacements and copies."""
        found: dict[str, Message] = {}
        for record in self.records:
            for place, message in enumerate(record.messages):
                key = message.key or f"{record.offset} {place}"
                if message.replaces or key not in found:
                    found[key] = message
        return list(found.values())

    def list_texts(self, role: str) -> list[str]:
        """Return the texts of a role in order."""
        return [message.text for message in self.messages if message.role == role and message.text]


def read_stores(formats: Iterable[AnyFormat], home: Path) -> dict[str, StoredSession]:
    """Return the sessions below a home folder that have messages."""
    sessions: dict[str, StoredSession] = {}
    for root in find_roots(formats, {"HOME": str(home)}):
        for path in _list_files(root.format, Path(root.path)):
            if is_database_format(root.format):
                _read_database(root.format, Path(root.path, path), sessions)
            else:
                _read_file(root.format, Path(root.path), path, sessions)
    return {name: found for name, found in sessions.items() if found.messages}


def _list_files(reader: AnyFormat, root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        prefix = "" if Path(folder) == root else Path(folder).relative_to(root).as_posix() + "/"
        folders[:] = [name for name in folders if reader.match_folder(prefix + name)]
        yield from sorted(prefix + name for name in names)


def _read_file(reader: Any, root: Path, path: str, sessions: dict[str, StoredSession]) -> None:
    file = reader.match_file(path)
    if file is None:
        return
    session = sessions.setdefault(file.session_id, StoredSession(file.session_id))
    data = (root / path).read_bytes()
    for record in read_lines(reader, data):
        session.records.append(record)
        if record.messages:
            line = data[record.offset : record.offset + record.length - 1]
            alone = reader.read_record(line, record.offset, {}).messages
            texts = [message.text for message in record.messages]
            assert [message.text for message in alone[: len(texts)]] == texts
    if file.link:
        session.known |= {"parent_id": file.parent_id, "link": file.link}
    for sidecar in file.sidecars:
        if (root / sidecar).exists():
            session.known |= reader.read_sidecar(sidecar, (root / sidecar).read_bytes())


def _read_database(reader: Any, path: Path, sessions: dict[str, StoredSession]) -> None:
    if not reader.match_database(path.name):
        return
    with open_database(path) as (_, query):
        state: dict[str, Any] = {}
        while records := reader.read_changes(query, state, 50):
            for record in records:
                name = record.session_id or ""
                session = sessions.setdefault(name, StoredSession(name))
                session.records.append(record)
