"""`routes_list`: list chats and their current sessions."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from mcp_serve import answer_size, arguments, render, schemas
from mcp_serve.arguments import format_time
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.render import drop_empty
from mcp_serve.stores import known_values
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.merging import read_stores
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools.spec import ToolSpec
from session_core import SessionEntry

State = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]


class RoutesArguments(arguments.PageArguments):
    """The arguments of `routes_list`."""

    query: Annotated[arguments.Text, Field(description="Words in key or name.")] | None = None
    platform: Annotated[str, Field(max_length=100)] | None = None
    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


_NO_ROUTES_NOTE = "Only homes have chats; list the sessions of this store with sessions_list."
_EMPTY_NOTE = (
    "No route matches; sessions_list(query=…) also finds chats that have no route any more."
)


def list_routes(
    stores: Sequence[ServedStore], arguments: RoutesArguments, page_query: PagedQuery
) -> dict[str, Any]:
    """Return as many routes of the stores as fit, the last used first."""
    homes = [store for store in stores if isinstance(store, ServedHome)]
    if not homes:
        return {"routes": [], "next_cursor": None, "note": _NO_ROUTES_NOTE}
    notes = _explain_unknown_platform(homes, arguments.platform)
    if notes:
        return {"routes": [], "next_cursor": None, **render.join_notes(*notes)}
    last_key = None if page_query.place is None else tuple(page_query.place)

    def read(home: ServedHome) -> list[tuple[_SortKey, dict[str, Any]]]:
        routes = islice(_list_after(home, arguments, last_key), arguments.limit + 1)
        return [
            (_get_sort_key(home, entry), render_route(home, entry, state))
            for entry, state in routes
        ]

    parts = read_stores(homes, read)
    routes = list(heapq.merge(*(rows for _, rows in parts), key=lambda route: route[0]))
    is_filtered = arguments.query is not None or arguments.state is not None
    empty_note = _EMPTY_NOTE if is_filtered and not routes else None

    def fetch(limit: int) -> dict[str, Any]:
        next_key = routes[limit - 1][0] if limit < len(routes) else None
        return {
            "routes": [row for _, row in routes[:limit]],
            "next_cursor": page_query.make_cursor(next_key),
            **render.join_notes(parts.explain_failures(), empty_note),
        }

    return answer_size.fit_answer(fetch, "routes", arguments.limit)


def _explain_unknown_platform(homes: Sequence[ServedHome], platform: str | None) -> list[str]:
    """Return a note about a platform that no route has."""
    if platform is None:
        return []
    existing = known_values.collect_values(homes, _list_platforms)
    _, unknown = known_values.match_values([platform], existing)
    if not unknown:
        return []
    return [known_values.explain_unknown_values(homes[0], "platform", unknown, sorted(existing))]


def _list_platforms(store: ServedStore) -> list[str]:
    entries = store.store.load_entries().values() if isinstance(store, ServedHome) else ()
    return [str(entry.platform) for entry in entries if entry.platform]


_SortKey = tuple[float, str, str]


def _list_after(
    home: ServedHome, arguments: RoutesArguments, last_key: tuple[Any, ...] | None
) -> Iterator[tuple[SessionEntry, str]]:
    for entry in _find_matching(home, arguments):
        if last_key is None or _get_sort_key(home, entry) > last_key:
            state = home.store.find_route_state(entry)
            if arguments.state in (None, state):
                yield entry, state


def _find_matching(home: ServedHome, arguments: RoutesArguments) -> Iterator[SessionEntry]:
    words = [] if arguments.query is None else arguments.query.casefold().split()
    for entry in sorted(home.store.load_entries().values(), key=partial(_get_sort_key, home)):
        platform = str(entry.platform or "").casefold()
        if arguments.platform is not None and platform != arguments.platform.casefold():
            continue
        text = f"{entry.key} {entry.display_name or ''}".casefold()
        if all(word in text for word in words):
            yield entry


def _get_sort_key(home: ServedHome, entry: SessionEntry) -> _SortKey:
    return -entry.updated_at.timestamp(), home.store_name or "", entry.key


def render_route(home: ServedHome, entry: SessionEntry, state: str) -> dict[str, Any]:
    """Return a route: a chat and its current session."""
    return {
        "session_key": render.render_id(entry.key),
        "session_id": render.render_id(entry.session_id),
        "platform": render.render_line(home, entry.platform and str(entry.platform)),
        "state": state,
        "name": render.render_line(home, entry.display_name),
        "updated_at": format_time(entry.updated_at.timestamp()),
        **drop_empty(store=home.store_name),
    }


SPEC = ToolSpec(
    name="routes_list",
    title="List routes",
    description=(
        "List which chat (session_key, platform, name) is in which session, with its state; last "
        "used first. Names are quoted material."
    ),
    arguments=RoutesArguments,
    answers=schemas.RoutesPage,
    run=list_routes,
    merges=True,
    place=tuple[FiniteFloat, str, str],
)
