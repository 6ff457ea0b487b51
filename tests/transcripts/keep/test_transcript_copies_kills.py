"""Kills while keeping, and processes that keep at once: the copies stay valid."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from session_core.transcripts.keep.chunks import compute_digest, decompress_chunk
from session_core.transcripts.transcript_store import TranscriptStore
from tests.cli.fork_server import ScriptProcess, get_fork_server
from tests.transcripts.conftest import index_all
from tests.transcripts.keep.conftest import keep_all
from tests.transcripts.test_index_writer import change_file
from tests.transcripts.trees import ClaudeTree

KEEPER = """
import sys
from session_core.errors import Busy
from session_core.transcripts.keep import keeper
from session_core.transcripts.transcript_store import TranscriptStore
keeper.SLICE_BYTES = 40_000
with TranscriptStore(sys.argv[1], environ={"HOME": sys.argv[2]}) as store:
    print("open", flush=True)
    while True:
        store.keep.scan_and_copy(0.02)
"""

_SESSIONS, _MESSAGES, _KILLS = 12, 150, 10


def fill_tree(tree: ClaudeTree, chance: random.Random) -> None:
    """Write sessions of several chunks."""
    for number in range(_SESSIONS):
        texts = [f"{n} {chance.randbytes(400).hex()}" for n in range(_MESSAGES)]
        tree.write(f"session-{number}", texts)


def start_keeper(stack: ExitStack, tree: ClaudeTree) -> ScriptProcess:
    """Start a process that keeps until it is killed."""
    started = get_fork_server().start_script(KEEPER, tree.state, tree.home)
    process = stack.enter_context(started)
    process.stdout.readline()
    return process


def check_copies(store: TranscriptStore) -> None:
    """Check that every copy is complete in itself, and that nothing is left over."""
    read = store.keep._copies.database.read
    assert read("PRAGMA integrity_check") == [("ok",)]
    for digest, length, data in read("SELECT digest, length, data FROM chunks"):
        assert compute_digest(decompress_chunk(data, length)) == digest
    pieces = "SELECT p.copy, p.offset, c.length FROM pieces p JOIN chunks c ON c.id = p.chunk"
    ends: dict[int, int] = {}
    for number, offset, length in read(f"{pieces} ORDER BY 1, 2"):
        assert offset == ends.get(number, 0)
        ends[number] = offset + length
    sizes = {number: size for number, size in read("SELECT id, size FROM copies") if size}
    assert ends == sizes
    assert read("SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM pieces)") == [(0,)]


def check_living_files(store: TranscriptStore, tree: ClaudeTree) -> None:
    """Check that the copies of all files that exist equal them."""
    for path in tree.projects.rglob("*.jsonl"):
        copy = store.keep._copies.find_copy(
            str(tree.projects), str(path.relative_to(tree.projects))
        )
        data = path.read_bytes()
        if copy is None:
            assert not data
        elif data:
            with store.keep._copies.open_source(copy.full_path) as source:
                assert source.read(0, len(data) + 1) == data


_MANY_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13)]


@pytest.mark.parametrize("seed", [1, 2, *_MANY_SEEDS])
def test_killed_keeping_leaves_valid_copies(tree: ClaudeTree, seed: int):
    chance = random.Random(seed)
    fill_tree(tree, chance)
    with tree.open_store() as store:
        store.keep.turn_on()

    for _ in range(_KILLS):
        with ExitStack() as stack:
            process = start_keeper(stack, tree)
            until = time.monotonic() + chance.random() * 0.15
            while time.monotonic() < until:
                change_file(chance, tree)
            process.kill()
        with tree.open_store() as store:
            check_copies(store)

    with tree.open_store() as store:
        keep_all(store)
        check_copies(store)
        check_living_files(store, tree)


@pytest.mark.requirement("transcripts:keep")
def test_processes_that_keep_together_agree(tree: ClaudeTree):
    chance = random.Random(1)
    fill_tree(tree, chance)
    with tree.open_store() as store:
        store.keep.turn_on()

    with ExitStack() as stack:
        processes = [start_keeper(stack, tree) for _ in range(3)]
        until = time.monotonic() + 1
        while time.monotonic() < until:
            change_file(chance, tree)
        assert all(process.is_running() for process in processes)

    with tree.open_store() as store:
        keep_all(store)
        check_copies(store)
        check_living_files(store, tree)


FORGETTER = """
import sys
from session_core.transcripts.transcript_store import TranscriptStore
with TranscriptStore(sys.argv[1], environ={"HOME": sys.argv[2]}) as store:
    handle = store.keep.plan_forget("session-0").handle
    print("open", flush=True)
    store.keep.forget(handle)
"""


@pytest.mark.parametrize("seed", range(6))
def test_killed_forgetting_is_finished_later(tree: ClaudeTree, seed: int):
    chance = random.Random(seed)
    tree.write("session-0", ["the word is swordfish"])
    for number in range(1, 40):
        tree.write(f"session-{number}", [f"other {number}"])
    with tree.open_store() as store:
        store.keep.turn_on()
        index_all(store)
        keep_all(store)

    with get_fork_server().start_script(FORGETTER, tree.state, tree.home) as process:
        process.stdout.readline()
        time.sleep(chance.random() * 0.03)
        process.kill()

    with tree.open_store() as store:
        is_forgotten = bool(store.keep.measure_status().forgotten)
        index_all(store)
        keep_all(store)
        assert store.keep._copies.unfinished == 0
        assert [hit.session_id for hit in store.search("swordfish").hits] == (
            [] if is_forgotten else ["session-0"]
        )
        assert len(store.list_sessions(limit=100).items) == (39 if is_forgotten else 40)
    assert has_bytes(tree.state, b"swordfish") is False or not is_forgotten


def has_bytes(folder: Path, text: bytes) -> bool:
    """Return True if a file in a folder has some bytes."""
    return any(text in path.read_bytes() for path in folder.rglob("*") if path.is_file())
