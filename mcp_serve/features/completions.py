"""Completions: ids and titles of sessions, sources, session keys, projects and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from mcp.types import Completion

from mcp_serve import render
from mcp_serve.progress import run_in_thread
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.stores.stores import ServedStores
from session_core import SessionError, SessionFilter

_MAX_VALUES = 100
_MAX_SCANNED_ROWS = 200


class Completions:
    """Completes the arguments of prompts and templates by argument name."""

    def __init__(self, served: ServedStores) -> None:
        self._served = served

    async def complete_argument(self, argument: str, typed: str) -> Completion:
        """Return values that begin with or contain the typed text, newest first."""
        if argument == "store":
            return _make_completion(self._served.names, typed)
        find = _COMPLETERS.get(argument)
        if find is None:
            return Completion(values=[])
        return await run_in_thread(self._find_matches, find, typed)

    def _find_matches(
        self, find: Callable[[ServedStore, str], Iterator[str]], typed: str
    ) -> Completion:
        values: list[str] = []
        for store in self._served.get_stores():
            with suppress(SessionError):  # a read reports the fault of a store
                values += find(store, typed)
        return _make_completion(values, typed)


def _make_completion(candidates: Iterable[str], typed: str) -> Completion:
    """Return the values that contain the typed text, first the values that begin with it."""
    low = typed.casefold()
    values = [value for value in dict.fromkeys(candidates) if low in value.casefold()]
    values.sort(key=lambda value: not value.casefold().startswith(low))
    return Completion(
        values=values[:_MAX_VALUES], total=len(values), has_more=len(values) > _MAX_VALUES
    )


def _list_session_names(home: ServedStore, typed: str) -> Iterator[str]:
    typed_lower = typed.casefold()
    for row in home.list_sessions(SessionFilter(status="all"), limit=_MAX_SCANNED_ROWS).items:
        title = render.render_line(home, row.title)
        if title and typed_lower in title.casefold():
            yield title
        if row.id.casefold().startswith(typed_lower):
            yield row.id
    match = home.match_session(typed) if typed else None
    if match is not None and match.way in (0, 3):  # by its id
        yield match.id


def _list_ids(home: ServedStore, typed: str) -> Iterator[str]:
    typed_lower = typed.casefold()
    for row in home.list_sessions(SessionFilter(status="all"), limit=_MAX_SCANNED_ROWS).items:
        if row.id.casefold().startswith(typed_lower):
            yield row.id


def _list_session_keys(home: ServedStore, typed: str) -> Iterator[str]:
    typed_lower = typed.casefold()
    keys = home.store.load_entries() if isinstance(home, ServedHome) else ()
    return (key for key in keys if typed_lower in key.casefold())


def _list_sources(home: ServedStore, typed: str) -> Iterator[str]:
    typed_lower = typed.casefold()
    for row in home.list_sessions(SessionFilter(status="all"), limit=_MAX_SCANNED_ROWS).items:
        source = render.render_line(home, row.source)
        if source and typed_lower in source.casefold():
            yield source


def _list_projects(home: ServedStore, typed: str) -> Iterator[str]:
    typed_lower = typed.casefold()
    for row in home.list_sessions(SessionFilter(status="all"), limit=_MAX_SCANNED_ROWS).items:
        project = render.render_line(home, row.project, 1000)
        if project and typed_lower in project.casefold():
            yield project


_COMPLETERS: dict[str, Callable[[ServedStore, str], Iterator[str]]] = {
    "session": _list_session_names,
    "session_id": _list_ids,
    "session_key": _list_session_keys,
    "source": _list_sources,
    "project": _list_projects,
}
