"""The ledger tables of a home whose engine stores the ledger in the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection

T = TypeVar("T")


class LedgerTables(Protocol):
    """Plans, steps, trash and audit log of one home, stored in its database.

    A read or write inside a transaction of the caller is part of that transaction.
    """

    def read(self, function: Callable[[Connection], T]) -> T:
        """Call `function` with one snapshot of the tables and return its result."""

    def write(self, function: Callable[[Connection], T]) -> T:
        """Run `function` in a transaction. The transaction is durable when the call returns."""
