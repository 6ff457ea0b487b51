"""The copies of a source that grows, changes, moves or disappears."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from session_core.errors import NotFound
from session_core.transcripts.keep import keeper
from session_core.transcripts.keep.copies import Copy
from session_core.transcripts.sources import Source
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.keep.conftest import keep_all, read_copy
from tests.transcripts.trees import START, ClaudeTree

LONG = 40_000


@pytest.fixture
def store(tree: ClaudeTree) -> Iterator[TranscriptStore]:
    """Return a store over the tree that keeps."""
    with tree.open_store() as store:
        store.keep.turn_on()
        yield store


def write_noise(tree: ClaudeTree, session: str, count: int, seed: int = 1) -> Path:
    """Write messages that compress badly."""
    chance = random.Random(seed)
    return tree.write(session, [chance.randbytes(LONG // 2).hex() for _ in range(count)])


def keep_and_read(store: TranscriptStore, session: str) -> bytes:
    """Index and keep everything, and return the kept bytes of a session."""
    index_all(store)
    keep_all(store)
    return read_copy(store, session)


def count_chunks(store: TranscriptStore) -> tuple[int, int]:
    """Return the number of chunks and the bytes in them."""
    (row,) = store.keep._copies.database.read(
        "SELECT count(*), coalesce(sum(length), 0) FROM chunks"
    )
    return row


def test_nothing_is_kept_unless_asked(tree: ClaudeTree):
    tree.write("one", ["a word"])
    with tree.open_store() as store:
        index_all(store)
        keep_all(store)

        assert store.keep.get_mode() is None
        with pytest.raises(NotFound, match="not kept"):
            read_copy(store, "one")
    assert not list(tree.state.glob("kept*"))


def test_append_stores_its_tail_alone(tree: ClaudeTree, store: TranscriptStore):
    path = write_noise(tree, "one", 100)
    assert keep_and_read(store, "one") == path.read_bytes()
    added = "SELECT max(id) FROM chunks"
    (before,) = store.keep._copies.database.read(added)[0]

    tree.write("one", ["one more"])

    assert keep_and_read(store, "one") == path.read_bytes()
    assert store.keep._copies.database.read(added)[0][0] - before <= 1
    assert count_chunks(store)[1] == path.stat().st_size


def test_equal_lines_are_stored_once(tree: ClaudeTree, store: TranscriptStore):
    path = write_noise(tree, "one", 100)
    other = tree.get_path("two")
    # Everything lies at another offset in the fork.
    other.write_bytes(b'{"type":"mode","sessionId":"two"}\n' + path.read_bytes())

    assert keep_and_read(store, "two") == other.read_bytes()
    assert count_chunks(store)[1] < 1.2 * path.stat().st_size


def test_scrubbed_secret_is_not_kept(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "the password is swordfish", "last"])
    keep_and_read(store, "one")

    path.write_bytes(path.read_bytes().replace(b"swordfish", b"*********"))

    assert b"swordfish" not in keep_and_read(store, "one")
    path.unlink()
    index_all(store)
    assert store.search("swordfish").hits == []
    assert [hit.session_id for hit in store.search("password").hits] == ["one"]


def test_emptied_file_counts_as_deleted(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word"])
    data = keep_and_read(store, "one")

    path.write_bytes(b"")

    assert keep_and_read(store, "one") == data
    assert [hit.session_id for hit in store.search("rare").hits] == ["one"]
    (row,) = store.list_sessions().items
    assert row.is_kept


def test_file_emptied_while_read_leaves_its_copy(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word"])
    data = keep_and_read(store, "one")
    tree.write("one", ["more"])
    find_difference = store.keep._keeper._find_difference

    def empty_and_compare(source: Source, copy: Copy) -> tuple[int, bool] | None:
        os.truncate(path, 0)
        return find_difference(source, copy)

    with mock.patch.object(store.keep._keeper, "_find_difference", empty_and_compare):
        keep_all(store)

    assert keep_and_read(store, "one") == data
    assert [hit.session_id for hit in store.search("rare").hits] == ["one"]


def test_truncated_file_is_followed(tree: ClaudeTree, store: TranscriptStore):
    path = write_noise(tree, "one", 30)
    keep_and_read(store, "one")

    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)

    assert keep_and_read(store, "one") == half
    assert count_chunks(store)[1] == len(half)


def test_deleted_and_returned_file_is_live(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word"])
    data = keep_and_read(store, "one")
    path.unlink()
    assert [row.is_kept for row in store.list_sessions().items] == [True]

    path.write_bytes(data)
    tree.write("one", ["more"])

    assert [row.is_kept for row in store.list_sessions().items] == [False]
    assert keep_and_read(store, "one") == path.read_bytes()


def test_renamed_file_takes_its_copy_along(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word"])
    keep_and_read(store, "one")
    other = tree.get_path("one", "-src-other")
    other.parent.mkdir()
    path.rename(other)

    assert keep_and_read(store, "one") == other.read_bytes()
    assert [(row.id, row.is_kept) for row in store.list_sessions().items] == [("one", False)]
    assert store.keep._copies.database.read("SELECT count(*) FROM copies") == [(1,)]


def test_copies_of_a_linked_folder_are_served(tree: ClaudeTree, store: TranscriptStore):
    store.close()
    place = tree.home / "dotfiles"
    (tree.home / ".claude").rename(place)
    (tree.home / ".claude").symlink_to(place)
    tree.write("one", ["a rare word"])
    with tree.open_store() as linked:
        keep_and_read(linked, "one")
    (tree.home / ".claude").unlink()
    shutil.rmtree(place)

    with tree.open_store() as anew:
        index_all(anew)
        assert [row.is_kept for row in anew.list_sessions().items] == [True]
        assert [hit.session_id for hit in anew.search("rare").hits] == ["one"]


def test_long_copy_is_compared_by_idle_work(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keeper, "MAX_CHECKED_BYTES", 1000)
    monkeypatch.setattr(keeper, "SLICE_BYTES", 300_000)
    monkeypatch.setattr(keeper, "_IDLE_NS", 0)
    path = write_noise(tree, "one", 60)
    keep_and_read(store, "one")
    data = bytearray(path.read_bytes())
    data[5000:5010] = b"x" * 10
    path.write_bytes(bytes(data))
    tree.write("one", ["one more"])
    os.utime(path, (START, START))

    assert b"one more" in keep_and_read(store, "one")
    assert keep_and_read(store, "one") == path.read_bytes()


def test_no_copy_is_stored_without_its_note(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["a rare word"])
    full = mock.patch.object(keeper, "remember_kept_stores", side_effect=OSError(28, "disk full"))

    with full:
        assert not store.keep.scan_and_copy()

    assert "disk full" in (store.keep.measure_status().problem or "")
    assert count_chunks(store) == (0, 0)
    keep_all(store)
    assert count_chunks(store)[0] == 1


def test_off_keeps_nothing_new(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    data = keep_and_read(store, "one")
    store.keep.turn_off()
    tree.write("one", ["second"])

    assert keep_and_read(store, "one") == data
    path.unlink()
    index_all(store)
    assert [hit.session_id for hit in store.search("first").hits] == ["one"]


def test_off_drops_what_is_scrubbed(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word", "the password is swordfish", "last"])
    first, *_ = keep_and_read(store, "one").splitlines(keepends=True)
    tree.write("two", ["the password is swordfish"])
    keep_and_read(store, "two")
    store.keep.turn_off()

    for name in ("one", "two"):
        file = tree.get_path(name)
        file.write_bytes(file.read_bytes().replace(b"swordfish", b"*********"))

    assert keep_and_read(store, "one") == first
    with pytest.raises(NotFound, match="not kept"):
        read_copy(store, "two")
    path.unlink()
    store.rebuild()
    index_all(store)
    assert store.search("swordfish").hits == []
    assert [hit.session_id for hit in store.search("rare").hits] == ["one"]


def test_cut_copy_is_whole_once_on(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["a rare word", "the password is swordfish", "last"])
    keep_and_read(store, "one")
    store.keep.turn_off()
    path.write_bytes(path.read_bytes().replace(b"swordfish", b"*********"))
    keep_and_read(store, "one")

    store.keep.turn_on()

    assert keep_and_read(store, "one") == path.read_bytes()


def test_hostile_files_are_kept_byte_for_byte(tree: ClaudeTree, store: TranscriptStore):
    blocks = {
        "nul": b"\0" * 300_000 + b"\n" + b"\xff\xfe\n",
        "newlines": b"\n" * 500_000,
        "line": b"x" * 20_000_000,
        "torn": b'{"type":"user"',
        "surrogate": b'{"a":"\\ud800"}\n' * 1000,
    }
    for name, data in blocks.items():
        tree.get_path(name).parent.mkdir(exist_ok=True)
        tree.get_path(name).write_bytes(data)
    index_all(store)
    keep_all(store)

    copies = "SELECT id, path, size FROM copies"
    for number, path, size in store.keep._copies.database.read(copies):
        data = blocks[Path(path).stem]
        copy = store.keep._copies.find_copy(str(tree.projects), path)
        assert copy is not None
        assert copy.id == number
        assert size == len(data)
        with store.keep._copies.open_source(copy.full_path) as source:
            assert source.read(0, len(data) + 1) == data


def test_link_in_the_tree_is_not_kept(tree: ClaudeTree, store: TranscriptStore, tmp_path: Path):
    tree.write("one", ["first"])
    secret = tmp_path / "secret.jsonl"
    secret.write_text("secret\n")
    tree.get_path("two").symlink_to(secret)

    keep_all(store)

    paths = store.keep._copies.database.read("SELECT path FROM copies")
    assert paths == [("-src-app/one.jsonl",)]


def test_state_folder_is_private(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first"])
    keep_all(store)

    assert tree.state.stat().st_mode & 0o777 == 0o700
