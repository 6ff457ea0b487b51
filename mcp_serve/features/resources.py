"""Resources: the answers of the reading tools, addressed by URI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import INVALID_PARAMS, ListResourcesResult, Resource
from pydantic import FiniteFloat, PositiveInt

from mcp_serve import answer_size, error_messages, query_cursors, render
from mcp_serve.progress import CHECKS, run_in_thread
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.home_feed import (
    EventPosition,
    FeedState,
    find_changed_sessions,
    is_list_changed,
)
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.locate import find_session_store
from mcp_serve.stores.served_store import ServedStore, Summary
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tool_dispatcher import ToolDispatcher
from mcp_serve.tool_list import load_spec
from session_core import InvalidInput, NotFound, SessionError

MIME_TYPE = "application/json"
STATS, ROUTES = "sessions://stats", "sessions://routes"

_SESSION_PREFIX = "session://"
_LIST_METHOD = "resources/list"
_NEWEST_LIMIT = 50
_PAGE_ROWS = 25
_POSITION_TYPE = tuple[PositiveInt, tuple[FiniteFloat, str, str]]
_MAX_EVENTS = 500


def make_session_address(session_id: str) -> str:
    """Return the address of a session."""
    return f"{_SESSION_PREFIX}{quote(session_id, safe='')}"


def make_route_address(session_key: str) -> str:
    """Return the address of a route."""
    return f"route://{quote(session_key, safe='')}"


class Resources:
    """The resources of the served homes."""

    def __init__(self, served: ServedStores, caller: ToolDispatcher) -> None:
        self._served = served
        self._caller = caller
        self._heard: dict[str, EventPosition] = {}
        self._seen: dict[str, FeedState | None] = {}

    def register(self, server: MCPServer[Any]) -> None:
        """Register the URI templates and the fixed resources."""
        add = server.resource
        add("session://{session_id}", name="session", mime_type=MIME_TYPE)(self._read_session)
        address = "session://{session_id}/messages{?cursor,store}"
        add(address, name="messages", mime_type=MIME_TYPE)(self._read_messages)
        add("route://{session_key}", name="route", mime_type=MIME_TYPE)(self._read_route)
        fixed = {STATS: ("stats", self._read_stats), ROUTES: ("routes", self._read_routes)}
        for uri, (name, read) in fixed.items():
            add(uri, name=name, title=f"Session {name}", mime_type=MIME_TYPE)(read)

    async def list_page(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the newest conversations.

        The SDK adds the fixed resources to the last page.

        Raises:
            MCPError: the cursor is malformed.
        """
        try:
            resources, next_cursor = await run_in_thread(self._build_page, cursor)
        except InvalidInput as error:
            raise MCPError(
                INVALID_PARAMS, error_messages.explain_error(error) or "invalid cursor"
            ) from error
        return ListResourcesResult(resources=resources, next_cursor=next_cursor)

    def _build_page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        page_query = PagedQuery(_LIST_METHOD, {}, 0.0)
        if cursor is not None:
            page_query = query_cursors.parse_cursor(_LIST_METHOD, cursor, _POSITION_TYPE)
        listed_count, last_key = page_query.place or (0, None)
        newest = sorted(self._list_newest(), key=lambda entry: _get_sort_key(*entry))
        remaining = [
            entry for entry in newest if last_key is None or _get_sort_key(*entry) > last_key
        ]
        page = remaining[: min(_PAGE_ROWS, _NEWEST_LIMIT - listed_count)]
        has_more = len(remaining) > len(page) and listed_count + len(page) < _NEWEST_LIMIT
        next_cursor = (
            page_query.make_cursor([listed_count + len(page), _get_sort_key(*page[-1])])
            if has_more
            else None
        )
        return [self._render_entry(home, row) for home, row in page], next_cursor

    def _list_newest(self) -> list[tuple[ServedStore, Summary]]:
        """Return the newest conversations of each readable home."""
        newest: list[tuple[ServedStore, Summary]] = []
        for home in self._served.get_stores():
            with suppress(SessionError):  # `sessions://stats` reports a home that cannot be read
                page = home.list_sessions(limit=_NEWEST_LIMIT)
                newest += [(home, row) for row in page.items]
        return newest

    def _list_homes(self) -> Iterator[ServedHome]:
        return (self._served.get_home(name) for name in self._served.home_names)

    def _is_id_in_other_store(self, home: ServedStore, session_id: str) -> bool:
        """Return True if another store also has a session with this id."""
        for other in self._served.get_stores():
            with suppress(SessionError):
                if other is not home and other.match_session(session_id, exact=True) is not None:
                    return True
        return False

    def _render_entry(self, home: ServedStore, row: Summary) -> Resource:
        """Return the entry of a conversation, with an address that leads to its home."""
        title = render.render_line(home, row.title) or render.render_preview(home, row)
        name, address = title or row.id, make_session_address(row.id)
        store = home.find_shown_store(row.source)
        if store is None:
            return Resource(uri=address, name=name, mime_type=MIME_TYPE)
        if self._is_id_in_other_store(home, row.id):
            address = _make_messages_address(address, store)
        return Resource(uri=address, name=f"{store}: {name}", mime_type=MIME_TYPE)

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Watch the sessions of these addresses, however old they are."""
        session_addresses = (
            address for address in addresses if address.startswith(_SESSION_PREFIX)
        )
        sessions = [
            unquote(address.removeprefix(_SESSION_PREFIX).partition("/")[0])
            for address in session_addresses
        ]
        if sessions:
            await run_in_thread(self._follow_sessions, sessions, of=CHECKS)

    def _follow_sessions(self, sessions: Sequence[str]) -> None:
        for home in self._served.get_stores():
            with suppress(SessionError):
                for session in sessions[:_NEWEST_LIMIT]:
                    home.feed.follow_session(session)

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses changed since the last call, and True if lists have changed."""
        return await run_in_thread(self._collect_changes, of=CHECKS)

    def _collect_changes(self) -> tuple[list[str], bool]:
        changed: list[str] = []
        list_changed = False
        for home in self._served.get_stores():
            name = home.name
            try:
                position = self._heard.get(name) or home.feed.get_current_position(None)
                result = home.feed.read_events(position, _MAX_EVENTS)
            except SessionError:
                continue  # the next call tries this home again
            self._heard[name] = result.place
            if result.gap:  # the database was replaced or went back to an earlier state
                list_changed = True
                changed += [STATS, ROUTES]
            for event in result.events:
                changed += _list_changed_addresses(
                    event.get("store"), event["session_id"], event.get("session_key")
                )
                # A home compares its lists; a transcript store has events only.
                is_new = event["type"] == "session_started" and home.feed.seen is None
                list_changed = list_changed or is_new
            previous, current = self._seen.get(name), home.feed.seen
            self._seen[name] = current
            if previous is not None and current is not None and previous is not current:
                list_changed = list_changed or is_list_changed(previous, current)
                for session in find_changed_sessions(previous, current):
                    changed += _list_changed_addresses(home.store_name, session)
        return changed, list_changed

    async def _read_session(self, session_id: str) -> str:
        from mcp_serve.tools.read import render_session_row  # noqa: PLC0415 -- imported when a resource is first read

        def read() -> dict[str, Any]:
            several = len(self._served.names) > 1
            stores = self._served.get_stores()
            store = find_session_store(stores, session_id) if several else None
            return render_session_row(self._served.get_store(store), session_id)

        return answer_size.render_json(await _read_in_thread(read))

    async def _read_messages(self, session_id: str, cursor: str = "", store: str = "") -> str:
        arguments = {"session": session_id, "cursor": cursor or None, "store": store or None}
        return await self._call_tool("sessions_read", arguments)

    async def _read_route(self, session_key: str) -> str:
        from mcp_serve.tools.routes import render_route  # noqa: PLC0415 -- imported when a resource is first read

        def read_entry(home: ServedHome) -> dict[str, Any]:
            entry = None if session_key.startswith("_") else home.store.get(session_key)
            if entry is None:
                raise NotFound(f"no route {session_key!r:.100}; call routes_list for keys")
            return render_route(home, entry, home.store.find_route_state(entry))

        def read() -> dict[str, Any]:
            failures: list[SessionError] = []
            for home in self._list_homes():
                try:
                    return read_entry(home)
                except SessionError as error:
                    failures.append(error)
            # An unreadable home is a better explanation than a home without the route.
            raise min(failures, key=lambda error: isinstance(error, NotFound))

        return answer_size.render_json(await _read_in_thread(read))

    async def _read_stats(self) -> str:
        return await self._call_tool("sessions_stats", {})

    async def _read_routes(self) -> str:
        return await self._call_tool("routes_list", {})

    async def _call_tool(self, tool: str, arguments: dict[str, Any]) -> str:
        """Return the answer of a tool as the text of a resource."""
        try:
            spec = load_spec(tool)
            validated = dict(spec.arguments.read(arguments))
            return answer_size.render_json(await self._caller.call_tool(spec, validated))
        except Exception as error:
            raise _make_protocol_error(error) from error


async def _read_in_thread(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a function run in a thread, and raise our errors as protocol errors."""
    try:
        return await run_in_thread(read)
    except Exception as error:
        raise _make_protocol_error(error) from error


def _get_sort_key(home: ServedStore, row: Summary) -> tuple[float, str, str]:
    return -row.last_active_at, home.find_shown_store(row.source) or "", row.id


def _make_messages_address(address: str, store: str) -> str:
    return f"{address}/messages?store={quote(store, safe='')}"


def _make_protocol_error(error: Exception) -> Exception:
    """Return the protocol error for one of our errors."""
    message = error_messages.explain_error(error)
    if message is None:
        return error
    if isinstance(error, NotFound):
        return ResourceNotFoundError(message)
    if isinstance(error, (InvalidInput, ValueError)):
        return MCPError(INVALID_PARAMS, message)
    return ResourceError(message)


def _list_changed_addresses(
    store: str | None, session_id: str, session_key: str | None = None
) -> Iterator[str]:
    """Yield the addresses affected by a change of a session or of its route."""
    session = make_session_address(session_id)
    yield session
    yield f"{session}/messages"
    if store is not None:
        yield _make_messages_address(session, store)
    yield STATS
    if session_key is not None:
        yield make_route_address(session_key)
        yield ROUTES
