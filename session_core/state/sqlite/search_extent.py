"""How much of a home the two indexes of Hermes have: up to where, of which rows, how much of each.

It is looked at, never told by a version: a layout may be older or newer than its schema.
"""

from __future__ import annotations

import re

from session_core.state.sqlite import blocks, index
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("search")

BROKEN = "search_index_broken"
"""Set in `seen` once an index could not be read: everything is read row by row then."""

_CUT = re.compile(r"substr\s*\((?:[^()]|\([^()]*\))*,\s*1\s*,\s*(\d+)\s*\)", re.IGNORECASE)
"""How a trigger, or the view that an index is of, cuts a text short."""

_CUT_ROWS = (
    "coalesce(m.role = 'tool'"
    " AND (length(CAST(m.content AS BLOB)) > {} OR instr(m.content, char(0))), 0)"
)


def index_end(handle: Handle) -> int:
    """Return up to which message the word index goes; NOTHING if it is not there or has holes."""
    if handle.seen.get(BROKEN) or not handle.has("messages_fts_docsize"):
        return index.NOTHING
    found = handle.seen.get("word_index_end")
    if found is None:
        end = None if _is_rebuilding(handle) else handle.value(SQL["get_word_index_end"])
        found = handle.seen["word_index_end"] = index.NOTHING if end is None else end
    return int(found)


def _is_rebuilding(handle: Handle) -> bool:
    """Whether the index has holes that Hermes has not got to fill yet."""
    if not handle.has("state_meta"):
        return False
    marks = dict(handle.values(SQL["list_marks"]))
    if marks.get("fts_stale") not in (None, "", "0"):
        return True
    try:
        high, done = (
            int(marks.get(f"fts_rebuild_{key}") or -1) for key in ("high_water", "progress")
        )
    except ValueError:
        return True
    return high > done


def has_trigrams(handle: Handle) -> bool:
    """Whether there is a trigram index."""
    return handle.has("messages_fts_trigram")


def lacks_trigrams(handle: Handle) -> bool:
    """Whether the trigram index leaves rows out, as in newer homes.

    It has nothing there of what tools said, of arguments, and of sessions nobody talks in.
    """
    partial = handle.seen.get("partial_trigrams")
    if partial is None:
        partial = handle.seen["partial_trigrams"] = bool(handle.value(SQL["has_partial_trigrams"]))
    return bool(partial) and handle.has("messages_fts_trigram_docsize")


def cut_rows(handle: Handle) -> str | None:
    """Return a condition on rows of which only the beginning is indexed, None if there are none.

    Newer homes cut what tools said, and SQLite cuts it at the marker of multi-part content.
    """
    if "cut_rows" not in handle.seen:
        lengths = _CUT.findall(handle.value(SQL["get_indexed_text"]) or "")
        longest = min(map(int, lengths), default=None)
        handle.seen["cut_rows"] = None if longest is None else _CUT_ROWS.format(longest)
    found: str | None = handle.seen["cut_rows"]
    return found
