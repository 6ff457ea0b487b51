"""Windows of messages, from the index and of files that are not indexed."""

from __future__ import annotations

import pytest

from session_core.transcripts import indexer
from session_core.transcripts import transcript_store as store_module
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import (
    read_texts,
)
from tests.transcripts.trees import ClaudeTree


def test_window_reads_both_directions(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", [f"message {number}" for number in range(10)])
    newest = store.read_window("one", limit=3)
    ids = [message["id"] for message in newest.messages]

    before = store.read_window("one", before=ids[0], limit=2)
    around = store.read_window("one", around=ids[0], limit=4)
    after = store.read_window("one", after=ids[0], limit=9)

    assert [message["content"] for message in newest.messages] == [
        "message 7",
        "message 8",
        "message 9",
    ]
    assert (newest.more_before, newest.more_after) == (True, False)
    assert [message["content"] for message in before.messages] == ["message 5", "message 6"]
    assert [message["content"] for message in around.messages] == [
        *("message 5", "message 6", "message 7", "message 8"),
    ]
    assert [message["content"] for message in after.messages] == ["message 8", "message 9"]
    assert (after.more_before, after.more_after) == (True, False)


@pytest.mark.requirement("transcripts:bounded")
def test_page_of_long_file_needs_no_index(tree, store, monkeypatch):
    monkeypatch.setattr(store_module, "_REFRESH_S", 0.0)
    monkeypatch.setattr(indexer, "SESSION_S", 0.0)
    monkeypatch.setattr(indexer, "_MAX_WAIT_S", 0.0)
    monkeypatch.setattr(indexer, "SLICE_BYTES", 1000)
    texts = [f"message {number} {'x' * 2000}" for number in range(4000)]
    tree.write("long", texts)
    newest = store.read_window("long", limit=3)
    assert store.get_session("long").messages is None  # most of the file is not indexed
    numbers = [row["content"].split()[1] for row in newest.messages]
    assert numbers == ["3997", "3998", "3999"]
    assert newest.more_before
    assert not newest.more_after
    first = newest.messages[0]["id"]
    assert store.get_message("long", first)["content"].startswith("message 3997 ")
    around = store.read_window("long", around=first, limit=4)
    assert [row["content"].split()[1] for row in around.messages] == [
        "3995",
        "3996",
        "3997",
        "3998",
    ]
    before = store.read_window("long", before=first, limit=2)
    assert [row["content"].split()[1] for row in before.messages] == ["3995", "3996"]
    seen, page = [], store.read_window("long", after=0, limit=700)
    while page.messages:
        seen += [row["content"].split()[1] for row in page.messages]
        page = store.read_window("long", after=page.messages[-1]["id"], limit=700)
    assert seen == [str(number) for number in range(1, 4000)]


def test_window_keeps_to_its_roles(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["asked", "answered", "asked again"])

    assert read_texts(store, "one", roles=["user"]) == ["asked", "asked again"]
    assert read_texts(store, "one", roles=["nobody"]) == []
