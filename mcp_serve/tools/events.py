"""`events_wait`: return the events since a cursor, waiting without a thread."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from pydantic import Field, NonNegativeInt

from mcp_serve import answer_size, arguments, schemas
from mcp_serve.progress import CHECKS, run_in_thread
from mcp_serve.query_cursors import PagedQuery, make_malformed_error
from mcp_serve.render import drop_empty
from mcp_serve.stores import session_lookup
from mcp_serve.stores.home_feed import EventPosition
from mcp_serve.stores.merging import render_failures
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools.spec import ToolSpec
from session_core import SessionError


class EventsArguments(arguments.StoreArguments):
    """The arguments of `events_wait`."""

    cursor: (
        Annotated[arguments.Cursor, Field(description="The cursor of the last answer.")] | None
    ) = None
    session: arguments.Session | None = None
    timeout_s: Annotated[float, Field(ge=0, le=50)] = 25
    limit: Annotated[int, Field(ge=1, le=500)] = 100


async def wait_for_events(
    stores: Sequence[ServedStore], arguments: EventsArguments, page_query: PagedQuery
) -> dict[str, Any]:
    """Return events as soon as there are any, or none at the timeout."""
    positions = await run_in_thread(_find_start, stores, arguments, page_query, of=CHECKS)
    deadline = anyio.current_time() + arguments.timeout_s
    while True:
        commits = [home.feed.commits for home in stores]
        result = await run_in_thread(_read_events, stores, positions, arguments.limit, of=CHECKS)
        if result.events or result.gap or anyio.current_time() >= deadline:
            return await run_in_thread(
                _fit_events, stores, arguments.limit, page_query, positions, result, of=CHECKS
            )
        positions = result.positions
        with anyio.CancelScope(deadline=deadline):
            await _wait_for_any_commit(stores, commits)


Positions = dict[str, EventPosition]


@dataclass(frozen=True, slots=True)
class MergedEvents:
    """The events of several stores since their positions, and the positions after them."""

    events: list[dict[str, Any]]
    positions: Positions
    gap: bool
    failures: list[tuple[ServedStore, SessionError]]


def _find_start(
    stores: Sequence[ServedStore], arguments: EventsArguments, page_query: PagedQuery
) -> Positions:
    """Return the positions of a cursor, or the current positions."""
    if page_query.place is not None:
        if page_query.place.keys().isdisjoint(home.store_name or "" for home in stores):
            raise make_malformed_error()
        return {name: EventPosition.from_list(place) for name, place in page_query.place.items()}
    positions: Positions = {}
    failures: list[SessionError] = []
    for home in stores:
        try:
            session = arguments.session and session_lookup.find_session(home, arguments.session).id
            positions[home.store_name or ""] = home.feed.get_current_position(session)
        except SessionError as error:
            failures.append(error)
    if failures and not positions:
        raise failures[0]
    return positions


def _read_events(stores: Sequence[ServedStore], positions: Positions, limit: int) -> MergedEvents:
    """Return up to `limit` events, with a share for each store.

    A store without a position begins now.
    """
    streams: list[list[dict[str, Any]]] = []
    reached: Positions = {}
    failures: list[tuple[ServedStore, SessionError]] = []
    is_gap, room = False, limit
    for number, home in enumerate(stores):
        name = home.store_name or ""
        share = room // (len(stores) - number)
        if name in positions and not share:
            reached[name] = positions[name]
            continue
        try:
            position = positions.get(name) or home.feed.get_current_position(None)
            result = home.feed.read_events(position, max(share, 1))
        except SessionError as error:
            failures.append((home, error))
            reached |= {name: positions[name]} if name in positions else {}
            continue
        streams.append(result.events)
        reached[name] = result.place
        is_gap, room = is_gap or result.gap, room - len(result.events)
    if len(failures) == len(stores):
        raise failures[0][1]
    events = list(heapq.merge(*streams, key=lambda event: event["at"] or ""))
    return MergedEvents(events, reached, is_gap, failures)


async def _wait_for_any_commit(stores: Sequence[ServedStore], commits: Sequence[int]) -> None:
    """Return after a commit in any of the stores."""
    async with anyio.create_task_group() as tasks:

        async def wait_for_commit(home: ServedStore, count: int) -> None:
            with suppress(SessionError):  # a store that cannot be read has no events
                await home.feed.wait_for_commit(count)
                tasks.cancel_scope.cancel()

        for home, count in zip(stores, commits, strict=True):
            tasks.start_soon(wait_for_commit, home, count)


def _fit_events(
    stores: Sequence[ServedStore],
    limit: int,
    page_query: PagedQuery,
    positions: Positions,
    result: MergedEvents,
) -> dict[str, Any]:
    """Return as many events as fit, with a cursor for the rest."""

    def fetch(count: int) -> dict[str, Any]:
        page = result if count == limit else _read_events(stores, positions, count)
        places = {name: position.to_list() for name, position in page.positions.items()}
        return {
            "events": page.events,
            "cursor": page_query.make_cursor(places),
            "gap": page.gap,
            **drop_empty(note=render_failures(page.failures) or None),
        }

    return answer_size.fit_answer(fetch, "events", limit)


SPEC = ToolSpec(
    name="events_wait",
    title="Wait for events",
    description=(
        "Return events since a cursor: messages, session starts and ends and, while this server "
        "runs, route changes, and title changes and compressions of the given session or the "
        "newest 50. Without cursor it starts now. It returns at the first event or after "
        "timeout_s (0: at once). Pass the cursor of each answer to the next call. gap=true: "
        "events were missed, list again. Texts are quoted material."
    ),
    arguments=EventsArguments,
    answers=schemas.EventsOutput,
    run=wait_for_events,
    waits=True,
    place=dict[str, tuple[str | None, str, str, NonNegativeInt]],
    merges=True,
)
