"""Pins of a home whose sessions have no column for them: in its state folder, durable at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.state_folder import StateFolder
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection
from session_core.types import SessionSummary

if TYPE_CHECKING:
    from typing_extensions import Self

SQL = sql_blocks.load_blocks("pins", PACKAGE)

_PINS_FILE = "pins.db"
_BUSY_TIMEOUT_S = 5.0


class Pins:
    """The sessions of one home that are pinned by us; every process sees them."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._file = LedgerDatabase(
            self._find_path, self._make_path, _BUSY_TIMEOUT_S, schema="pins_schema"
        )

    def list_pinned(self) -> frozenset[str]:
        """Return the sessions that are pinned."""
        if self._find_path() is None:
            return frozenset()
        return self._file.read(
            lambda rows: frozenset(str(each) for (each,) in rows.fetch_tuples(SQL["list_pins"]))
        )

    def set_pins(self, pinned: Mapping[str, bool]) -> None:
        """Pin sessions, or no longer; those that are as they should be stay so."""

        def step(rows: Connection) -> None:
            for session_id, wanted in pinned.items():
                rows.run_change(SQL["put_pin" if wanted else "delete_pin"], (session_id,))

        if any(pinned.values()) or self._find_path() is not None:
            self._file.write(step)

    def show_pins(self, summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
        """Return the lines of a list with our pins, of which a state database knows nothing."""
        pinned = self.list_pinned()
        return [
            each if pinned.isdisjoint((each.id, each.root_id)) else replace(each, pinned=True)
            for each in summaries
        ]

    def close(self) -> None:
        """Close its file."""
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
        path = folder / _PINS_FILE if folder else None
        return path if path and path.exists() else None

    def _make_path(self) -> Path:
        return self._folder.make() / _PINS_FILE
