"""Indexing in calls with a time limit."""

from __future__ import annotations

import os

from session_core.transcripts.store import TranscriptStore
from tests.transcripts.trees import START, ClaudeTree


def test_work_without_time_makes_progress(tree: ClaudeTree, store: TranscriptStore):
    for number in range(3):
        path = tree.write(f"session-{number}", ["one message"])
        os.utime(path, (START, START))  # a file of just now is read twice

    calls = [store.work(0) for _ in range(3)]

    assert calls == [True, True, False]
    assert store.measure_share() == 1.0
