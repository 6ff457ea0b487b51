"""Windows of messages: the rows of the index, and their text from the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from session_core.errors import InvalidInput
from session_core.transcripts.catalog import Catalog
from session_core.transcripts.format import Message
from session_core.transcripts.index import Index
from session_core.transcripts.parts import ROLE_MASK, ROLES
from session_core.transcripts.texts import Place, build_message_row, read_messages
from session_core.types import MessageRow, MessageView, MessageWindow

_SELECT = (
    "SELECT m.number, m.place, m.length, m.at, m.flags, t.name, m.key"
    " FROM messages m LEFT JOIN tools t ON t.id = m.tool WHERE m.session = ?"
)


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
        """Return messages next to a number, or the newest ones without one."""
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
        """Return one message by its id, or None."""
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
        """Return messages of one session, by the agent's own id of it, by their numbers."""
        place = self._catalog.find_source(source_id)
        return {} if place is None else read_messages(*place, session_id, places)

    def _get_compacted_to(self, row: dict[str, Any]) -> int:
        found = self._index.read("SELECT compacted_to FROM sessions WHERE id = ?", (row["id"],))
        return int(found[0][0]) if found else 0

    def _read_rows(
        self, sql: str, values: Sequence[Any], sign: str, number: int, limit: int
    ) -> tuple[list[Any], bool]:
        """Return up to `limit` rows on one side of a number, in order, and if there are more."""
        order = "DESC" if sign == "<" else "ASC"
        statement = f"{sql} AND m.number {sign} ? ORDER BY m.number {order} LIMIT ?"
        rows = self._index.read(statement, (*values, number, limit + 1))
        kept = rows[:limit]
        return (kept[::-1] if sign == "<" else kept), len(rows) > limit

    def _read_texts(
        self, row: dict[str, Any], rows: Sequence[Any], compacted_to: int
    ) -> list[MessageRow]:
        places = [Place(found[0], found[1], found[2], found[6]) for found in rows]
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
            if number in messages
        ]


def check_window(*positions: int | None) -> None:
    """Refuse more than one position, and positions that are no message id."""
    passed = [position for position in positions if position is not None]
    if len(passed) > 1:
        raise InvalidInput("pass only one of before, after and around")
    if not all(isinstance(position, int) for position in passed):
        raise InvalidInput(f"a message id must be an integer, got {passed[0]!r:.40}")
