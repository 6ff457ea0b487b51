"""Fixtures of the tests of transcripts: a home folder with a tree of transcripts."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.trees import ClaudeTree

APPEND = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"


@pytest.fixture
def tree(tmp_path: Path) -> ClaudeTree:
    """Return an empty tree."""
    return ClaudeTree(tmp_path / "person")


@pytest.fixture
def store(tree: ClaudeTree) -> Iterator[TranscriptStore]:
    """Return a store over the tree."""
    with tree.open_store() as store:
        yield store


def index_all(store: TranscriptStore) -> None:
    """Index until nothing is left."""
    while store.index_pending(1.0):
        pass


def read_everything(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time of change and digest of everything below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(data).hexdigest()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, digest)
    return found


def append_elsewhere(path: Path, data: bytes) -> None:
    """Append bytes from another process."""
    subprocess.run([sys.executable, "-c", APPEND, str(path)], input=data, check=True)


def find_hits(store: TranscriptStore, query: str, **options: object) -> list[tuple[str, int]]:
    """Return the hits of a search."""
    result = store.search(query, **options)
    return [(hit.session_id, hit.message_id) for hit in result.hits]


def read_texts(store: TranscriptStore, session: str, **options: object) -> list[str]:
    """Return the texts of a window."""
    window = store.read_window(session, **options)
    return [message["content"] for message in window.messages]
