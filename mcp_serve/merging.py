"""Read several stores for one answer; a store that cannot be read is named in a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mcp_serve import render
from mcp_serve.served_store import ServedStore
from session_core import InvalidInput, NotFound, SessionError

S = TypeVar("S", bound=ServedStore)
T = TypeVar("T")

_MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class StoreParts(Generic[S, T]):
    """The parts of an answer, each with its store, and the stores that could not be read."""

    parts: Sequence[tuple[S, T]]
    failures: Sequence[tuple[S, SessionError]] = ()

    def __iter__(self) -> Iterator[tuple[S, T]]:
        return iter(self.parts)

    def render_note(self) -> dict[str, Any]:
        """Return the note about stores that could not be read, as a field of an answer."""
        return render.drop_empty(note=render_failures(self.failures) or None)


def read_stores(
    stores: Sequence[S],
    read: Callable[[S], T],
    snapshots: ExitStack | None = None,
) -> StoreParts[S, T]:
    """Return what each store answers; each shows one moment, which `snapshots` keeps open.

    Raises:
        InvalidInput, NotFound: the arguments are wrong.
        SessionError: no store could be read.
    """
    parts: list[tuple[S, T]] = []
    failures: list[tuple[S, SessionError]] = []
    for store in stores:
        try:
            with nullcontext(snapshots) if snapshots else ExitStack() as opened:
                opened.enter_context(store.open_snapshot())
                parts.append((store, read(store)))
        except (InvalidInput, NotFound):
            raise
        except SessionError as error:
            failures.append((store, error))
    if failures and not parts:
        raise failures[0][1]
    return StoreParts(parts, failures)


def render_failures(failures: Sequence[tuple[ServedStore, SessionError]]) -> str:
    """Return a note about stores that an answer leaves out, or an empty string."""
    reasons = (
        f"{store.store_name} is left out, because it could not be read: "
        f"{render.render_line(store, str(error), _MAX_REASON_CHARS)}."
        for store, error in failures
    )
    return " ".join([*reasons, "Call sessions_stats for its state."]) if failures else ""
