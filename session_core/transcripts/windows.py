"""Windows of messages, from the rows of the index or read in place.

Indexing a file of gigabytes takes minutes. Message ids are file offsets, so that a page near the
end, or next to a known id, can be read without the bytes before it. Such a page does not contain
the changes that an earlier part or a rewind makes to its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from session_core.errors import InvalidInput
from session_core.transcripts.catalog import Catalog, RootCatalog
from session_core.transcripts.file_feed import READER_ERRORS
from session_core.transcripts.format import FileFormat, Message
from session_core.transcripts.index import Index
from session_core.transcripts.parts import ROLE_MASK, ROLES
from session_core.transcripts.sources import MAX_LINE_BYTES, LineReader, Source
from session_core.transcripts.texts import Place, build_message_row, read_messages
from session_core.types import MessageRow, MessageView, MessageWindow

if TYPE_CHECKING:
    from session_core.transcripts.listing import SummaryRow

_SELECT = (
    "SELECT m.number, m.place, m.length, m.at, m.flags, t.name, m.key"
    " FROM messages m LEFT JOIN tools t ON t.id = m.tool WHERE m.session = ?"
)

_FIRST_BYTES = 1_000_000
_MAX_BYTES = 32_000_000
_GROWTH = 4
_BACK_BYTES = 65_536


class WindowReader:
    """Reads the messages of sessions in the order of their numbers."""

    def __init__(self, index: Index, catalog: Catalog) -> None:
        self._index = index
        self._catalog = catalog

    def read_window(
        self,
        row: dict[str, Any],
        *,
        before: int | None,
        after: int | None,
        around: int | None,
        limit: int,
        roles: Sequence[str] | None,
        view: MessageView,
    ) -> MessageWindow:
        """Return messages next to a number, or the newest messages without a number."""
        sql, values = _SELECT, [row["id"]]
        if roles is not None:
            numbers = [ROLES.index(role.lower()) for role in roles if role.lower() in ROLES]
            sql += f" AND m.flags & {ROLE_MASK} IN ({', '.join('?' * len(numbers))})"
            values += numbers
        compacted_to = self._get_compacted_to(row)
        if view == "live" and compacted_to:
            sql += " AND m.number >= ?"
            values.append(compacted_to)
        if around is not None:
            half = limit // 2
            earlier, more_before = self._read_rows(sql, values, "<", around, half)
            later, more_after = self._read_rows(sql, values, ">=", around, limit - half)
            rows = earlier + later
        elif after is not None:
            rows, more_after = self._read_rows(sql, values, ">", after, limit)
            more_before = True
        else:
            newest = 2**62 if before is None else before
            rows, more_before = self._read_rows(sql, values, "<", newest, limit)
            more_after = before is not None
        messages = self._read_texts(row, rows, compacted_to)
        return MessageWindow(messages, more_before, more_after)

    def find_message(self, row: dict[str, Any], number: int) -> MessageRow | None:
        """Return a message by its id, or None."""
        messages = self.find_messages(row, [number])
        return messages[0] if messages else None

    def find_messages(self, row: dict[str, Any], numbers: Sequence[int]) -> list[MessageRow]:
        """Return messages of a session by their ids."""
        marks = ", ".join("?" * len(numbers))
        rows = self._index.read(f"{_SELECT} AND m.number IN ({marks})", (row["id"], *numbers))
        return self._read_texts(row, rows, self._get_compacted_to(row))

    def read_texts(
        self, source_id: int, session_id: str, places: Iterable[Place]
    ) -> dict[int, Message]:
        """Return messages of a session by their numbers.

        `session_id` is the native id.
        """
        place = self._catalog.find_source(source_id)
        return {} if place is None else read_messages(*place, session_id, places)

    def _get_compacted_to(self, row: dict[str, Any]) -> int:
        rows = self._index.read("SELECT compacted_to FROM sessions WHERE id = ?", (row["id"],))
        return int(rows[0][0]) if rows else 0

    def _read_rows(
        self, sql: str, values: Sequence[Any], sign: str, number: int, limit: int
    ) -> tuple[list[Any], bool]:
        """Return up to `limit` rows on one side of a number, and whether more exist."""
        order = "DESC" if sign == "<" else "ASC"
        statement = f"{sql} AND m.number {sign} ? ORDER BY m.number {order} LIMIT ?"
        # One row more than the limit, to know if more follow.
        rows = self._index.read(statement, (*values, number, limit + 1))
        kept = rows[:limit]
        return (kept[::-1] if sign == "<" else kept), len(rows) > limit

    def _read_texts(
        self, row: dict[str, Any], rows: Sequence[Any], compacted_to: int
    ) -> list[MessageRow]:
        places = [
            Place(place_row[0], place_row[1], place_row[2], place_row[6]) for place_row in rows
        ]
        messages = self.read_texts(row["source_id"], row["native_id"], places)
        return [
            build_message_row(
                messages[number],
                number=number,
                session_id=row["session_id"],
                at=(row["active_at"] if at is None else at) / 1000,
                tool=tool,
                compacted=number < compacted_to,
            )
            for number, _, _, at, _, tool, _ in rows
            # Bytes that have changed or gone since they were indexed give no message.
            if number in messages
        ]


def check_window(*positions: int | None) -> None:
    """Raise `InvalidInput` for more than one position, or for an invalid message id."""
    passed = [position for position in positions if position is not None]
    if len(passed) > 1:
        raise InvalidInput("pass only one of before, after and around")
    if not all(isinstance(position, int) for position in passed):
        raise InvalidInput(f"a message id must be an integer, got {passed[0]!r:.40}")


class UnreadPart:
    """The part of a file after an offset, which is not indexed yet."""

    def __init__(self, root: RootCatalog, path: str, row: SummaryRow, offset: int) -> None:
        self._root = root
        self._path = path
        self._row = row
        self._offset = offset

    @property
    def first_id(self) -> int:
        """The lowest id that a message of this part can have."""
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
        """Return messages next to an id, or the newest messages without an id.

        Return None if the index has the page, or if the file cannot be read in place.
        """
        first = None if after is None else after + 1
        position = next(
            (candidate for candidate in (before, first, around) if candidate is not None), None
        )
        if position is not None and position < self._offset:
            return None
        file = self._root.match_file(self._path)
        # Only files of plain lines can be read from their middle.
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
        """Return the last messages whose ids are below `end`."""
        size = _FIRST_BYTES
        while True:
            start = max(self._offset, end - size)
            # The read may begin inside of a line, whose rest has no meaning of its own.
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
                        # Removed first, so that the message moves to its new place in the order.
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
    """Return the offset after the first newline from `start` on."""
    at = start
    while at < end:
        data = source.read(at, min(_BACK_BYTES, end - at))
        newline_at = data.find(b"\n")
        if newline_at >= 0:
            return at + newline_at + 1
        if not data:
            break
        at += len(data)
    return end


def _find_line_begin(source: Source, position: int, low: int) -> int:
    """Return the start of the line at `position`, at most the longest line back."""
    at = position
    while at > low and position - at < MAX_LINE_BYTES:
        start = max(low, at - _BACK_BYTES)
        data = source.read(start, at - start)
        newline_at = data.rfind(b"\n")
        if newline_at >= 0:
            return start + newline_at + 1
        at = start
    return at
