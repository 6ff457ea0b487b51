"""The database itself: whose it is, its transactions, its few values beside the sessions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from session_core.models import Holder, HomeKind


class Database(Protocol):
    """The database itself."""

    @property
    def kind(self) -> HomeKind:
        """Whose home this is."""

    def home_id(self) -> str | None:
        """Return the name that a home of our own has had since it was made; others have none."""

    @property
    def folder(self) -> Path | None:
        """The folder of the home; None where the database is in no folder."""

    @property
    def path(self) -> Path | None:
        """The file of the database; None if it is in no file."""

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading alone."""

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """All that this task changes inside is one transaction, or nothing of it is.

        It belongs to one task and one thread. A change by another task of the thread is refused at
        once, one by another thread waits, and both read what is committed. A coroutine passes a
        function to `AsyncSessionDB.run` instead, which keeps the loop free.
        Where it is not `linked`, rows may refer to what is not there, as orphans that are put back.
        """

    @property
    def in_transaction(self) -> bool:
        """Whether this task has a transaction open in this thread."""

    def holders(self) -> list[Holder]:
        """Return the other processes that have it open, as far as this system tells."""

    def close(self) -> None:
        """Close it; what was returned before is durable."""

    def get_meta(self, key: str) -> str | None:
        """Return a value of `state_meta`."""

    def set_meta(self, key: str, value: str) -> None:
        """Store a value in `state_meta`."""

    def delete_meta(self, key: str) -> bool:
        """Forget a value of `state_meta`; return whether it was there."""
