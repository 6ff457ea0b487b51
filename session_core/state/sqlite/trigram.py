"""Texts with a NUL in the trigram index of a Hermes home, which SQLite reads in two ways.

Up to 3.47 the trigram tokenizer stopped at a NUL, with which all multi-part content begins; since
3.48 it goes on behind it. An entry that one version made and another takes out leaves the index
damaged. So before and after a row is touched its entry gets a blank for the NUL, which every
version reads alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from session_core import driver
from session_core.errors import Unsupported
from session_core.state import query
from session_core.state.sqlite.handle import Handle

_NUL = b"\0"
_BROKEN = "\ufffd"
_CHANGED = (3, 48, 0)
_ROWS = "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND instr(content, char(0)) > 0"
_ENTRIES = (
    "SELECT rowid, CAST(content AS BLOB) FROM messages_fts_trigram"
    " WHERE rowid IN (SELECT value FROM json_each(?))"
)


def mend_session(handle: Handle, session_id: str, since: int = 0) -> None:
    """Mend the entries of a session's messages from `since` on."""
    if _concerned(handle):
        mend(handle, [row[0] for row in handle.values(_ROWS, (session_id, since))])


def mend(handle: Handle, ids: Sequence[int]) -> None:
    """Mend the entries of these messages, where they have a NUL.

    Raises:
        Unsupported: an entry was made by a newer SQLite than this one.
    """
    if not ids or not _concerned(handle):
        return
    for row_id, stored in handle.values(_ENTRIES, (json.dumps(list(ids)),)):
        if stored is not None and _NUL in stored:
            _mend_entry(handle, row_id, stored)


def mend_all(handle: Handle) -> None:
    """Mend every entry; for a copy that is to be checked."""
    if _concerned(handle):
        odd = handle.values("SELECT id FROM messages WHERE instr(content, char(0)) > 0")
        mend(handle, [row[0] for row in odd])


def _concerned(handle: Handle) -> bool:
    """Whether there is such an index with a copy of the text, as up to schema 22."""
    return handle.has("messages_fts_trigram_content", "c0")


def has_nul(content: Any) -> bool:
    """Whether content, as it is stored, is concerned."""
    return _NUL in content if isinstance(content, bytes) else "\0" in str(content or "")


def _mend_entry(handle: Handle, row_id: int, stored: bytes) -> None:
    """Mend one entry, which need not be text: bytes that a row holds are in it as they are."""
    goes_on = driver.library().sqlite_version_info >= _CHANGED
    went_on = _was_read_past_nul(handle, row_id, _text(stored), unknown=goes_on)
    if went_on and not goes_on:
        raise Unsupported(
            "the search index of this home was written by a newer sqlite than "
            f"{driver.library().sqlite_version}; choose the bundled one to change such messages"
        )
    if goes_on and not went_on:
        # What this version is to take out has to be what that one has put in.
        handle.run(
            "UPDATE messages_fts_trigram_content SET c0 = CAST(? AS TEXT) WHERE id = ?",
            (stored[: stored.index(_NUL)], row_id),
        )
    handle.run(
        "UPDATE messages_fts_trigram SET content = ? WHERE rowid = ?",
        (_text(stored.replace(_NUL, b" ")), row_id),
    )


def _was_read_past_nul(handle: Handle, row_id: int, text: str, *, unknown: bool) -> bool:
    """Whether the index has a trigram of the text that stands behind the NUL alone."""
    head, _, tail = text.partition("\0")
    tail = tail.partition("\0")[0]
    for start in range(len(tail) - 2):
        piece = tail[start : start + 3]
        if _BROKEN not in piece and piece.lower() not in head.lower():
            found = handle.value(
                "SELECT 1 FROM messages_fts_trigram WHERE messages_fts_trigram MATCH ?"
                " AND rowid = ?",
                (query.quoted(piece), row_id),
            )
            return found is not None
    return unknown


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")
