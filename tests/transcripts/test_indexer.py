"""Indexing in calls with a time limit."""

from __future__ import annotations

import os

from session_core.transcripts.store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import START, ClaudeTree


def test_work_without_time_makes_progress(tree: ClaudeTree, store: TranscriptStore):
    for number in range(3):
        path = tree.write(f"session-{number}", ["one message"])
        os.utime(path, (START, START))  # a file of just now is read twice

    calls = [store.work(0) for _ in range(3)]

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
