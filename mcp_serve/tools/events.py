"""`events_wait`: return the events since a cursor; the wait occupies no thread."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from pydantic import Field, NonNegativeInt

from mcp_serve import answer_size, arguments, resolve, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.feed import EventPosition, FeedResult
from mcp_serve.homes import ServedHome
from mcp_serve.progress import LOOKS, run_in_thread
from mcp_serve.tools.spec import ToolSpec


class EventsArguments(arguments.StoreArguments):
    """The arguments of `events_wait`."""

    cursor: (
        Annotated[arguments.Cursor, Field(description="The cursor of the last answer.")] | None
    ) = None
    session: arguments.Session | None = None
    timeout_s: Annotated[float, Field(ge=0, le=50)] = 25
    limit: Annotated[int, Field(ge=1, le=500)] = 100


async def wait_for_events(
    home: ServedHome, arguments: EventsArguments, page_query: PagedQuery
) -> dict[str, Any]:
    """Return events as soon as there are any, or none at the timeout."""

    def find_start() -> EventPosition:
        session = (
            None if arguments.session is None else resolve.find_session(home, arguments.session).id
        )
        return home.feed.get_current_position(session)

    position = (
        EventPosition.from_list(page_query.place)
        if page_query.place
        else await run_in_thread(find_start, of=LOOKS)
    )
    deadline = anyio.current_time() + arguments.timeout_s
    while True:
        commits = home.feed.commits
        result = await run_in_thread(home.feed.read_events, position, arguments.limit, of=LOOKS)
        is_over = anyio.current_time() >= deadline
        if result.events or result.gap or is_over:
            return await run_in_thread(
                _fit_events, home, arguments.limit, page_query, position, result, of=LOOKS
            )
        position = result.place
        with anyio.CancelScope(deadline=deadline):
            await home.feed.wait_for_commit(commits)


def _fit_events(
    home: ServedHome,
    limit: int,
    page_query: PagedQuery,
    position: EventPosition,
    result: FeedResult,
) -> dict[str, Any]:
    """Return as many events as fit; the cursor leads to the rest."""

    def fetch(count: int) -> dict[str, Any]:
        page = result if count == limit else home.feed.read_events(position, count)
        cursor = page_query.make_cursor(page.place.to_list())
        return {"events": page.events, "cursor": cursor, "gap": page.gap}

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
    place=tuple[str | None, str, str, NonNegativeInt],
)
