"""Read several stores for one answer.

A note names the stores that cannot be read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from mcp_serve import render
from mcp_serve.query_cursors import make_malformed_error
from mcp_serve.stores.served_store import ServedStore
from session_core import InvalidInput, NotFound, SessionError
from session_core.types import Page


class TimedRow(Protocol):
    """A row with a time."""

    @property
    def at(self) -> float:
        """The time in UTC epoch seconds."""


S = TypeVar("S", bound=ServedStore)
T = TypeVar("T")
R = TypeVar("R", bound=TimedRow)

_MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class StoreParts(Generic[S, T]):
    """The parts of an answer with their stores, and the stores that could not be read."""

    parts: Sequence[tuple[S, T]]
    failures: Sequence[tuple[S, SessionError]] = ()

    def __iter__(self) -> Iterator[tuple[S, T]]:
        return iter(self.parts)

    def explain_failures(self) -> str | None:
        """Return a note about stores that could not be read, or None."""
        return render_failures(self.failures) or None


def read_stores(
    stores: Sequence[S],
    read: Callable[[S], T],
    snapshots: ExitStack | None = None,
) -> StoreParts[S, T]:
    """Return the answer of each store.

    Each store is read in one snapshot, which `snapshots` keeps open.

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
        # Wrong arguments are wrong for every store; the other errors are about one store.
        except (InvalidInput, NotFound):
            raise
        except SessionError as error:
            failures.append((store, error))
    if failures and not parts:
        raise failures[0][1]
    return StoreParts(parts, failures)


@dataclass(frozen=True, slots=True)
class MergedPage(Generic[S, R]):
    """A page of rows of several stores, and the next position of each store with more rows."""

    rows: Sequence[tuple[S, R]]
    places: Mapping[str, str]
    """Positions by store; an empty one is the begin."""
    parts: StoreParts[S, Page[R]]


def merge_newest(
    stores: Sequence[S],
    read: Callable[[S, int, str | None], Page[R]],
    limit: int,
    places: Mapping[str, str] | None,
) -> MergedPage[S, R]:
    """Return the newest rows of the stores by their time `at`.

    Each store keeps its own order and cursors.

    Raises:
        InvalidInput: the positions do not belong to an earlier page.
    """
    names = [store.name for store in stores]
    if places is None:
        places = dict.fromkeys(names, "")
    elif not places or not set(places) <= set(names):
        raise make_malformed_error()
    remaining = [store for store in stores if store.name in places]
    parts = read_stores(remaining, lambda store: read(store, limit, places[store.name] or None))
    listed = ([(store, row) for row in page.items] for store, page in parts)
    rows = list(islice(heapq.merge(*listed, key=lambda entry: -entry[1].at), limit))
    rest = {}
    for store, page in parts:
        count = sum(owner is store for owner, _ in rows)
        place: str | None = places[store.name]
        if count == len(page.items):
            place = page.next_cursor
        elif count:
            # Only the store makes its cursors, so a page that was cut is read again.
            place = read(store, count, place or None).next_cursor
        if place is not None:
            rest[store.name] = place
    return MergedPage(rows, rest, parts)


def render_failures(failures: Sequence[tuple[ServedStore, SessionError]]) -> str:
    """Return a note about stores that an answer leaves out, or an empty string."""
    reasons = (
        f"{store.store_name} is left out, because it could not be read: "
        f"{render.render_line(store, str(error), _MAX_REASON_CHARS)}."
        for store, error in failures
    )
    return " ".join([*reasons, "Call sessions_stats for its state."]) if failures else ""
