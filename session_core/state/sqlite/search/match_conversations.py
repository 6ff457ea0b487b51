"""The conversation of a match: its status, and the title, source and copy to show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from session_core.state import sql_blocks
from session_core.state.sqlite import compaction, lineage, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search.candidates import Match
from session_core.state.sqlite.search.request import SearchRequest

SQL = sql_blocks.load_blocks("search")


class MatchConversations:
    """Finds the conversation of each match.

    A continuation shares the conversation of its parent.
    """

    def __init__(self, handle: Connection, request: SearchRequest) -> None:
        self._handle = handle
        self._request = request
        self._families: dict[str, list[str]] = {}
        self._tips: dict[str, dict[str, Any]] = {}

    def has_wanted_status(self, match: Match) -> bool:
        """Return True if the conversation has the requested status."""
        # SQL has checked all other filters, and the status of conversations of one session.
        if not match.continued or self._request.status not in ("open", "ended"):
            return True
        ended = self._read_tip(match.session_id)["ended_at"] is not None
        return ended == (self._request.status == "ended")

    def pick_best(self, ranked: Iterable[Match]) -> list[Match]:
        """Return the first match of each conversation."""
        best: dict[str, Match] = {}
        for match in ranked:
            best.setdefault(self.find_root(match), match)
        return list(best.values())

    def find_root(self, match: Match) -> str:
        """Return the first session of the conversation of a match."""
        if match.parent is None:
            return match.session_id
        return lineage.find_root_cached(self._handle, match.session_id)

    def list_members(self, match: Match) -> list[str]:
        """Return the sessions of the conversation of a match."""
        if match.parent is None and not match.continued:
            return [match.session_id]
        root = self.find_root(match)
        if root not in self._families:
            self._families[root] = lineage.list_family(self._handle, match.session_id)
        return self._families[root]

    def find_later_copy(self, match: Match) -> dict[str, Any] | None:
        """Return the row to which a compaction or continuation copied a message, or None."""
        key = match.id, match.session_id
        bounds = {"id": match.id, "session": match.session_id, "at": match.at, "role": match.role}
        copy = None
        if match.compacted:
            copy = self._handle.fetch_row(self._handle.expand_sql(SQL["get_later_copy"]), bounds)
            copy = copy or compaction.find_visible_copy(self._handle, *key, match.at)
        if copy is None and match.continued and self._request.session is None:
            copy = self._handle.fetch_row(self._handle.expand_sql(SQL["get_copy_in_child"]), bounds)
            copy = copy or compaction.find_copy_in_child(self._handle, *key)
        return copy

    def find_title(self, match: Match) -> str | None:
        """Return the title of the session, or of its tip, to which the title may have moved."""
        if match.title is None and match.continued:
            title = self._read_tip(match.session_id)["title"]
            return None if title is None else str(title)
        return match.title

    def find_source(self, match: Match) -> str:
        """Return the source of the session, inherited if it is a continuation."""
        if match.parent is None or match.source not in lineage.UNKNOWN_SOURCES:
            return match.source
        row = sessions.require_session(self._handle, match.session_id)
        return lineage.find_origin(self._handle, row).source

    def _read_tip(self, session_id: str) -> dict[str, Any]:
        tip = lineage.find_tip_cached(self._handle, session_id)
        if tip not in self._tips:
            row = self._handle.fetch_row(SQL["get_session"], (tip,))
            self._tips[tip] = row or {"title": None, "ended_at": None}
        return self._tips[tip]
