"""A watched store answers as a swept one does, and looks at no file that has not changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from session_core.transcripts import root_watch, roots
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import START, ClaudeTree


@pytest.fixture
def watched(tree: ClaudeTree) -> Iterator[TranscriptStore]:
    """Return a store that the kernel informs."""
    with tree.open_store() as store:
        assert store.start_watch()
        index_all(store)
        yield store


def list_ids(store: TranscriptStore) -> list[str]:
    """Return the ids of all sessions."""
    return sorted(row.id for row in store.list_sessions(limit=100).items)


def test_watch_sees_appends_and_new_files(tree: ClaudeTree, watched: TranscriptStore):
    for number in range(30):
        project = f"-work-{number % 5}"
        tree.write(f"session-{number % 5}-{number % 7}", [f"token{number}x"], project=project)
        assert len(watched.search(f"token{number}x").hits) == 1


def test_watch_sees_deletion_and_moves(tree: ClaudeTree, watched: TranscriptStore):
    tree.write("one", ["first"], project="-work-a")
    tree.write("two", ["second"], project="-work-b")
    assert list_ids(watched) == ["one", "two"]

    tree.get_path("one", "-work-a").unlink()
    (tree.projects / "-work-b").rename(tree.projects / "-work-c")
    assert list_ids(watched) == ["two"]

    tree.write("two", ["third"], project="-work-c")
    assert len(watched.search("third").hits) == 1

    shutil.rmtree(tree.projects)
    assert list_ids(watched) == []

    tree.write("three", ["anew"])
    assert list_ids(watched) == ["three"]
    assert len(watched.search("anew").hits) == 1


def test_watch_looks_at_changed_files_only(
    tree: ClaudeTree, watched: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    path = tree.write("one", ["first"])
    tree.write("two", ["second"])
    list_ids(watched)
    looked: list[str] = []
    sweep, update = roots.sweep_root, roots.update_file

    def look_at_all(root: roots.Root, *rest: Any) -> roots.Sweep:
        if os.path.isdir(root.path):  # noqa: PTH112 -- a missing root costs one call
            looked.append("all")
        return sweep(root, *rest)

    monkeypatch.setattr(root_watch, "sweep_root", look_at_all)
    monkeypatch.setattr(root_watch, "update_file", lambda *a: looked.append(a[2]) or update(*a))

    list_ids(watched)
    assert looked == []

    os.utime(path, (START, START))
    list_ids(watched)
    assert looked == ["-src-app/one.jsonl"]


def test_begin_of_watch_sweeps_once(tree: ClaudeTree, monkeypatch: pytest.MonkeyPatch):
    tree.write("one", ["first"])
    looked: list[str] = []
    sweep = roots.sweep_root
    monkeypatch.setattr(
        root_watch, "sweep_root", lambda root, *rest: looked.append(root.path) or sweep(root, *rest)
    )
    with tree.open_store() as store:
        assert store.start_watch()
        assert list_ids(store) == ["one"]

    assert looked.count(str(tree.projects)) == 1


def test_burst_of_events_is_swept(tree: ClaudeTree, watched: TranscriptStore):
    (sweeper,) = (
        root.sweeper
        for root in watched._indexer.catalog.roots.values()
        if root.root.path == str(tree.projects)
    )
    tree.write("one", ["first"])
    watched.search("first")
    assert sweeper._watch is not None
    # An overflow of the queue of events names no file.
    sweeper._watch._overflow |= 0xFFFF
    tree.write("two", ["second"])

    assert len(watched.search("second").hits) == 1


def test_watch_that_misses_is_not_trusted(
    tree: ClaudeTree, watched: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    # A file that was written just now is read again in any case.
    os.utime(tree.write("one", ["first"]), (START, START))
    watched.search("first")
    monkeypatch.setattr(root_watch.FolderWatch, "read_changes", lambda _: set())
    tree.write("one", ["second"])
    assert watched.search("second").hits == []

    monkeypatch.setattr(root_watch, "_CHECK_S", -1.0)
    assert len(watched.search("second").hits) == 1

    monkeypatch.setattr(root_watch, "_CHECK_S", 1000.0)
    tree.write("one", ["third"])
    assert len(watched.search("third").hits) == 1
