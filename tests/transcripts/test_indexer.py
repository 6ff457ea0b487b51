"""Indexing in calls with a time limit."""

from __future__ import annotations

import os

import pytest

from session_core.transcripts import indexer, sources
from session_core.transcripts import transcript_store as store_module
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import START, ClaudeTree


def test_work_without_time_makes_progress(tree: ClaudeTree, store: TranscriptStore):
    for number in range(3):
        path = tree.write(f"session-{number}", ["one message"])
        os.utime(path, (START, START))  # a file of just now is read twice

    calls = [store.index_pending(0) for _ in range(3)]

    assert calls == [True, True, False]
    assert store.measure_share() == 1.0


def test_history_is_stored_in_small_blocks(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("session", (f"message {number}" for number in range(2500)))
    os.utime(path, (START, START))

    index_all(store)

    rows = store._index.read("SELECT first_id, last_id, oldest_at, newest_at FROM blocks")
    sizes = [last - first + 1 for first, last, _, _ in rows]
    assert sum(sizes) == 2500
    assert max(sizes) <= 1000
    # Each block has the times of its own messages, which are a minute apart.
    assert [newest - oldest for *_, oldest, newest in rows] == [
        (size - 1) * 60_000 for size in sizes
    ]


def test_list_and_page_leave_long_file(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(indexer, "_PART_BYTES", 10_000)
    monkeypatch.setattr(indexer, "_LONG_REST_BYTES", 10_000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(store_module, "_REFRESH_S", 0.0)
    tree.write("long", (f"message {number}" for number in range(500)))
    store.index_pending(0)
    share = store.measure_share()

    assert [row.id for row in store.list_sessions().items] == ["long"]
    (newest,) = store.read_window("long", limit=1).messages
    assert newest["content"] == "message 499"
    assert 0 < share == store.measure_share() < 1
