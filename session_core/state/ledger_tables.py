"""Tables of the ledger in the database of a home, for engines that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection

T = TypeVar("T")


class LedgerTables(Protocol):
    """Plans, steps, trash and audit log of one home, in the transactions of its database.

    A read or write in a transaction of the caller is part of it.
    """

    def read(self, look: Callable[[Connection], T]) -> T:
        """Run `look` on one snapshot of the tables."""

    def write(self, step: Callable[[Connection], T]) -> T:
        """Run `step` in a transaction, which is durable when this returns."""
