"""The search methods of `SessionDB` and `db.admin`.

The first search imports the modules that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_core.state import validation
from session_core.state.sqlite.store import SqliteOperations
from session_core.state.store_search import StoreSearch
from session_core.types import SearchMode, SearchOrder, SearchResult, SearchUnit


class Search(SqliteOperations):
    """Full-text search in one home."""

    def search(
        self,
        query: str,
        *,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        exclude_source: Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
        limit: int = 20,
        cursor: str | None = None,
        moment: float | None = None,
    ) -> SearchResult:
        """Find messages by words, phrases, prefixes, -words, AND, OR, NOT, or by a substring.

        `tool` is the name of a tool that a message calls or answers. Without a status, archived
        conversations are left out, unless `session` names one. The age of a message counts from
        `moment`, by default the newest match.

        Raises:
            InvalidInput: an argument has an unknown value, or the cursor belongs to another search.
            NotFound: the session does not exist.
        """
        from session_core.state.sqlite.search.search import make_request, search_messages  # noqa: PLC0415 -- the first search imports it

        validation.check_limit(limit)
        request = make_request(
            query,
            mode=mode,
            per=per,
            session=session,
            source=source,
            exclude_source=exclude_source,
            project=project,
            roles=roles,
            tool=tool,
            status=status,
            since=since,
            until=until,
            order=order,
            moment=moment,
        )
        return search_messages(self._store, request, cursor, limit)


class TimeRangeSearches(SqliteOperations):
    """Searches of one home for a search over several stores."""

    def open_search(
        self,
        query: str,
        *,
        moment: float,
        newest_ms: int | None = None,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        exclude_source: Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
    ) -> StoreSearch:
        """Open a search for `MergedSearch`, to be used in an open snapshot.

        The age of messages counts from `moment`. Messages after `newest_ms` are left out.

        Raises:
            InvalidInput: an argument has an unknown value.
            NotFound: the session does not exist.
        """
        from session_core.state.sqlite.search.search import make_request  # noqa: PLC0415 -- the first search imports it
        from session_core.state.sqlite.search.time_range_search import TimeRangeSearch  # noqa: PLC0415 -- the first search imports it

        if newest_ms is not None:
            latest = (newest_ms + 1) / 1000
            until = latest if until is None else min(until, latest)
        request = make_request(
            query,
            mode=mode,
            per=per,
            session=session,
            source=source,
            exclude_source=exclude_source,
            project=project,
            roles=roles,
            tool=tool,
            status=status,
            since=since,
            until=until,
            order=order,
            moment=moment,
        )
        return TimeRangeSearch(self._store, request)
