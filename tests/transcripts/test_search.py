"""The search of transcripts: how far one call looks."""

from __future__ import annotations

import os
import time

import pytest

from session_core.transcripts import indexer, search
from session_core.transcripts import transcript_store as store_module
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import START, ClaudeTree


@pytest.mark.parametrize("order", ["relevance", "oldest"])
def test_slow_scan_gives_the_same_pages(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch, order: str
):
    for session in range(3):
        texts = (f"needle{number}x" for number in range(session, 400, 7))
        tree.write(f"session-{session}", [*texts, *["hay"] * 200])
    index_all(store)
    monkeypatch.setattr(search, "_SCAN_WORK", 150 * search._ROW_WORK)
    monkeypatch.setattr(search, "_SCAN_ROWS", 20)

    quick = _read_pages(store, order)
    read = search.TranscriptSearch._filter_by_text

    def read_slowly(self, candidates):
        time.sleep(0.005)
        return read(self, candidates)

    monkeypatch.setattr(search.TranscriptSearch, "_filter_by_text", read_slowly)
    assert _read_pages(store, order) == quick
    assert len(quick) > 3
    assert sum(len(hits) for hits, _ in quick) == 3 * 58 - 2


def _read_pages(store: TranscriptStore, order: str) -> list[tuple[list[str], float | None]]:
    """Return the hits of each page, and how far back it looked."""
    pages, cursor = [], None
    options = {"mode": "substring", "per": "message", "order": order, "limit": 30}
    while True:
        page = store.search("eedle", **options, cursor=cursor)
        pages.append(([hit.snippet for hit in page.hits], page.searched_back_to))
        cursor = page.next_cursor
        if cursor is None:
            return pages


def test_long_file_scanned_in_part_is_reported(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    path = tree.write("long", ["hay " * 200] * 1000 + ["needle"])
    os.utime(path, (START, START))
    monkeypatch.setattr(indexer, "BLOCK_BYTES", 12)
    for name, seconds in (("_REFRESH_S", 0.0), ("_SCAN_SLICE_S", 0.01), ("SCAN_S", 0.01)):
        monkeypatch.setattr(store_module, name, seconds)

    result = store.search("needle")

    assert (result.hits, result.searched_back_to) == ([], START)
