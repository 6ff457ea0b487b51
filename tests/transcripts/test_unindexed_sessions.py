"""Looks at files that are not indexed yet."""

from __future__ import annotations

from session_core.transcripts.transcript_store import TranscriptStore
from session_core.types import SessionFilter
from tests.transcripts.conftest import (
    index_all,
)
from tests.transcripts.trees import ClaudeTree, write_two_agents


def test_folders_are_listed_before_indexing(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    assert store.list_folders() == ["/src", "/src/app"]
    assert store.select_stores(["qwen"]).list_folders() == ["/src"]
    index_all(store)
    assert store.list_folders() == ["/src", "/src/app"]
    sessions = store.list_sessions(SessionFilter(project=("/nowhere", "/src/app")))
    assert [row.id for row in sessions.items] == ["c", "b", "a"]


def test_list_reads_no_history(tree: ClaudeTree):
    tree.write("one", ["first"])
    tree.write("two", ["second"])
    with tree.open_store() as store:
        assert {row.id for row in store.list_sessions().items} == {"one", "two"}
        assert store._index.read("SELECT count(*) FROM sessions") == [(0,)]
        assert store.search("second").hits[0].session_id == "two"
