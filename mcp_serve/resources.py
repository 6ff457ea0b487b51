"""Resources: the answers of the reading tools under an address."""

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

from mcp_serve import answer_size, cursors, errors, render
from mcp_serve.cursors import PagedQuery
from mcp_serve.dispatch import ToolDispatcher
from mcp_serve.feed import EventPosition, FeedState, find_changed_sessions, is_list_changed
from mcp_serve.homes import ServedHome
from mcp_serve.profiles import ServedProfiles
from mcp_serve.progress import LOOKS, run_in_thread
from mcp_serve.tools import read as tools_read
from mcp_serve.tools import routes, stats
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, NotFound, SessionError, SessionSummary

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
    """The resources of what is served."""

    def __init__(self, served: ServedProfiles, caller: ToolDispatcher) -> None:
        self._served = served
        self._caller = caller
        self._heard: dict[str, EventPosition] = {}
        self._seen: dict[str, FeedState | None] = {}

    def register(self, server: MCPServer[Any]) -> None:
        """Add the templates, and the fixed resources as templates without a gap."""
        add = server.resource
        add("session://{session_id}", name="session", mime_type=MIME_TYPE)(self._read_session)
        address = "session://{session_id}/messages{?cursor,profile}"
        add(address, name="messages", mime_type=MIME_TYPE)(self._read_messages)
        add("route://{session_key}", name="route", mime_type=MIME_TYPE)(self._read_route)
        fixed = {STATS: ("stats", self._read_stats), ROUTES: ("routes", self._read_routes)}
        for uri, (name, read) in fixed.items():
            add(uri, name=name, title=f"Session {name}", mime_type=MIME_TYPE)(read)

    async def list_page(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the newest conversations; the fixed ones are on the last.

        Raises:
            MCPError: the cursor is none of ours.
        """
        try:
            listed, following = await run_in_thread(self._build_page, cursor)
        except InvalidInput as error:
            raise MCPError(
                INVALID_PARAMS, errors.explain_error(error) or "invalid cursor"
            ) from error
        return ListResourcesResult(resources=listed, next_cursor=following)

    def _build_page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        asked = PagedQuery(_LIST_METHOD, {}, 0.0)
        if cursor is not None:
            asked = cursors.parse_cursor(_LIST_METHOD, cursor, _POSITION_TYPE)
        done, behind = asked.place or (0, None)
        newest = sorted(self._list_newest(), key=lambda each: _get_sort_key(*each))
        left = [each for each in newest if behind is None or _get_sort_key(*each) > behind]
        shown = left[: min(_PAGE_ROWS, _NEWEST_LIMIT - done)]
        more = len(left) > len(shown) and done + len(shown) < _NEWEST_LIMIT
        following = (
            asked.make_cursor([done + len(shown), _get_sort_key(*shown[-1])]) if more else None
        )
        return [self._render_entry(home, found) for home, found in shown], following

    def _list_newest(self) -> list[tuple[ServedHome, SessionSummary]]:
        """Return the newest conversations of each home that can be read.

        What is wrong with another is said by `sessions://stats`, which is listed in any case.
        """
        newest: list[tuple[ServedHome, SessionSummary]] = []
        for home in self._list_homes():
            with suppress(SessionError):
                page = home.db.list_sessions(limit=_NEWEST_LIMIT)
                newest += [(home, found) for found in page.items]
        return newest

    def _list_homes(self) -> Iterator[ServedHome]:
        return (self._served.get_home(name) for name in self._served.names)

    def _find_home(self, session_id: str) -> ServedHome | None:
        """Return the first home with this session, which its address means."""
        for home in self._list_homes():
            with suppress(SessionError):
                if home.db.get_session(session_id) is not None:
                    return home
        return None

    def _render_entry(self, home: ServedHome, found: SessionSummary) -> Resource:
        """Return the entry of a conversation, under an address that means this one."""
        title = render.render_line(home, found.title) or render.render_preview(
            home.db, found, redacts=home.redacts
        )
        name, address = title or found.id, make_session_address(found.id)
        if home.profile is None:
            return Resource(uri=address, name=name, mime_type=MIME_TYPE)
        if self._find_home(found.id) is not home:
            address = _make_messages_address(address, home.profile)
        return Resource(uri=address, name=f"{home.profile}: {name}", mime_type=MIME_TYPE)

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Look from now on also at the sessions of these addresses, be they as old as they may."""
        named = (each for each in addresses if each.startswith(_SESSION_PREFIX))
        sessions = [unquote(each.removeprefix(_SESSION_PREFIX).partition("/")[0]) for each in named]
        if sessions:
            await run_in_thread(self._follow_sessions, sessions, of=LOOKS)

    def _follow_sessions(self, sessions: Sequence[str]) -> None:
        for home in self._list_homes():
            with suppress(SessionError):
                for session in sessions[:_NEWEST_LIMIT]:
                    home.feed.follow_session(session)

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses of what has changed since it was asked, and whether lists have."""
        return await run_in_thread(self._collect_changes, of=LOOKS)

    def _collect_changes(self) -> tuple[list[str], bool]:
        changed: list[str] = []
        listed = False
        for name in self._served.names:
            home = self._served.get_home(name)
            try:
                place = self._heard.get(name) or home.feed.get_current_position(None)
                heard = home.feed.read_events(place, _MAX_EVENTS)
            except SessionError:
                continue  # a home that cannot be read just now is looked at again
            self._heard[name] = heard.place
            if heard.gap:  # another database, or an earlier state of it
                listed = True
                changed += [STATS, ROUTES]
            for event in heard.events:
                changed += _list_changed_addresses(
                    home, event["session_id"], event.get("session_key")
                )
            before, after = self._seen.get(name), home.feed.seen
            self._seen[name] = after
            if before is not None and after is not None and before is not after:
                listed = listed or is_list_changed(before, after)
                for session in find_changed_sessions(before, after):
                    changed += _list_changed_addresses(home, session)
        return changed, listed

    async def _read_session(self, session_id: str) -> str:
        def read(home: ServedHome) -> dict[str, Any]:
            return tools_read.render_session_row(home, session_id)

        return answer_size.render_json(await self._read_first_home(read))

    async def _read_messages(self, session_id: str, cursor: str = "", profile: str = "") -> str:
        given = {"session": session_id, "cursor": cursor or None, "profile": profile or None}
        if not (cursor or profile):
            holder = await run_in_thread(self._find_home, session_id)
            given["profile"] = None if holder is None else holder.profile
        return await self._call_tool(tools_read.SPEC, given)

    async def _read_route(self, session_key: str) -> str:
        def read(home: ServedHome) -> dict[str, Any]:
            entry = None if session_key.startswith("_") else home.store.get(session_key)
            if entry is None:
                raise NotFound(f"no route {session_key!r:.100}; call routes_list for keys")
            return routes.render_route(home, entry, home.store.find_route_state(entry))

        return answer_size.render_json(await self._read_first_home(read))

    async def _read_stats(self) -> str:
        return await self._call_tool(stats.SPEC, {})

    async def _read_routes(self) -> str:
        return await self._call_tool(routes.SPEC, {})

    async def _call_tool(self, spec: ToolSpec, given: dict[str, Any]) -> str:
        """Return what a tool answers, which is what the resource says."""
        try:
            arguments = spec.arguments.read(given).model_dump_one_level()
            return answer_size.render_json(await self._caller.get_answer(spec, arguments))
        except Exception as error:
            raise _make_protocol_error(error) from error

    async def _read_first_home(
        self, read: Callable[[ServedHome], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return what the first home has that has it."""

        def look() -> dict[str, Any]:
            failed: list[SessionError] = []
            for home in self._list_homes():
                try:
                    return read(home)
                except SessionError as error:
                    failed.append(error)
            # That a home cannot be read says more than that another has nothing.
            raise min(failed, key=lambda error: isinstance(error, NotFound))

        try:
            return await run_in_thread(look)
        except Exception as error:
            raise _make_protocol_error(error) from error


def _get_sort_key(home: ServedHome, found: SessionSummary) -> tuple[float, str, str]:
    return -found.last_active_at, home.profile or "", found.id


def _make_messages_address(address: str, profile: str) -> str:
    return f"{address}/messages?profile={quote(profile, safe='')}"


def _make_protocol_error(error: Exception) -> Exception:
    """Return the error of the protocol for one of ours."""
    said = errors.explain_error(error)
    if said is None:
        return error
    if isinstance(error, NotFound):
        return ResourceNotFoundError(said)
    if isinstance(error, (InvalidInput, ValueError)):
        return MCPError(INVALID_PARAMS, said)
    return ResourceError(said)


def _list_changed_addresses(
    home: ServedHome, session_id: str, session_key: str | None = None
) -> Iterator[str]:
    """Yield the addresses of what a change of a session, or of the route to it, changes."""
    session = make_session_address(session_id)
    yield session
    yield f"{session}/messages"
    if home.profile is not None:
        yield _make_messages_address(session, home.profile)
    yield STATS
    if session_key is not None:
        yield make_route_address(session_key)
        yield ROUTES
