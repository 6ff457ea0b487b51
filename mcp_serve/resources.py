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
from mcp_serve.cursors import Asked
from mcp_serve.dispatch import Caller
from mcp_serve.feed import Place, Seen, relisted, touched
from mcp_serve.homes import Home
from mcp_serve.profiles import Served
from mcp_serve.progress import LOOKS, in_thread
from mcp_serve.tools import read as tools_read
from mcp_serve.tools import routes, stats
from mcp_serve.tools.spec import Spec
from session_core import InvalidInput, NotFound, SessionError, SessionSummary

MIME = "application/json"
STATS, ROUTES = "sessions://stats", "sessions://routes"

_SESSION = "session://"
_LIST = "resources/list"
_NEWEST = 50
_PAGE = 25
_PLACE = tuple[PositiveInt, tuple[FiniteFloat, str, str]]
_EVENTS = 500


def address_of_session(session_id: str) -> str:
    """Return the address of a session."""
    return f"{_SESSION}{quote(session_id, safe='')}"


def address_of_route(session_key: str) -> str:
    """Return the address of a route."""
    return f"route://{quote(session_key, safe='')}"


class Resources:
    """The resources of what is served."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._served = served
        self._caller = caller
        self._heard: dict[str, Place] = {}
        self._seen: dict[str, Seen | None] = {}

    def register(self, server: MCPServer[Any]) -> None:
        """Add the templates, and the fixed resources as templates without a gap."""
        add = server.resource
        add("session://{session_id}", name="session", mime_type=MIME)(self._session)
        address = "session://{session_id}/messages{?cursor,profile}"
        add(address, name="messages", mime_type=MIME)(self._messages)
        add("route://{session_key}", name="route", mime_type=MIME)(self._route)
        fixed = {STATS: ("stats", self._stats), ROUTES: ("routes", self._routes)}
        for uri, (name, read) in fixed.items():
            add(uri, name=name, title=f"Session {name}", mime_type=MIME)(read)

    async def page(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the newest conversations; the fixed ones are on the last.

        Raises:
            MCPError: the cursor is none of ours.
        """
        try:
            listed, following = await in_thread(self._page, cursor)
        except InvalidInput as error:
            raise MCPError(INVALID_PARAMS, errors.explain(error) or "invalid cursor") from error
        return ListResourcesResult(resources=listed, next_cursor=following)

    def _page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        asked = Asked(_LIST, {}, 0.0)
        if cursor is not None:
            asked = cursors.opened(_LIST, cursor, _PLACE)
        done, behind = asked.place or (0, None)
        newest = sorted(self._newest(), key=lambda each: _order(*each))
        left = [each for each in newest if behind is None or _order(*each) > behind]
        shown = left[: min(_PAGE, _NEWEST - done)]
        more = len(left) > len(shown) and done + len(shown) < _NEWEST
        following = asked.at([done + len(shown), _order(*shown[-1])]) if more else None
        return [self._listed(home, found) for home, found in shown], following

    def _newest(self) -> list[tuple[Home, SessionSummary]]:
        """Return the newest conversations of each home that can be read.

        What is wrong with another is said by `sessions://stats`, which is listed in any case.
        """
        newest: list[tuple[Home, SessionSummary]] = []
        for home in self._homes():
            with suppress(SessionError):
                page = home.db.list_sessions(limit=_NEWEST)
                newest += [(home, found) for found in page.items]
        return newest

    def _homes(self) -> Iterator[Home]:
        return (self._served.home(name) for name in self._served.names)

    def _holder(self, session_id: str) -> Home | None:
        """Return the first home with this session, which its address means."""
        for home in self._homes():
            with suppress(SessionError):
                if home.db.get_session(session_id) is not None:
                    return home
        return None

    def _listed(self, home: Home, found: SessionSummary) -> Resource:
        """Return the entry of a conversation, under an address that means this one."""
        title = render.one_line(home, found.title) or render.preview(
            home.db, found, redacts=home.redacts
        )
        name, address = title or found.id, address_of_session(found.id)
        if home.profile is None:
            return Resource(uri=address, name=name, mime_type=MIME)
        if self._holder(found.id) is not home:
            address = _messages_of(address, home.profile)
        return Resource(uri=address, name=f"{home.profile}: {name}", mime_type=MIME)

    async def follow(self, addresses: Sequence[str]) -> None:
        """Look from now on also at the sessions of these addresses, be they as old as they may."""
        named = (each for each in addresses if each.startswith(_SESSION))
        sessions = [unquote(each.removeprefix(_SESSION).partition("/")[0]) for each in named]
        if sessions:
            await in_thread(self._follow, sessions, of=LOOKS)

    def _follow(self, sessions: Sequence[str]) -> None:
        for home in self._homes():
            with suppress(SessionError):
                for session in sessions[:_NEWEST]:
                    home.feed.follow(session)

    async def changes(self) -> tuple[list[str], bool]:
        """Return the addresses of what has changed since it was asked, and whether lists have."""
        return await in_thread(self._changes, of=LOOKS)

    def _changes(self) -> tuple[list[str], bool]:
        changed: list[str] = []
        listed = False
        for name in self._served.names:
            home = self._served.home(name)
            try:
                place = self._heard.get(name) or home.feed.begin(None)
                heard = home.feed.since(place, _EVENTS)
            except SessionError:
                continue  # a home that cannot be read just now is looked at again
            self._heard[name] = heard.place
            if heard.gap:  # another database, or an earlier state of it
                listed = True
                changed += [STATS, ROUTES]
            for event in heard.events:
                changed += _touched(home, event["session_id"], event.get("session_key"))
            before, after = self._seen.get(name), home.feed.seen
            self._seen[name] = after
            if before is not None and after is not None and before is not after:
                listed = listed or relisted(before, after)
                for session in touched(before, after):
                    changed += _touched(home, session)
        return changed, listed

    async def _session(self, session_id: str) -> str:
        def read(home: Home) -> dict[str, Any]:
            return tools_read.session_row(home, session_id)

        return answer_size.render(await self._anywhere(read))

    async def _messages(self, session_id: str, cursor: str = "", profile: str = "") -> str:
        given = {"session": session_id, "cursor": cursor or None, "profile": profile or None}
        if not (cursor or profile):
            holder = await in_thread(self._holder, session_id)
            given["profile"] = None if holder is None else holder.profile
        return await self._answer(tools_read.SPEC, given)

    async def _route(self, session_key: str) -> str:
        def read(home: Home) -> dict[str, Any]:
            entry = None if session_key.startswith("_") else home.store.get(session_key)
            if entry is None:
                raise NotFound(f"no route {session_key!r:.100}; call routes_list for keys")
            return routes.row(home, entry, home.store.state_of(entry))

        return answer_size.render(await self._anywhere(read))

    async def _stats(self) -> str:
        return await self._answer(stats.SPEC, {})

    async def _routes(self) -> str:
        return await self._answer(routes.SPEC, {})

    async def _answer(self, spec: Spec, given: dict[str, Any]) -> str:
        """Return what a tool answers, which is what the resource says."""
        try:
            arguments = spec.arguments.read(given).model_dump_one_level()
            return answer_size.render(await self._caller.ask(spec, arguments))
        except Exception as error:
            raise _refusal(error) from error

    async def _anywhere(self, read: Callable[[Home], dict[str, Any]]) -> dict[str, Any]:
        """Return what the first home has that has it."""

        def look() -> dict[str, Any]:
            failed: list[SessionError] = []
            for home in self._homes():
                try:
                    return read(home)
                except SessionError as error:
                    failed.append(error)
            # That a home cannot be read says more than that another has nothing.
            raise min(failed, key=lambda error: isinstance(error, NotFound))

        try:
            return await in_thread(look)
        except Exception as error:
            raise _refusal(error) from error


def _order(home: Home, found: SessionSummary) -> tuple[float, str, str]:
    return -found.last_active_at, home.profile or "", found.id


def _messages_of(address: str, profile: str) -> str:
    return f"{address}/messages?profile={quote(profile, safe='')}"


def _refusal(error: Exception) -> Exception:
    """Return the error of the protocol for one of ours."""
    said = errors.explain(error)
    if said is None:
        return error
    if isinstance(error, NotFound):
        return ResourceNotFoundError(said)
    if isinstance(error, (InvalidInput, ValueError)):
        return MCPError(INVALID_PARAMS, said)
    return ResourceError(said)


def _touched(home: Home, session_id: str, session_key: str | None = None) -> Iterator[str]:
    """Yield the addresses of what a change of a session, or of the route to it, changes."""
    session = address_of_session(session_id)
    yield session
    yield f"{session}/messages"
    if home.profile is not None:
        yield _messages_of(session, home.profile)
    yield STATS
    if session_key is not None:
        yield address_of_route(session_key)
        yield ROUTES
