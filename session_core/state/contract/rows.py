"""Rows as they are stored, known columns or not: what copies a session and undoes a change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from session_core.models import Images, Put, Revision


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

    def routing_rows(self, *session_ids: str) -> list[dict[str, Any]]:
        """Return the routing rows that lead to one of these sessions, of every scope."""

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Put a routing row back as `routing_rows` returned it, in the place of the one there."""

    def session_images(self, session_id: str) -> list[Images]:
        """Return a session's row and all that belongs to it but its messages, as stored.

        What it refers to in other tables comes as `shared`. Of a session that is not there it is
        what was left behind.
        """

    def message_images(self, session_id: str, after: int | None, room: int) -> tuple[Images, bool]:
        """Return the next messages by id up to `room` bytes, at least one; and if there are more.

        None is before all of them. A row counts 200 bytes more than it holds.
        """

    def referring_images(self, images: Iterable[Images]) -> list[Images]:
        """Return the rows of other tables whose foreign keys lead to these, as stored.

        Theirs too, each once. Who deletes the latter has them deleted or emptied, or is refused.
        """

    def row_images(self, table: str, where: Mapping[str, Any]) -> Images:
        """Return the rows of a table with these values; none where this home has no such table."""

    def remove_messages(
        self,
        removed: Mapping[str, tuple[Sequence[int], Revision]],
        imaged: Iterable[Images] = (),
    ) -> dict[str, Revision]:
        """Delete messages of sessions that are still at a revision; return the revisions after.

        All in one call, since a search index pays for each. The counters stay as they are.
        `imaged` is what they were: where anything was written since, they are compared.

        Raises:
            Changed: a session is at another revision, has not all of them, one is not as in its
                image, others refer to one, or a rule of this home refuses it.
        """

    def remove_rows(self, removed: Iterable[Images]) -> None:
        """Delete rows that are still as they were imaged, in any order; shared ones stay.

        Raises:
            Changed: one of them is not as in its image, others belong or refer to it, or a rule of
                this home refuses it.
        """

    def change_row(
        self,
        table: str,
        key: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Set columns of the row with a key which has `before` in some columns.

        Raises:
            Changed: it has not, there is no such row, or a rule of this home refuses it.
        """

    def put_images(self, images: Iterable[Images], *, of: Collection[str] | None = None) -> Put:
        """Put rows back where they are not, in any order; say what was there and what did not fit.

        A row that is there and equal is present. One whose key somebody else has is refused, as is
        one that needs what is gone. A title that was taken, and a parent that is gone, are left out
        of their row, and so is what this home has no column for. In a transaction that is not
        linked nothing needs what is gone. With `of` rows that are of none of these sessions are
        refused: that is for what somebody else has written.
        """
