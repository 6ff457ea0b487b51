"""Find the sessions that a request keeps: by id, by the beginning of an id, or by words.

An entry that may be read in two ways keeps both: too much that stays does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from session_core.errors import InvalidInput
from session_core.state import validation
from session_core.state.protocol import StateDatabase
from session_core.state.query import is_match, parse_query
from session_core.state.search_text import fold_text

_MAX_ENTRIES = 200
_PAGE_SIZE = 100


def check_keep(keep: Sequence[str]) -> tuple[str, ...]:
    """Return the entries of a request.

    Raises:
        InvalidInput: an entry is empty, or there are too many.
    """
    entries = validation.parse_texts("keep", keep) or ()
    if len(entries) > _MAX_ENTRIES:
        raise InvalidInput(f"keep must have at most {_MAX_ENTRIES} entries, got {len(entries):,}")
    for entry in entries:
        if not _split_words(entry):
            raise InvalidInput(f"keep must not have an entry without a word, got {entry!r:.40}")
    return entries


def find_kept_sessions(
    db: StateDatabase, titles: Mapping[str, str], keep: Sequence[str]
) -> tuple[set[str], list[str]]:
    """Return the sessions that entries keep, and the entries that keep none.

    `titles` are the titles by session.
    """
    kept: set[str] = set()
    unmatched = []
    entries = check_keep(keep)
    folded_titles = {id_: fold_text(title) for id_, title in titles.items()} if entries else {}
    for entry in entries:
        sessions = _find_sessions(db, folded_titles, entry)
        kept |= sessions
        if not sessions:
            unmatched.append(entry)
    return kept, unmatched


def _find_sessions(db: StateDatabase, titles: Mapping[str, str], entry: str) -> set[str]:
    if db.get_session(entry) is not None:
        return {entry}
    by_prefix = db.resolve_session_id(entry)
    # Quoted and joined, so that no word is an operator and no looser match is tried.
    query = " AND ".join(f'"{word}"' for word in _split_words(entry))
    node = parse_query(query).node
    titled = {id_ for id_, title in titles.items() if node is not None and is_match(node, title)}
    by_id = set() if by_prefix is None else {by_prefix}
    return {*by_id, *titled, *_search_messages(db, query)}


def _split_words(entry: str) -> list[str]:
    words = entry.replace('"', " ").split()
    return [word for word in words if any(char.isalnum() for char in word)]


def _search_messages(db: StateDatabase, query: str) -> set[str]:
    """Return all sessions with a message that matches."""
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = db.search(query, status="all", limit=_PAGE_SIZE, cursor=cursor)
        found.update(hit.session_id for hit in page.hits)
        cursor = page.next_cursor
        if cursor is None:
            return found
