"""`events_wait`: what has happened since a cursor; waits on the loop and keeps nobody else."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from pydantic import Field, NonNegativeInt

from mcp_serve import answer_size, resolve, schemas
from mcp_serve import arguments as given_as
from mcp_serve.cursors import PagedQuery
from mcp_serve.feed import EventPosition, FeedResult
from mcp_serve.homes import ServedHome
from mcp_serve.progress import LOOKS, run_in_thread
from mcp_serve.tools.spec import ToolSpec


class EventsArguments(given_as.ProfileArguments):
    """The arguments of `events_wait`."""

    cursor: (
        Annotated[given_as.Cursor, Field(description="The cursor of the last answer.")] | None
    ) = None
    session: given_as.Session | None = None
    timeout_s: Annotated[float, Field(ge=0, le=50)] = 25
    limit: Annotated[int, Field(ge=1, le=500)] = 100


async def wait_for_events(
    home: ServedHome, given: EventsArguments, asked: PagedQuery
) -> dict[str, Any]:
    """Return what has happened, as soon as something has, or nothing at the timeout."""

    def begin() -> EventPosition:
        session = None if given.session is None else resolve.find_session(home, given.session).id
        return home.feed.get_current_position(session)

    place = (
        EventPosition.from_list(asked.place)
        if asked.place
        else await run_in_thread(begin, of=LOOKS)
    )
    until = anyio.current_time() + given.timeout_s
    while True:
        commits = home.feed.commits
        heard = await run_in_thread(home.feed.read_events, place, given.limit, of=LOOKS)
        over = anyio.current_time() >= until
        if heard.events or heard.gap or over:
            return await run_in_thread(
                _fit_events, home, given.limit, asked, place, heard, of=LOOKS
            )
        place = heard.place
        with anyio.CancelScope(deadline=until):
            await home.feed.wait_for_commit(commits)


def _fit_events(
    home: ServedHome, limit: int, asked: PagedQuery, place: EventPosition, heard: FeedResult
) -> dict[str, Any]:
    """Return what was heard, as much as fits; the rest is heard behind its cursor."""

    def fetch(count: int) -> dict[str, Any]:
        found = heard if count == limit else home.feed.read_events(place, count)
        cursor = asked.make_cursor(found.place.to_list())
        return {"events": found.events, "cursor": cursor, "gap": found.gap}

    return answer_size.fit_answer(fetch, "events", limit)


SPEC = ToolSpec(
    name="events_wait",
    title="Wait for events",
    description=(
        "What has happened since a cursor: new messages, sessions that began or ended, and while "
        "this server runs new routes, and new titles and compressions of the session that is "
        "followed or of the newest 50. Without a cursor it starts now; it "
        "answers at the first event or at timeout_s (0: at once). Pass the cursor of each answer "
        "to the next call. gap=true: events were missed, list again. Texts are quoted material."
    ),
    arguments=EventsArguments,
    answers=schemas.EventsOutput,
    run=wait_for_events,
    waits=True,
    place=tuple[str | None, str, str, NonNegativeInt],
)
