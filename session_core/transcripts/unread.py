"""Messages of a file beyond the part that is indexed, read in place for one page.

A file of gigabytes takes minutes to index. Ids are offsets, so a page near its end, or next to an
id that is known, is read without all that lies before it. Such a page does not know what an earlier
part or a rewind says about its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from session_core.transcripts.file_feed import READER_ERRORS
from session_core.transcripts.format import FileFormat, Message
from session_core.transcripts.sources import MAX_LINE_BYTES, LineReader, Source
from session_core.transcripts.texts import build_message_row
from session_core.types import MessageRow, MessageWindow

if TYPE_CHECKING:
    from session_core.transcripts.catalog import RootCatalog
    from session_core.transcripts.listing import SummaryRow

_FIRST_BYTES = 1_000_000
_MAX_BYTES = 32_000_000
_GROWTH = 4
_BACK_BYTES = 65_536


class UnreadPart:
    """The part of a file from an offset on."""

    def __init__(self, root: RootCatalog, path: str, row: SummaryRow, offset: int) -> None:
        self._root = root
        self._path = path
        self._row = row
        self._offset = offset

    @property
    def first_id(self) -> int:
        """The lowest id that a message of this part may have."""
        return self._offset

    def read_window(
        self,
        *,
        before: int | None,
        after: int | None,
        around: int | None,
        limit: int,
        roles: Sequence[str] | None,
    ) -> MessageWindow | None:
        """Return messages next to an id, or the newest ones; None if the index has the page."""
        first = None if after is None else after + 1
        position = next((one for one in (before, first, around) if one is not None), None)
        if position is not None and position < self._offset:
            return None
        file = self._root.match_file(self._path)
        if file is None or file.is_document or file.is_zstd:
            return None
        wanted = None if roles is None else {role.lower() for role in roles}
        try:
            with self._root.copies.open_source(f"{self._root.root.path}/{self._path}") as source:
                size = source.identity.size
                if after is not None:
                    later, is_more = self._read_after(source, after + 1, limit, wanted)
                    return MessageWindow(later, more_before=True, more_after=is_more)
                if around is None:
                    end = size if before is None else before
                    rows = self._read_before(source, end, limit, wanted)
                    is_more = before is not None
                    return (
                        MessageWindow(rows, more_before=True, more_after=is_more) if rows else None
                    )
                half = limit // 2
                earlier = self._read_before(source, around, half, wanted) if half else []
                later, is_more = self._read_after(source, around, limit - half, wanted)
                return MessageWindow([*earlier, *later], more_before=True, more_after=is_more)
        except OSError:
            return None

    def _read_before(
        self, source: Source, end: int, limit: int, roles: set[str] | None
    ) -> list[MessageRow]:
        """Return the last messages with ids below an end."""
        size = _FIRST_BYTES
        while True:
            start = max(self._offset, end - size)
            begin = start if start == self._offset else _find_line_end(source, start, end)
            rows = self._read_rows(source, begin, end, roles, lambda _: False)
            rows = [row for row in rows if row["id"] < end]
            if len(rows) >= limit or start == self._offset or size >= _MAX_BYTES:
                return rows[-limit:]
            size *= _GROWTH

    def _read_after(
        self, source: Source, first: int, limit: int, roles: set[str] | None
    ) -> tuple[list[MessageRow], bool]:
        """Return the first messages with ids from `first` on, and whether more may follow."""
        begin = _find_line_begin(source, first, self._offset)
        size = source.identity.size
        end = min(size, begin + _MAX_BYTES)

        def is_enough(rows: Sequence[MessageRow]) -> bool:
            return sum(row["id"] >= first for row in rows) > limit

        rows = self._read_rows(source, begin, end, roles, is_enough)
        later = [row for row in rows if row["id"] >= first]
        return later[:limit], len(later) > limit or end < size

    def _read_rows(
        self,
        source: Source,
        begin: int,
        end: int,
        roles: set[str] | None,
        is_enough: Callable[[Sequence[MessageRow]], bool],
    ) -> list[MessageRow]:
        reader = LineReader(source, begin, 0, max(begin, end))
        rows: dict[str | int, MessageRow] = {}
        while lines := reader.read_lines():
            for line in lines:
                if line.is_cut or not line.data.strip():
                    continue
                for place, message in enumerate(self._parse_line(line.data, line.offset)):
                    number, key = line.offset + place, message.key or line.offset + place
                    # Of repeated messages the first counts, unless the format replaces it.
                    is_wanted = roles is None or message.role in roles
                    if is_wanted and (key not in rows or message.replaces):
                        rows.pop(key, None)
                        rows[key] = self._make_row(message, number)
            if is_enough(list(rows.values())):
                break
        return list(rows.values())

    def _parse_line(self, data: bytes, offset: int) -> Sequence[Message]:
        try:
            return cast("FileFormat", self._root.root.format).read_record(data, offset, {}).messages
        except READER_ERRORS:
            return ()

    def _make_row(self, message: Message, number: int) -> MessageRow:
        at = self._row["active_at"] / 1000 if message.at is None else message.at
        return build_message_row(
            message,
            number=number,
            session_id=self._row["session_id"],
            at=at,
            tool=message.tool_name,
            compacted=False,
        )


def _find_line_end(source: Source, start: int, end: int) -> int:
    """Return the offset behind the first newline from a start on."""
    at = start
    while at < end:
        data = source.read(at, min(_BACK_BYTES, end - at))
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        if not data:
            break
        at += len(data)
    return end


def _find_line_begin(source: Source, position: int, low: int) -> int:
    """Return where the line of a position begins, no further back than a line may be long."""
    at = position
    while at > low and position - at < MAX_LINE_BYTES:
        start = max(low, at - _BACK_BYTES)
        data = source.read(start, at - start)
        found = data.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return at
