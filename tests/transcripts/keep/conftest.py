"""Fixtures of the tests of kept copies."""

from __future__ import annotations

from session_core.errors import NotFound
from session_core.transcripts.keep.copies import KeptFile, make_rows_path
from session_core.transcripts.transcript_store import TranscriptStore


def keep_all(store: TranscriptStore) -> None:
    """Keep until nothing is left."""
    while store.keep.scan_and_copy(1.0):
        pass
    assert store.keep.measure_status().problem is None


def read_copy(store: TranscriptStore, session_id: str) -> bytes:
    """Return the kept bytes of a session, whether its source has gone or not."""
    row = store._require_row(session_id)
    place = store._indexer.catalog.find_source(row["source_id"])
    assert place is not None
    root, path = place
    copies = store.keep._copies
    for name in (path, make_rows_path(path, row["native_id"])):
        copy = copies.find_copy(root.root.path, name)
        if copy is not None:
            with KeptFile(copies.database, copy) as file:
                return file.read(copy.identity.size + 1)
    raise NotFound(f"session {session_id} is not kept")
