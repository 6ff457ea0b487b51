"""`routes_list`: which chat is in which session now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import budget, rows, shapes
from mcp_serve.answers import said
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.times import iso
from mcp_serve.tools.spec import Spec
from session_core import SessionEntry

State = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]


class RoutesArguments(given_as.Listing):
    """The arguments of `routes_list`."""

    query: Annotated[given_as.Text, Field(description="Words in key and name.")] | None = None
    platform: Annotated[str, Field(max_length=100)] | None = None
    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


def list_routes(home: Home, given: RoutesArguments, asked: Asked) -> dict[str, Any]:
    """Return routes, the one that was used last first, as many as fit."""
    behind = None if asked.place is None else tuple(asked.place)
    found: list[dict[str, Any]] = []
    room, place = budget.DEFAULT - 600, behind
    for entry in _matching(home, given):
        if behind is not None and _order(entry) <= behind:
            continue
        state = home.store.state_of(entry)
        if given.state is not None and state != given.state:
            continue
        shown = row(home, entry, state)
        room -= budget.size(shown) + 1
        if found and (room < 0 or len(found) == given.limit):
            return {"routes": found, "next_cursor": asked.at(place)}
        found.append(shown)
        place = _order(entry)
    return {"routes": found, "next_cursor": None}


def _matching(home: Home, given: RoutesArguments) -> Iterator[SessionEntry]:
    words = [] if given.query is None else given.query.casefold().split()
    for entry in sorted(home.store.entries().values(), key=_order):
        if given.platform is not None and str(entry.platform or "") != given.platform:
            continue
        text = f"{entry.key} {entry.display_name or ''}".casefold()
        if all(word in text for word in words):
            yield entry


def _order(entry: SessionEntry) -> tuple[float, str]:
    return -entry.updated_at.timestamp(), entry.key


def row(home: Home, entry: SessionEntry, state: str) -> dict[str, Any]:
    """Return a route: a chat, and the session that it is in."""
    return {
        "session_key": entry.key,
        "session_id": entry.session_id,
        "platform": None if entry.platform is None else str(entry.platform),
        "state": state,
        "name": rows.one_line(home, entry.display_name),
        "updated_at": iso(entry.updated_at.timestamp()),
        **said(profile=home.profile),
    }


SPEC = Spec(
    name="routes_list",
    title="List routes",
    description=(
        "List which chat (session_key, platform, name) is in which session now, and its state; "
        "the one that was used last first. Names are quoted material."
    ),
    arguments=RoutesArguments,
    answers=shapes.RoutesPage,
    run=list_routes,
)
