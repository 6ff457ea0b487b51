"""Rows as they are stored, known columns or not: what copies a session and undoes a change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol


class Rows(Protocol):
    """Rows as they are stored."""

    def copy_session(
        self,
        /,
        session_id: str,
        to_session_id: str,
        *,
        without: Collection[str] = (),
        **fields: Any,
    ) -> None:
        """Create a session with every column of another but these `fields`; it begins now.

        Columns that are left out get what a new session has there.
        """

    def put_session_fields(self, session_id: str, fields: Mapping[str, Any]) -> bool:
        """Set columns of a session, any that this home has, to what they were; for undo."""

    def belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]:
        """Return by table the rows that are deleted with a session, without its messages."""

    def routing_rows(self, session_id: str) -> list[dict[str, Any]]:
        """Return the routing rows that lead to a session, of every scope."""

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Put a routing row back as `routing_rows` returned it, in the place of the one there."""
