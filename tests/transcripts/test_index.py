"""The file of the index: worn, damaged or of an earlier version, it is made or read again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from session_core.transcripts import index, indexer
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import ClaudeTree


def describe_index(store: TranscriptStore) -> list[Any]:
    """Return the content of an index, without its row ids, which may differ."""
    index_all(store)
    sessions = (
        "SELECT session_id, native_id, title, preview, preview_number, folder, started_at,"
        " newest_at, parent_id, messages, compacted_to, output_tokens FROM sessions ORDER BY 1"
    )
    messages = (
        "SELECT s.session_id, m.number, m.place, m.length, m.at, m.flags, m.key FROM messages m"
        " JOIN sessions s ON s.id = m.session ORDER BY 1, 2"
    )
    sources = "SELECT path, size, offset, checksum, is_read, state, unknown FROM sources ORDER BY 1"
    return [store._index.read(sql) for sql in (sessions, messages, sources)]


def test_worn_index_is_built_again(tree: ClaudeTree, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(indexer, "MIN_REMOVED_MESSAGES", 10)
    path = tree.write("one", [f"message {number}" for number in range(20)])
    with tree.open_store() as store:
        index_all(store)
        path.write_bytes(path.read_bytes().replace(b"message 0", b"replaced "))
        index_all(store)

        assert store._index.read("SELECT value FROM meta WHERE key = 'dead'") == [(0,)]
        assert len(store.read_window("one", limit=50).messages) == 20
        assert [hit.message_id for hit in store.search("replaced").hits] == [0]


def test_library_starts_without_transcripts():
    names = "{'orjson', 'zstandard', 'inotify_simple', 'session_core.transcripts'}"
    code = f"import session_core, sys; assert not {names} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_damaged_index_is_built_again(tree: ClaudeTree):
    tree.write("one", ["findable"])
    with tree.open_store() as store:
        index_all(store)
    (path,) = tree.state.glob("index-*.db")
    path.write_bytes(b"not a database" * 1000)

    with tree.open_store() as store:
        assert [hit.session_id for hit in store.search("findable").hits] == ["one"]


def test_reader_version_reads_files_again(tree: ClaudeTree, monkeypatch: pytest.MonkeyPatch):
    from session_core.transcripts.formats.claude_code import ClaudeCodeFormat  # noqa: PLC0415

    tree.write("one", ["findable"])
    with tree.open_store() as store:
        before = describe_index(store)
    monkeypatch.setattr(ClaudeCodeFormat, "version", 99)

    with tree.open_store() as store:
        assert describe_index(store) == before
        assert store._index.read("SELECT version FROM sources") == [(99,)]


def test_free_pages_are_returned(tree: ClaudeTree, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index, "SHRINK_PAGES", 5)
    path = tree.write("one", [f"word{number} " * 200 for number in range(200)])
    tree.write("two", ["findable"])
    with tree.open_store() as store:
        index_all(store)
        path.unlink()
        index_all(store)
        store.rebuild()
        index_all(store)
        free = int(store._index._writer.execute("PRAGMA freelist_count").fetchone()[0])
        assert free <= 5
        assert [hit.session_id for hit in store.search("findable").hits] == ["two"]


def test_earlier_index_is_removed(tree: ClaudeTree):
    tree.write("one", ["findable"])
    tree.state.mkdir(parents=True, exist_ok=True)
    earlier = tree.state / "index-1.db"
    earlier.write_bytes(b"")
    os.utime(earlier, (0, 0))
    with tree.open_store() as store:
        index_all(store)
    assert not earlier.exists()
