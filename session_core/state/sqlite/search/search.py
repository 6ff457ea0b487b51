"""Full-text search over all messages of a home.

BM25 over a whole index costs in proportion to the matches, so relevance is judged among the newest
matches only, in blocks, and the cursor continues with the next block. Plain words without a match
are loosened in steps: all words, words as prefixes, any of them ranked by how many match.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_core import _sqlite3
from session_core.errors import InvalidInput
from session_core.state import content, cursors, validation
from session_core.state import query as queries
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.connections import SqliteOperations
from session_core.state.sqlite.search import hermes
from session_core.state.sqlite.search.request import SearchRequest
from session_core.state.sqlite.search.run import SearchPosition, SearchRun
from session_core.types import SearchMode, SearchResult, SearchUnit

MAX_HITS = 100
_CURSOR_FIELD_TYPES = (str, int, int, int, int)
_MALFORMED_CURSOR = "malformed cursor; pass next_cursor of the previous page unchanged"


class Search(SqliteOperations):
    """Full-text search."""

    def search(
        self,
        query: str,
        *,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        project: str | None = None,
        roles: Sequence[str] | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchResult:
        """Find messages by words, phrases, prefixes, AND, OR, NOT, or by a substring.

        Without a status, archived conversations are left out, unless `session` names one.

        Raises:
            InvalidInput: an argument has an unknown value, or the cursor belongs to another search.
            NotFound: the session does not exist.
        """
        validation.check_limit(limit)
        validation.check_text("query", query, needed=True)
        for name, text in (("session", session), ("project", project)):
            validation.check_text(name, text)
        for name, number in (("since", since), ("until", until)):
            validation.check_number(name, number)
        request = SearchRequest(
            content.clean_text(query[: queries.MAX_QUERY_LENGTH]),
            mode,
            per,
            session,
            validation.parse_texts("source", source),
            project,
            validation.parse_texts("roles", roles),
            status,
            since,
            until,
        )
        request.check()
        position = None if cursor is None else _decode_cursor(request, cursor)
        max_hits = min(limit, MAX_HITS)

        def answer(handle: Connection) -> SearchResult:
            return _run_search(handle, request, position, max_hits)

        def answer_unless_behind(handle: Connection) -> SearchResult | None:
            return None if fts.is_behind(handle) else answer(handle)

        result = self._read(answer if self._store.read_only else answer_unless_behind)
        # The index is updated in a write transaction, then the search runs again.
        if result is None:
            self._store.update_search_index()
            result = self._read(answer)
        return result


def _run_search(
    handle: Connection, request: SearchRequest, position: SearchPosition | None, max_hits: int
) -> SearchResult:
    """Search by the index, or without it if the index is damaged."""
    try:
        return SearchRun(handle, request).read_page(position, max_hits)
    except _sqlite3.load_library().DatabaseError:
        if handle.seen.get(hermes.INDEX_BROKEN_KEY):
            raise
        handle.seen[hermes.INDEX_BROKEN_KEY] = True
        return SearchRun(handle, request).read_page(position, max_hits)


def _decode_cursor(request: SearchRequest, cursor: str) -> SearchPosition:
    fields = cursors.decode_cursor("search", request.scope, cursor)
    if not isinstance(fields, list) or len(fields) != len(_CURSOR_FIELD_TYPES):
        raise InvalidInput(_MALFORMED_CURSOR)
    if not all(
        isinstance(value, kind) for value, kind in zip(fields, _CURSOR_FIELD_TYPES, strict=True)
    ):
        raise InvalidInput(_MALFORMED_CURSOR)
    if not all(fts.MIN_ID <= number <= fts.MAX_ID + 1 for number in fields[1:]):
        raise InvalidInput(_MALFORMED_CURSOR)
    position = SearchPosition(*fields)
    if position.skip < 0:
        raise InvalidInput(_MALFORMED_CURSOR)
    return position
