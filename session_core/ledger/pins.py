"""Pins of a home whose `sessions` table has no column for them, stored in its state folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from session_core.ledger.database import PACKAGE
from session_core.ledger.database_location import open_ledger_database
from session_core.ledger.state_folder import PINS_FILE, StateFolder
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import Connection
from session_core.types import SessionSummary

if TYPE_CHECKING:
    from typing_extensions import Self

SQL = sql_blocks.load_blocks("pins", PACKAGE)

_BUSY_TIMEOUT_S = 5.0


class Pins:
    """The sessions of one home that were pinned with this program.

    Every process sees them.
    """

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._file = open_ledger_database(
            folder, self._find_path, self._make_path, _BUSY_TIMEOUT_S, schema="pins_schema"
        )

    def list_pinned(self) -> frozenset[str]:
        """Return the ids of pinned sessions."""
        if self._find_path() is None:
            return frozenset()
        return self._file.read(
            lambda rows: frozenset(
                str(session_id) for (session_id,) in rows.fetch_tuples(SQL["list_pins"])
            )
        )

    def set_pins(self, pinned: Mapping[str, bool]) -> None:
        """Pin or unpin sessions."""

        def write_pins(rows: Connection) -> None:
            for session_id, is_pinned in pinned.items():
                rows.execute_update(SQL["put_pin" if is_pinned else "delete_pin"], (session_id,))

        # To unpin in a home without pins creates no file.
        if any(pinned.values()) or self._find_path() is not None:
            self._file.write(write_pins)

    def apply_pins(self, summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
        """Return session summaries with these pins applied."""
        pinned = self.list_pinned()
        return [
            summary
            if pinned.isdisjoint((summary.id, summary.root_id))
            else replace(summary, pinned=True)
            for summary in summaries
        ]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _find_path(self) -> Path | None:
        folder = self._folder.find()
        return folder / PINS_FILE if folder and self._folder.has_pins() else None

    def _make_path(self) -> Path:
        return self._folder.make() / PINS_FILE
