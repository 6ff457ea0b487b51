"""`routes_list`: which chat is in which session now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from mcp_serve import answer_size, render, schemas
from mcp_serve import arguments as given_as
from mcp_serve.arguments import iso
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.render import said
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
    found = list(islice(_behind(home, given, behind), given.limit + 1))

    def fetch(limit: int) -> dict[str, Any]:
        last = _order(found[limit - 1][0]) if limit < len(found) else None
        shown = [row(home, entry, state) for entry, state in found[:limit]]
        return {"routes": shown, "next_cursor": asked.at(last)}

    return answer_size.fit(fetch, "routes", given.limit)


def _behind(
    home: Home, given: RoutesArguments, behind: tuple[Any, ...] | None
) -> Iterator[tuple[SessionEntry, str]]:
    for entry in _matching(home, given):
        if behind is None or _order(entry) > behind:
            state = home.store.state_of(entry)
            if given.state in (None, state):
                yield entry, state


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
        "session_key": render.name(entry.key),
        "session_id": render.name(entry.session_id),
        "platform": render.one_line(home, entry.platform and str(entry.platform)),
        "state": state,
        "name": render.one_line(home, entry.display_name),
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
    answers=schemas.RoutesPage,
    run=list_routes,
    place=tuple[FiniteFloat, str],
)
