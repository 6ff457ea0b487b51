"""The thread of a server that indexes and keeps the sessions of other agents."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.serve.test_transcripts import CLAUDE
from tests.transcripts.trees import ClaudeTree

_PATIENCE_S = 20.0


@pytest.mark.requirement("transcripts:keep")
def test_read_only_server_keeps_in_background():
    tree = ClaudeTree(Path.home())
    tree.write(CLAUDE, ["which database for the ledger"])
    with closing(ServedStores(ServerOptions(read_only=True, runs_long=True))) as served:
        keep = served.get_transcripts(None).keep
        keep.turn_on()
        served.start_indexing()
        waiting = threading.Event()
        for _ in range(int(_PATIENCE_S / 0.02)):
            if keep.measure_status().sessions:
                break
            waiting.wait(0.02)
        shutil.rmtree(tree.home / ".claude")
        store = served.get_transcripts(None)

        row = store.summarize_session(CLAUDE)
        (message,) = store.read_window(CLAUDE).messages

    assert row.is_kept
    assert message["content"] == "which database for the ledger"
