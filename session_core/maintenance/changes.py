"""Columns of one row that a step writes, with what they were: written, kept, and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from session_core.ledger.records import Kept
from session_core.models import Raw
from session_core.state.contract import StateDatabase

CHANGE = "change"
"""What a change is kept as: table, key, before and after."""


@dataclass(frozen=True, slots=True)
class Change:
    """Columns of one row: what they were, and what they become."""

    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def name(self) -> str:
        """By which name its row is told."""
        return ", ".join(map(str, self.key.values()))

    def write(self, db: StateDatabase) -> None:
        """Write what they become.

        Raises:
            Changed: they are not any more what they were, or the row is gone.
        """
        db.change_row(self.table, self.key, self.before, self.after)

    def reversed(self) -> Change:
        """Return what takes this back."""
        return Change(self.table, self.key, self.after, self.before)

    def kept(self) -> Kept:
        """Return it as the trash has it."""
        value = {"table": self.table}
        mappings = {name: getattr(self, name) for name in ("key", "before", "after")}
        packed = {name: _packed(given) for name, given in mappings.items()}
        return Kept(CHANGE, {**value, **packed})

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Change:
        """Return what was kept."""
        table, *mappings = (value[field.name] for field in fields(cls))
        return cls(table, *map(_unpacked, mappings))


def _packed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"raw": value.stored} if isinstance(value, Raw) else value
        for name, value in given.items()
    }


def _unpacked(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: Raw(value["raw"]) if isinstance(value, dict) else value
        for name, value in given.items()
    }
