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

        Plain words are tried in steps until one has hits: all words in one message, then in one
        conversation, then as prefixes, then any of the words. `matched` of the result is the step.

        Args:
            query: the words to search for. A query that cannot be parsed is searched as plain text.
            mode: `words`, or `substring` for the exact characters.
            per: `conversation` returns the best hit of each conversation, `message` every hit.
            session: search only in this session.
            source: search only in sessions of these sources.
            exclude_source: leave out sessions of these sources.
            project: search only in sessions of these folders.
            roles: return only messages with these roles.
            tool: return only calls and results of the tool with this name.
            status: `open`, `ended`, `archived` or `all`. By default, archived conversations are
                left out, unless `session` is an archived session.
            since: return only messages at or after this time, in seconds.
            until: return only messages before this time, in seconds.
            order: `relevance`, `newest` or `oldest`.
            limit: the largest number of hits.
            cursor: the `next_cursor` of the previous page, with the same other arguments.
            moment: the time from which the age of a message counts; by default, the newest match.

        Raises:
            InvalidInput: an argument has an unknown value, or the cursor belongs to another search.
            NotFound: the session does not exist.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> _ = db.append_message("s1", "user", "keep the ledger", create={"source": "cli"})
            >>> result = db.search("ledger")
            >>> result.matched, [hit.session_id for hit in result.hits]
            ('all', ['s1'])
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
