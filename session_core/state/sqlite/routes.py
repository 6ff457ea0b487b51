"""Routing rows: which chat is in which session now, as opaque text that the session store reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import cast

from session_core.errors import Conflict, Unsupported
from session_core.models import SessionRow
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("routes")
# Lists say `+scope`: they read the table once in its own order, where its index would have to sort.

_TABLE = "gateway_routing"


class Routes(Store):
    """Routing rows."""

    @property
    def has_routing(self) -> bool:
        """Whether this database keeps routes; older Hermes homes have them in a file alone."""
        return self._read(lambda handle: handle.has(_TABLE))

    def get_gateway_routing_entry(self, session_key: str, *, scope: str = "") -> str | None:
        """Return the entry of a key."""

        def look(handle: Handle) -> str | None:
            if not handle.has(_TABLE):
                return None
            return cast(
                "str | None", handle.value(SQL["get_route"], {"scope": scope, "key": session_key})
            )

        return self._read(look)

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Return all entries of a scope by their keys."""

        def look(handle: Handle) -> dict[str, str]:
            return dict(handle.values(SQL["list_routes"], (scope,))) if handle.has(_TABLE) else {}

        return self._read(look)

    def gateway_routing_scopes(self) -> dict[str, int]:
        """Return how many entries each scope has, the one that was written last first."""

        def look(handle: Handle) -> dict[str, int]:
            return dict(handle.values(SQL["list_scopes"])) if handle.has(_TABLE) else {}

        return self._read(look)

    def dump_gateway_routing_entries(
        self, *, scope: str = "", without: Collection[str] = ()
    ) -> list[str]:
        """Return the entries of a scope as members of a JSON object, broken ones left out."""
        wanted = {"scope": scope, "without": json.dumps(list(without))}

        def look(handle: Handle) -> list[str]:
            found = handle.values(SQL["dump_routes"], wanted) if handle.has(_TABLE) else []
            return [row[0] for row in found]

        return self._read(look)

    def save_gateway_routing_entry(
        self, session_key: str, entry_json: str, *, scope: str = "", expect: str | None
    ) -> None:
        """Store one entry, in one row; `expect` is what was read before, None for a new one.

        Raises:
            Conflict: somebody else has changed it since.
        """
        now = self._clock()

        def step(handle: Handle) -> None:
            _require_table(handle)
            where = {"scope": scope, "key": session_key}
            if handle.value(SQL["get_route"], where) != expect:
                raise Conflict(f"the route of {session_key} was changed since; read it again")
            handle.run(SQL["put_route"], {**where, "entry": entry_json, "now": now})

        self._write(step)

    def delete_gateway_routing_entries(
        self, entries: Mapping[str, str], *, scope: str = ""
    ) -> list[str]:
        """Delete entries that are still as they were read; return the keys of those."""

        def step(handle: Handle) -> list[str]:
            _require_table(handle)
            return [
                key
                for key, text in entries.items()
                if handle.run(SQL["delete_route"], {"scope": scope, "key": key, "expect": text})
            ]

        return self._write(step)

    def find_latest_session_for_peer(
        self,
        *,
        source: str,
        session_key: str | None = None,
        user_id: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
    ) -> SessionRow | None:
        """Return the newest session of a chat: by its key, else by who and where exactly.

        One without messages is none, nor is one that the chat has left for another.
        """
        peer = {
            "source": source,
            "user_id": user_id or "",
            "chat_id": chat_id or "",
            "chat_type": chat_type or "",
            "thread_id": thread_id or "",
        }

        def look(handle: Handle) -> SessionRow | None:
            if not handle.has("sessions", "session_key"):
                return None
            keys = {"source": source, "session_key": session_key}
            found = handle.row(SQL["find_by_key"], keys) if session_key else None
            if found is None and (user_id or chat_id):
                found = handle.row(SQL["find_by_peer"], peer)
            return cast("SessionRow | None", found)

        return self._read(look)


def _require_table(handle: Handle) -> None:
    if not handle.has(_TABLE):
        raise Unsupported("this home keeps its routes in sessions.json alone")
