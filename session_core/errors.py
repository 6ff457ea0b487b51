"""The exceptions of the library.

SessionError
├── InvalidInput (ValueError)      an argument is wrong; nothing was changed
├── NotFound (LookupError)         no such session, message or database
├── Conflict                       another writer was first
│   ├── Changed                    the data has changed since it was read
│   └── TitleTaken (ValueError)    another session has this title
├── Busy                           the write lock was not available in time
├── Denied                         not permitted here
├── Unsupported                    not supported by this home
└── StorageError                   the database operation failed
    ├── StorageFull                the disk is full
    └── Corrupt                    the file is damaged, encrypted or not a database

Messages are lower case without a full stop and name the problem, the value and the next step.
They never contain SQL, the text of a transcript or a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class BlockingCallWarning(RuntimeWarning):
    """A blocking database call was made on an event loop."""


class SessionError(Exception):
    """The base class of the exceptions of this library."""

    def __reduce__(self) -> tuple[Callable[..., SessionError], tuple[Any, ...]]:
        """Return the parts of a copy, so that errors can be pickled."""
        return _rebuild_error, (type(self), self.args, vars(self))


def _rebuild_error(kind: type[SessionError], args: Any, state: Mapping[str, Any]) -> SessionError:
    """Return a copy of an error without calling its `__init__`."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(SessionError, ValueError):
    """An argument is wrong, and nothing was changed."""


class NotFound(SessionError, LookupError):
    """The object does not exist.

    `nearest` lists similar ids.
    """

    def __init__(self, message: str, *, nearest: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


class Conflict(SessionError):
    """Another writer was first, and nothing was changed."""


class Changed(Conflict):
    """The data has changed since the change was planned."""


class TitleTaken(Conflict, ValueError):
    """Another session has this title.

    `holder` is the id of that session.
    """

    def __init__(self, title: str, holder: str) -> None:
        super().__init__(
            f"title {title!r} is already in use by session {holder}; choose another, "
            "or the next of its lineage"
        )
        self.title = title
        self.holder = holder


class Busy(SessionError):
    """The write lock was not available in time.

    `holders` lists the processes that hold it.
    """

    def __init__(self, message: str, *, holders: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.holders = tuple(holders)


class Denied(SessionError):
    """The operation is not permitted here."""


class Unsupported(SessionError):
    """The home does not support the operation."""


class StorageError(SessionError):
    """The database operation failed.

    The previous data is still there, except that a change whose last sync failed may have been
    stored: read it again before you retry.
    """


class StorageFull(StorageError):
    """The disk is full."""


class Corrupt(StorageError):
    """The file is damaged, encrypted, or not a session database."""
