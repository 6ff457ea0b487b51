"""Completions: ids and titles of sessions, sources, session keys and projects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from mcp.types import Completion

from mcp_serve import render
from mcp_serve.homes import Home
from mcp_serve.profiles import Served
from mcp_serve.progress import in_thread
from session_core import SessionError, SessionFilter

_MOST = 100
_LOOKED_AT = 200


class Completions:
    """Completes arguments of prompts and templates by their name."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def of(self, argument: str, typed: str) -> Completion:
        """Return what begins with, or contains, what was typed; the newest first."""
        find = _BY_ARGUMENT.get(argument)
        if find is None:
            return Completion(values=[])
        return await in_thread(self._found, find, typed)

    def _found(self, find: Callable[[Home, str], Iterator[str]], typed: str) -> Completion:
        found: list[str] = []
        for name in self._served.names:
            with suppress(SessionError):  # what is wrong with a home is said where it is read
                found += find(self._served.home(name), typed)
        found = list(dict.fromkeys(found))
        low = typed.casefold()
        found.sort(key=lambda value: not value.casefold().startswith(low))
        return Completion(values=found[:_MOST], total=len(found), has_more=len(found) > _MOST)


def _sessions(home: Home, typed: str) -> Iterator[str]:
    low = typed.casefold()
    for each in home.db.list_sessions(SessionFilter(status="all"), limit=_LOOKED_AT).items:
        title = render.one_line(home, each.title)
        if title and low in title.casefold():
            yield title
        if each.id.casefold().startswith(low):
            yield each.id
    full = home.db.resolve_session_id(typed)
    if full is not None:
        yield full


def _ids(home: Home, typed: str) -> Iterator[str]:
    low = typed.casefold()
    for each in home.db.list_sessions(SessionFilter(status="all"), limit=_LOOKED_AT).items:
        if each.id.casefold().startswith(low):
            yield each.id


def _keys(home: Home, typed: str) -> Iterator[str]:
    low = typed.casefold()
    return (key for key in home.store.entries() if low in key.casefold())


def _sources(home: Home, typed: str) -> Iterator[str]:
    low = typed.casefold()
    for each in home.db.list_sessions(SessionFilter(status="all"), limit=_LOOKED_AT).items:
        source = render.one_line(home, each.source)
        if source and low in source.casefold():
            yield source


def _projects(home: Home, typed: str) -> Iterator[str]:
    low = typed.casefold()
    for each in home.db.list_sessions(SessionFilter(status="all"), limit=_LOOKED_AT).items:
        project = render.one_line(home, each.project, 1000)
        if project and low in project.casefold():
            yield project


_BY_ARGUMENT: dict[str, Callable[[Home, str], Iterator[str]]] = {
    "session": _sessions,
    "session_id": _ids,
    "session_key": _keys,
    "source": _sources,
    "project": _projects,
}
