"""Every error of the library, in one tree.

SessionError
├── InvalidInput (ValueError)      an argument is wrong; nothing was changed
├── NotFound (LookupError)         no such session, message or database
├── Conflict                       somebody else was first
│   ├── Changed                    something is no longer what it was when it was looked at
│   └── TitleTaken (ValueError)    another session has this title
├── Busy                           the write lock was not to be had in time
├── Denied                         not permitted here
├── Unsupported                    this home cannot do that
└── StorageError                   the database could not do what it was told
    ├── StorageFull                no room on the disk
    └── Corrupt                    the file is damaged, encrypted or no database

Messages are lower case without a full stop: what is wrong, which id, what to do next.
They never contain SQL, the text of a transcript or a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class BlockingCallWarning(RuntimeWarning):
    """A call that waits for the database is made on an event loop, which it blocks."""


class SessionError(Exception):
    """The root of the errors of this library."""

    def __reduce__(self) -> tuple[Callable[..., SessionError], tuple[Any, ...]]:
        """Return what a copy is made of, as one that goes to another process."""
        return _rebuild_error, (type(self), self.args, vars(self))


def _rebuild_error(kind: type[SessionError], args: Any, state: Mapping[str, Any]) -> SessionError:
    """Return a copy of an error, whatever arguments its class takes."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidInput(SessionError, ValueError):
    """An argument is wrong, and nothing was changed."""


class NotFound(SessionError, LookupError):
    """There is no such thing; `nearest` has what may have been meant."""

    def __init__(self, message: str, *, nearest: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


class Conflict(SessionError):
    """Somebody else was first, and nothing was changed."""


class Changed(Conflict):
    """What is about to be changed is no longer what it was when that was decided."""


class TitleTaken(Conflict, ValueError):
    """Another session has this title; `holder` is its id."""

    def __init__(self, title: str, holder: str) -> None:
        super().__init__(
            f"title {title!r} is already in use by session {holder}; choose another, "
            "or the next of its lineage"
        )
        self.title = title
        self.holder = holder


class Busy(SessionError):
    """The write lock was not to be had in time; `holders` are the processes to ask."""

    def __init__(self, message: str, *, holders: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.holders = tuple(holders)


class Denied(SessionError):
    """That is not permitted here."""


class Unsupported(SessionError):
    """This home cannot do that."""


class StorageError(SessionError):
    """The database could not do what it was told.

    What was there before is still there, except that a change whose last sync failed may have been
    kept: read again before you try again.
    """


class StorageFull(StorageError):
    """There is no room left on the disk."""


class Corrupt(StorageError):
    """The file is damaged, encrypted, or no session database at all."""
