"""Our titles, pins and archive marks, as each statement that reads sessions sees them.

They are in a file of their own next to the index, so that a rebuild of the index keeps them;
`session_core.ledger.labels` writes it. A reading connection attaches the file and has a temporary
view `sessions`, which hides the table of that name and shows the labels in its columns.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from session_core import _sqlite3

FILE_NAME = "labels.db"
"""The name of the file in the folder of the index."""

_LABEL = (
    "(SELECT l.{name} FROM labels.labels l WHERE l.store = s.store AND l.session_id = s.session_id)"
)


class LabelView:
    """Shows the labels to a connection that has a table `sessions`."""

    def __init__(self, connection: _sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._file: tuple[int, int] | None = None
        self._create_view(is_attached=False)

    def is_outdated(self) -> bool:
        """Return True if the file was created, replaced or removed since `update`."""
        return _get_file_id(self._path) != self._file

    def update_view(self) -> None:
        """Attach the current file. Must not be called in a transaction."""
        file = _get_file_id(self._path)
        self._connection.execute("DROP VIEW temp.sessions")
        if self._file is not None:
            self._connection.execute("DETACH labels")
        is_attached = file is not None and self._attach_file()
        self._file = file if is_attached else None
        self._create_view(is_attached=is_attached)

    def _attach_file(self) -> bool:
        """Attach the file.

        Return False if it cannot be read or has no tables yet.
        """
        library = _sqlite3.load_library()
        # A damaged file hides the labels. An edit reports the error.
        with suppress(library.DatabaseError):
            self._connection.execute(
                "ATTACH ? AS labels", (f"{self._path.absolute().as_uri()}?mode=ro",)
            )
            try:
                # An attached file may still be damaged, or have no tables yet.
                self._connection.execute("SELECT count(archived) FROM labels.labels").fetchone()
            except BaseException:
                self._connection.execute("DETACH labels")
                raise
            return True
        return False

    def _create_view(self, *, is_attached: bool) -> None:
        columns = [
            _describe_column(row[1], is_attached=is_attached)
            for row in self._connection.execute("PRAGMA main.table_info(sessions)").fetchall()
        ]
        pinned = f"coalesce({_LABEL.format(name='pinned')}, 0)" if is_attached else "0"
        self._connection.execute(
            f"CREATE TEMP VIEW sessions AS SELECT {', '.join(columns)}, {pinned} AS pinned"  # noqa: S608 -- the names are columns of our schema
            " FROM main.sessions s"
        )


def _describe_column(name: str, *, is_attached: bool) -> str:
    if is_attached and name in ("title", "archived"):
        return f"coalesce({_LABEL.format(name=name)}, s.{name}) AS {name}"
    return f"s.{name}"


def _get_file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
