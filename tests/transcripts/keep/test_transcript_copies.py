"""Kept sessions: after their agent has deleted them, they are listed, found and read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from session_core import _sqlite3
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all, read_everything
from tests.transcripts.keep.conftest import keep_all, read_copy
from tests.transcripts.test_agents import CODEX_ID, DATABASES, FILES, make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with a store of each agent."""
    return make_home(tmp_path / "person")


@pytest.fixture
def store(home: Path, tmp_path: Path) -> Iterator[TranscriptStore]:
    """Return a store over that home which keeps everything."""
    with TranscriptStore(tmp_path / "state", environ={"HOME": str(home)}) as store:
        store.keep.turn_on()
        index_all(store)
        keep_all(store)
        yield store


def describe_all(store: TranscriptStore) -> dict[str, object]:
    """Return the content of every session by its id."""
    index_all(store)
    return {
        row.id: (row.source, row.title, row.project, store.read_window(row.id, limit=1000).messages)
        for row in store.list_sessions(limit=100).items
    }


def remove_agents(home: Path) -> None:
    """Delete everything that the agents have."""
    for name in (".claude", ".codex", ".gemini", ".qwen", ".copilot", ".openclaw", ".local"):
        shutil.rmtree(home / name)


@pytest.mark.requirement("transcripts:keep")
def test_every_session_survives_its_source(store: TranscriptStore, home: Path):
    before = describe_all(store)
    files = {place: (home / place).read_bytes() for place in FILES.values()}
    ids = {row.id: row for row in store.list_sessions(limit=100).items}

    remove_agents(home)

    assert describe_all(store) == before
    assert {row.is_kept for row in store.list_sessions(limit=100).items} == {True}
    assert {row.resume for row in store.list_sessions(limit=100).items} == {None}
    for session_id in ids:
        data = read_copy(store, session_id)
        assert data in files.values() or data.startswith(b'{"columns":')


@pytest.mark.requirement("transcripts:keep")
def test_rebuilt_index_starts_from_copies(store: TranscriptStore, home: Path, tmp_path: Path):
    before = describe_all(store)
    remove_agents(home)
    store.close()
    for path in (tmp_path / "state").glob("index-*"):
        path.unlink()

    with TranscriptStore(tmp_path / "state", environ={"HOME": str(home)}) as fresh:
        assert describe_all(fresh) == before
        assert [hit.session_id for hit in fresh.search('"rain gauge"').hits]


def test_nothing_of_any_agent_is_changed(store: TranscriptStore, home: Path):
    before = read_everything(home)

    keep_all(store)

    assert read_everything(home) == before


def test_deleted_rows_leave_their_session(store: TranscriptStore, home: Path):
    before = describe_all(store)
    path = home / DATABASES["opencode/version2.sql"]
    with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rw", busy_timeout_s=1)) as connection:
        tables = ("session_message", "message", "part", "session", "session_v2")
        present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        for table in present.intersection(tables):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 -- fixed

    assert describe_all(store) == before
    kept = {row.source for row in store.list_sessions(limit=100).items if row.is_kept}
    assert kept == {"opencode"}


def test_cold_rollout_is_no_second_session(store: TranscriptStore, home: Path):
    before = describe_all(store)
    path = home / FILES["codex/paginated.jsonl"]
    cold = path.with_name(path.name + ".zst")
    cold.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()

    assert describe_all(store) == before
    keep_all(store)
    keep_all(store)
    row = store.get_session(CODEX_ID)
    assert row is not None
    assert not row.is_kept
    assert read_copy(store, CODEX_ID) == cold.read_bytes()

    cold.unlink()
    assert describe_all(store) == before


def test_status_counts_what_is_kept(store: TranscriptStore, home: Path):
    assert store.keep.measure_status().gone == 0
    shutil.rmtree(home / ".claude")
    store.list_sessions()

    status = store.keep.measure_status()

    assert status.mode == "on"
    assert status.stores["claude-code"].gone == 2
    assert status.stores["claude-code"].sessions == 2
    assert status.stored_bytes > 0
