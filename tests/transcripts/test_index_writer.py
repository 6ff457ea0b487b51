"""Kills and other processes while parts are written: the index stays whole."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from session_core.transcripts.transcript_store import TranscriptStore
from tests.cli.fork_server import get_fork_server
from tests.transcripts.test_index import describe_index
from tests.transcripts.trees import ClaudeTree, make_line

INDEXER = """
import sys
from session_core.errors import Busy
from session_core.transcripts import indexer
from session_core.transcripts.transcript_store import TranscriptStore
indexer.SLICE_BYTES = 20_000
with TranscriptStore(sys.argv[1], environ={"HOME": sys.argv[2]}) as store:
    print("open", flush=True)
    while True:
        try:
            store.index_pending(0.01)
        except Busy:
            pass
"""

_SESSIONS, _MESSAGES, _KILLS = 12, 120, 12


def change_file(chance: random.Random, tree: ClaudeTree) -> None:
    """Change one transcript in a way that agents, people and disks do."""
    session = f"session-{chance.randrange(_SESSIONS)}"
    path = tree.get_path(session)
    data = path.read_bytes() if path.exists() else b""
    change = chance.choice(("append", "append", "tear", "truncate", "edit", "replace", "rename"))
    if change == "append":
        tree.write(session, [f"more {chance.random()}" for _ in range(chance.randrange(1, 9))])
    elif change == "tear":
        number = 1000 + chance.randrange(1000)
        with path.open("ab") as file:
            file.write(make_line(session, number, "torn")[: chance.randrange(1, 60)])
    elif change == "truncate":
        with path.open("ab") as file:
            file.truncate(chance.randrange(len(data) + 1))
    elif change == "edit" and data:
        at = chance.randrange(len(data))
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([chance.choice(b"abcxyz")]))
    elif change == "replace":
        other = path.with_suffix(".tmp")
        other.write_bytes(b"".join(make_line(session, n, f"anew {n}") for n in range(5)))
        other.replace(path)
    elif change == "rename" and path.exists():
        path.rename(tree.get_path(f"renamed-{chance.randrange(10**6)}"))


_MANY_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 19)]


@pytest.mark.parametrize("seed", [1, 2, *_MANY_SEEDS])
def test_killed_indexing_equals_a_fresh_index(tree: ClaudeTree, tmp_path: Path, seed: int):
    chance = random.Random(seed)
    for number in range(_SESSIONS):
        texts = [f"message {n} {chance.random()}" for n in range(_MESSAGES)]
        tree.write(f"session-{number}", texts)

    for _ in range(_KILLS):
        with get_fork_server().start_script(INDEXER, tree.state, tree.home) as process:
            process.stdout.readline()
            until = time.monotonic() + chance.random() * 0.1
            while time.monotonic() < until:
                change_file(chance, tree)
            process.kill()

    require_fresh_equal(tree, tmp_path)


def test_processes_that_index_together_agree(tree: ClaudeTree, tmp_path: Path):
    chance = random.Random(1)
    for number in range(_SESSIONS):
        tree.write(f"session-{number}", [f"message {n}" for n in range(_MESSAGES)])

    with ExitStack() as stack:
        processes = [
            stack.enter_context(get_fork_server().start_script(INDEXER, tree.state, tree.home))
            for _ in range(3)
        ]
        for process in processes:
            process.stdout.readline()
        until = time.monotonic() + 1
        while time.monotonic() < until:
            change_file(chance, tree)
        assert all(process.is_running() for process in processes)

    require_fresh_equal(tree, tmp_path)


def require_fresh_equal(tree: ClaudeTree, folder: Path) -> None:
    """Check that the index of a tree, brought up to date, equals one that is built anew."""
    # A file that was written just now may still change without another time.
    for path in tree.projects.rglob("*.jsonl"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
    with tree.open_store() as store:
        kept = describe_index(store)
    with TranscriptStore(folder / "fresh", environ={"HOME": str(tree.home)}) as fresh:
        assert kept == describe_index(fresh)
