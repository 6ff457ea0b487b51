"""The location of a ledger in the database of its home, for homes without files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from session_core.errors import InvalidInput, Unsupported
from session_core.ledger.database import LedgerDatabase
from session_core.ledger.state_folder import StateFolder
from session_core.state.protocol import StateDatabase


class DatabaseLedgerLocation(StateFolder):
    """The location of a ledger in its database, in place of a state folder.

    Nothing is stored outside of the database.
    """

    has_files = False

    def __init__(self, label: str) -> None:
        self.label = Path(label)
        """Stands for paths in errors; no file has it."""
        self.db_path = self.label

    @abstractmethod
    def open_tables(self, schema: str) -> LedgerDatabase:
        """Return the tables of a schema, which all ledgers of the home share."""

    @abstractmethod
    def is_of_home(self, db: StateDatabase) -> bool:
        """Return True if this is the location of the ledger of a database."""

    def load_home_name(self, db: StateDatabase) -> None:
        """Check that this is the ledger of a database.

        Raises:
            InvalidInput: it belongs to another one.
        """
        if not self.is_of_home(db):
            raise InvalidInput(
                "the ledger of a database without a file cannot be used for another one; "
                "open it with Ledger.open(db)"
            )

    def find(self) -> Path | None:
        """Return a label, as if the folder existed."""
        return self.label

    def make(self) -> Path:
        """Return a label, as if the folder existed."""
        return self.label

    @property
    def place(self) -> Path:
        """Return a label, which is not the path of a folder."""
        return self.label

    @property
    def is_adjacent(self) -> bool:
        """Return False, since there is no folder."""
        return False

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Refuse a folder for trash, which would not follow its database.

        Raises:
            Unsupported: there is one.
        """
        if trash_dir is not None:
            raise Unsupported("the trash of this home stays in its database; omit trash_dir")


def open_ledger_database(
    folder: StateFolder,
    find: Callable[[], Path | None],
    make: Callable[[], Path],
    patience_s: float,
    *,
    schema: str = "schema",
) -> LedgerDatabase:
    """Return the tables of a ledger, in a file of its folder or in the database of its home."""
    if isinstance(folder, DatabaseLedgerLocation):
        return folder.open_tables(schema)
    return LedgerDatabase(find, make, patience_s, schema=schema)
