"""Files that grow, shrink or are replaced: the next answer follows."""

from __future__ import annotations

import pytest

from session_core.transcripts import indexer, sources
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import (
    append_elsewhere,
    find_hits,
    read_texts,
)
from tests.transcripts.trees import ClaudeTree, make_line


def test_appended_line_is_in_next_answer(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])

    for number in range(1, 20):
        append_elsewhere(path, make_line("one", number, f"token{number}x"))
        assert len(find_hits(store, f"token{number}x")) == 1
        assert read_texts(store, "one")[-1] == f"token{number}x"


def test_new_file_is_in_next_answer(tree: ClaudeTree, store: TranscriptStore):
    assert store.list_sessions().items == []

    tree.write("one", ["findable"])

    assert find_hits(store, "findable") == [("one", 0)]
    assert [row.id for row in store.list_sessions().items] == ["one"]


def test_torn_last_line_waits_for_its_end(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    line = make_line("one", 1, "halves")
    append_elsewhere(path, line[:40])

    assert find_hits(store, "halves") == []
    assert read_texts(store, "one") == ["first"]

    append_elsewhere(path, line[40:])

    assert len(find_hits(store, "halves")) == 1


def test_truncated_file_loses_its_messages(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "second", "third"])
    assert len(find_hits(store, "third")) == 1

    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))

    assert find_hits(store, "third") == []
    assert read_texts(store, "one") == ["first", "second"]


def test_scrubbed_secret_is_not_found(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "the key is swordfish", "third"])
    assert len(find_hits(store, "swordfish")) == 1

    # The same length, in the middle, and the file grows: its head, tail and size fit.
    path.write_bytes(path.read_bytes().replace(b"swordfish", b"xxxxxxxxx"))
    append_elsewhere(path, make_line("one", 3, "more"))

    assert find_hits(store, "swordfish") == []
    assert find_hits(store, "swordfish", mode="substring") == []
    assert len(find_hits(store, "more")) == 1


def test_scrub_with_same_size_is_noticed(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["the key is swordfish"])
    assert len(find_hits(store, "swordfish")) == 1

    path.write_bytes(path.read_bytes().replace(b"swordfish", b"xxxxxxxxx"))

    assert find_hits(store, "swordfish") == []


def test_long_tail_is_read_to_its_end(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(indexer, "SLICE_BYTES", 1000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 700)
    path = tree.write("one", ["first"])
    assert len(find_hits(store, "first")) == 1

    tree.write("one", [f"message {number}" for number in range(100)])
    assert len(read_texts(store, "one", limit=500)) == 101

    path.write_bytes(path.read_bytes().replace(b"first", b"other"))
    assert len(read_texts(store, "one", limit=500)) == 101
    assert find_hits(store, "other") == [("one", 0)]


def test_replaced_file_is_read_anew(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["old text"])
    assert len(find_hits(store, "old")) == 1

    other = path.with_suffix(".tmp")
    other.write_bytes(make_line("one", 0, "new text"))
    other.replace(path)

    assert find_hits(store, "old") == []
    assert find_hits(store, "new") == [("one", 0)]
