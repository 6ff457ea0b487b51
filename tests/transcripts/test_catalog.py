"""Files of a root: deleted, moved, renamed or no files at all."""

from __future__ import annotations

import os

import pytest

from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import (
    find_hits,
    read_texts,
)
from tests.transcripts.trees import ClaudeTree


def test_deleted_file_is_gone(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["vanishing"])
    tree.write("two", ["staying"])
    assert len(find_hits(store, "vanishing")) == 1

    path.unlink()

    assert find_hits(store, "vanishing") == []
    assert [row.id for row in store.list_sessions().items] == ["two"]
    assert store.get_session("one") is None


def test_moved_folder_keeps_its_sessions(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["kept message"])
    assert len(find_hits(store, "kept")) == 1

    path.parent.rename(path.parent.with_name("-work-other"))

    assert find_hits(store, "kept") == [("one", 0)]
    assert read_texts(store, "one") == ["kept message"]


def test_renamed_file_is_another_session(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["renamed message"])
    assert find_hits(store, "renamed") == [("one", 0)]

    path.rename(path.with_name("two.jsonl"))

    assert find_hits(store, "renamed") == [("two", 0)]
    assert [row.id for row in store.list_sessions().items] == ["two"]


@pytest.mark.usefixtures("tree")
def test_pipe_in_a_root_blocks_nothing(tree: ClaudeTree, store: TranscriptStore):
    (tree.projects / "-src-app").mkdir()
    os.mkfifo(tree.projects / "-src-app" / "pipe.jsonl")

    assert store.list_sessions().items == []
