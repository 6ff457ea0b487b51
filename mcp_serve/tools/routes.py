"""`routes_list`: which chat is in which session now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from mcp_serve import answer_size, render, schemas
from mcp_serve import arguments as given_as
from mcp_serve.arguments import format_time
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.render import drop_empty
from mcp_serve.tools.spec import ToolSpec
from session_core import SessionEntry

State = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]


class RoutesArguments(given_as.PageArguments):
    """The arguments of `routes_list`."""

    query: Annotated[given_as.Text, Field(description="Words in key and name.")] | None = None
    platform: Annotated[str, Field(max_length=100)] | None = None
    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def list_routes(home: ServedHome, given: RoutesArguments, asked: PagedQuery) -> dict[str, Any]:
    """Return routes, the one that was used last first, as many as fit."""
    behind = None if asked.place is None else tuple(asked.place)
    found = list(islice(_list_after(home, given, behind), given.limit + 1))

    def fetch(limit: int) -> dict[str, Any]:
        last = _get_sort_key(found[limit - 1][0]) if limit < len(found) else None
        shown = [render_route(home, entry, state) for entry, state in found[:limit]]
        return {"routes": shown, "next_cursor": asked.make_cursor(last)}

    return answer_size.fit_answer(fetch, "routes", given.limit)


def _list_after(
    home: ServedHome, given: RoutesArguments, behind: tuple[Any, ...] | None
) -> Iterator[tuple[SessionEntry, str]]:
    for entry in _find_matching(home, given):
        if behind is None or _get_sort_key(entry) > behind:
            state = home.store.find_route_state(entry)
            if given.state in (None, state):
                yield entry, state


def _find_matching(home: ServedHome, given: RoutesArguments) -> Iterator[SessionEntry]:
    words = [] if given.query is None else given.query.casefold().split()
    for entry in sorted(home.store.load_entries().values(), key=_get_sort_key):
        if given.platform is not None and str(entry.platform or "") != given.platform:
            continue
        text = f"{entry.key} {entry.display_name or ''}".casefold()
        if all(word in text for word in words):
            yield entry


def _get_sort_key(entry: SessionEntry) -> tuple[float, str]:
    return -entry.updated_at.timestamp(), entry.key


def render_route(home: ServedHome, entry: SessionEntry, state: str) -> dict[str, Any]:
    """Return a route: a chat, and the session that it is in."""
    return {
        "session_key": render.render_id(entry.key),
        "session_id": render.render_id(entry.session_id),
        "platform": render.render_line(home, entry.platform and str(entry.platform)),
        "state": state,
        "name": render.render_line(home, entry.display_name),
        "updated_at": format_time(entry.updated_at.timestamp()),
        **drop_empty(profile=home.profile),
    }


SPEC = ToolSpec(
    name="routes_list",
    title="List routes",
    description=(
        "List which chat (session_key, platform, name) is in which session now, and its state; "
        "the one that was used last first. Names are quoted material."
    ),
    arguments=RoutesArguments,
    answers=schemas.RoutesPage,
    run=list_routes,
    place=tuple[FiniteFloat, str],
)
