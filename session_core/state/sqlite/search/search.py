"""Full-text search over all messages of a home.

BM25 over a whole index costs with the number of matches, so relevance is judged among the newest
matches only, in blocks, and the cursor goes on with the next block. Plain words that find nothing
are loosened: all words, words as prefixes, any of them by how many match.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_core import _sqlite3
from session_core.errors import InvalidInput
from session_core.state import content, cursors, validation
from session_core.state import query as queries
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.connections import SqliteStore
from session_core.state.sqlite.search import hermes
from session_core.state.sqlite.search.request import SearchRequest
from session_core.state.sqlite.search.run import SearchPosition, SearchRun
from session_core.types import SearchMode, SearchResult, SearchUnit

MAX_HITS = 100
_CURSOR_FIELD_TYPES = (str, int, int, int, int)
_MALFORMED_CURSOR = "malformed cursor; take next_cursor of the page before as it is"


class Search(SqliteStore):
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

        Without a status archived ones are left out, unless `session` names one.

        Raises:
            InvalidInput: an argument is none of those that there are, or the cursor is of another
                search.
            NotFound: there is no such session.
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
        place = None if cursor is None else _decode_cursor(request, cursor)
        most = min(limit, MAX_HITS)

        def answer(handle: Connection) -> SearchResult:
            return _run_search(handle, request, place, most)

        def answer_unless_behind(handle: Connection) -> SearchResult | None:
            return None if fts.is_behind(handle) else answer(handle)

        found = self._read(answer if self.read_only else answer_unless_behind)
        if found is None:
            self._update_search_index()
            found = self._read(answer)
        return found


def _run_search(
    handle: Connection, request: SearchRequest, place: SearchPosition | None, most: int
) -> SearchResult:
    """Answer by the index, and without it where it is damaged."""
    try:
        return SearchRun(handle, request).read_page(place, most)
    except _sqlite3.load_library().DatabaseError:
        if handle.seen.get(hermes.INDEX_BROKEN_KEY):
            raise
        handle.seen[hermes.INDEX_BROKEN_KEY] = True
        return SearchRun(handle, request).read_page(place, most)


def _decode_cursor(request: SearchRequest, cursor: str) -> SearchPosition:
    position = cursors.decode_cursor("search", request.scope, cursor)
    if not isinstance(position, list) or len(position) != len(_CURSOR_FIELD_TYPES):
        raise InvalidInput(_MALFORMED_CURSOR)
    if not all(
        isinstance(value, kind) for value, kind in zip(position, _CURSOR_FIELD_TYPES, strict=True)
    ):
        raise InvalidInput(_MALFORMED_CURSOR)
    if not all(fts.MIN_ID <= number <= fts.MAX_ID + 1 for number in position[1:]):
        raise InvalidInput(_MALFORMED_CURSOR)
    place = SearchPosition(*position)
    if place.skip < 0:
        raise InvalidInput(_MALFORMED_CURSOR)
    return place
