"""Reads of messages from their source, at the offsets that the index has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from session_core.transcripts.catalog import RootCatalog
from session_core.transcripts.database_feed import read_database_messages
from session_core.transcripts.file_feed import READER_ERRORS
from session_core.transcripts.format import FileFormat, Message
from session_core.transcripts.parts import hash_key
from session_core.transcripts.roots import is_database_format
from session_core.transcripts.sources import MAX_DOCUMENT_BYTES, Source
from session_core.types import MessageRow


class Place(NamedTuple):
    """The place of a message in its source, as the index has it."""

    number: int
    place: int
    length: int
    key: int | None


def read_messages(
    root: RootCatalog, path: str, session_id: str, places: Iterable[Place]
) -> dict[int, Message]:
    """Return messages of a session by their numbers. Changed messages are left out."""
    file = root.match_file(path)
    reader = root.root.format
    if file is None:
        return {}
    if is_database_format(reader):
        numbers = [(place.number, place.place) for place in places]
        return read_database_messages(
            reader, root.copies.open_snapshot, f"{root.root.path}/{path}", session_id, numbers
        )
    messages: dict[int, Message] = {}
    try:
        with root.copies.open_source(f"{root.root.path}/{path}", is_zstd=file.is_zstd) as source:
            records = _RecordReader(
                source, cast("FileFormat", reader), is_document=file.is_document
            )
            # In the order of the file, so that a record with several messages is read once.
            for place in sorted(places):
                message = records.read_message(place)
                if message is not None:
                    messages[place.number] = message
    except OSError:
        return {}
    return messages


class _RecordReader:
    """Reads records of an open file, and keeps the last record for its other messages."""

    def __init__(self, source: Source, reader: FileFormat, *, is_document: bool) -> None:
        self._source = source
        self._format = reader
        self._is_document = is_document
        self._offset = -1
        self._messages: Sequence[Message] = ()

    def read_message(self, place: Place) -> Message | None:
        offset = place.number - place.place
        if offset != self._offset:
            self._offset, self._messages = offset, self._read_record(offset, place.length)
        if place.place >= len(self._messages):
            return None
        message = self._messages[place.place]
        # The file may have been rewritten since, with another message at this place.
        is_same = place.key is None or (
            message.key is not None
            and (message.key.startswith("~") or hash_key(message.key) == place.key)
        )
        return message if is_same else None

    def _read_record(self, offset: int, length: int) -> Sequence[Message]:
        data = self._read_document() if self._is_document else self._read_line(offset, length)
        if data is None:
            return ()
        try:
            # Without a state: the text of a record depends on its line alone.
            return self._format.read_record(data, offset, {}).messages
        except READER_ERRORS:
            return ()

    def _read_document(self) -> bytes | None:
        data = self._source.read(0, MAX_DOCUMENT_BYTES + 1)
        return data if len(data) <= MAX_DOCUMENT_BYTES else None

    def _read_line(self, offset: int, length: int) -> bytes | None:
        """Return a line, or None if the file has other bytes at its place."""
        before = 1 if offset else 0
        data = self._source.read(offset - before, length + before)
        is_line = data.endswith(b"\n") and len(data) == length + before
        if not is_line or (before and data[:1] != b"\n"):
            return None
        return data[before:-1]


def build_message_row(
    message: Message, *, number: int, session_id: str, at: float, tool: str | None, compacted: bool
) -> MessageRow:
    """Build the row of a message, in the form that every store returns."""
    row: MessageRow = {
        "id": number,
        "session_id": session_id,
        "role": message.role,
        "content": _build_content(message),
        "tool_calls": [_build_call(call) for call in message.tool_calls] or None,
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name or (tool if message.role == "tool" else None),
        "timestamp": at,
        "reasoning": message.reasoning or None,
        "platform_message_id": message.key,
        "active": int(not compacted),
        "compacted": int(compacted),
    }
    return row


def _build_content(message: Message) -> Any:
    """Return the text, or a list of parts if the message has attachments."""
    if not message.attachments:
        return message.text
    text = [{"type": "text", "text": message.text}] if message.text else []
    attached = [
        {"type": part.kind, "name": part.name, "size": part.bytes} for part in message.attachments
    ]
    return [*text, *attached]


def _build_call(call: Any) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
