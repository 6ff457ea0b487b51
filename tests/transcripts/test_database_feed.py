"""Sessions in databases of other agents: read while their writer works, and changed by nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from session_core import _sqlite3
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.formats.reading import FIXTURES
from tests.transcripts.trees import START

NEW_ROW = "INSERT INTO message VALUES (?, 'ses_1', ?, ?, ?)"
NEW_PART = "INSERT INTO part VALUES (?, ?, 'ses_1', ?, ?, ?)"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[_sqlite3.Connection]:
    """Return the connection of an agent, which holds its database open."""
    path = tmp_path / "person" / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rwc", busy_timeout_s=1)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript((FIXTURES / "opencode/version1.sql").read_text("utf-8"))
        yield connection


@pytest.fixture
def store(tmp_path: Path, writer: _sqlite3.Connection) -> Iterator[TranscriptStore]:
    """Return a store over the database."""
    environ = {"HOME": str(tmp_path / "person")}
    with TranscriptStore(tmp_path / "state", environ=environ) as store:
        yield store


def add_message(writer: _sqlite3.Connection, number: int, text: str) -> None:
    """Commit a message with one part, as the agent does."""
    at = 9_000_000 + number
    data = f'{{"role":"user","time":{{"created":{at}}}}}'
    writer.execute("BEGIN")
    writer.execute(NEW_ROW, (f"msg_9{number}", at, at, data))
    part = f'{{"type":"text","text":"{text}"}}'
    writer.execute(NEW_PART, (f"prt_9{number}", f"msg_9{number}", at, at, part))
    writer.execute("COMMIT")


def test_database_is_listed_read_and_found(store: TranscriptStore):
    index_all(store)

    rows = {row.id: row for row in store.list_sessions().items}
    (hit,) = store.search("roses").hits
    message = store.get_message(hit.session_id, hit.message_id)

    assert rows["ses_1"].source == "opencode"
    assert rows["ses_1"].resume == ("opencode", "--session", "ses_1")
    assert message is not None
    assert message["content"] == [
        {"type": "text", "text": "Where do the roses go?"},
        {"type": "image", "name": "bed.png", "size": None},
    ]


def test_committed_row_is_in_next_answer(store: TranscriptStore, writer: _sqlite3.Connection):
    index_all(store)

    for number in range(10):
        add_message(writer, number, f"token{number}x")
        assert [hit.snippet for hit in store.search(f"token{number}x").hits] == [f"token{number}x"]


def test_deleted_session_is_gone(store: TranscriptStore, writer: _sqlite3.Connection):
    index_all(store)
    assert len(store.search("roses").hits) == 1

    for table in ("part", "message", "session"):
        column = "id" if table == "session" else "session_id"
        writer.execute(f"DELETE FROM {table} WHERE {column} = 'ses_1'")  # noqa: S608 -- fixed

    # The fork has the message too, and is its only copy.
    assert [hit.session_id for hit in store.search("roses").hits] == ["ses_3"]
    assert store.get_session("ses_1") is None


def test_reading_leaves_no_lock(store: TranscriptStore, writer: _sqlite3.Connection):
    index_all(store)
    store.search("roses")

    writer.execute("PRAGMA busy_timeout=0")
    assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    add_message(writer, 1, "still writable")
    assert len(store.search("writable").hits) == 1


def test_index_of_database_is_rebuilt_alike(store: TranscriptStore):
    sql = (
        "SELECT s.session_id, m.number, m.flags FROM messages m JOIN sessions s ON s.id = m.session"
    )
    index_all(store)
    before = sorted(store._index.read(sql))

    store.rebuild()
    index_all(store)

    assert sorted(store._index.read(sql)) == before


@pytest.mark.parametrize("is_title_first", [True, False])
def test_title_from_a_database_joins_its_file(tmp_path: Path, is_title_first: bool):
    folder = tmp_path / "person" / ".codex"
    session = "019a0000-0000-7000-8000-000000000001"
    rollout = folder / "sessions/2026/11/19" / f"rollout-2026-11-19T10-00-00-{session}.jsonl"
    rollout.parent.mkdir(parents=True)
    meta = f'{{"id":"{session}","cwd":"/src","originator":"cli"}}'
    text = '[{"type":"input_text","text":"plant the roses"}]'
    item = f'{{"type":"message","role":"user","content":{text}}}'
    lines = (
        f'{{"timestamp":"2026-11-19T10:00:00Z","type":"session_meta","payload":{meta}}}',
        f'{{"timestamp":"2026-11-19T10:00:01Z","type":"response_item","payload":{item}}}',
    )
    environ = {"HOME": str(tmp_path / "person")}
    steps = [lambda: rollout.write_text("".join(line + "\n" for line in lines))]
    steps.insert(0 if is_title_first else 1, lambda: write_thread_title(folder, session))
    with TranscriptStore(tmp_path / "state", environ=environ) as store:
        for step in steps:
            step()
            index_all(store)
        (row,) = store.list_sessions().items

    assert (row.id, row.title, row.preview) == (session, "Garden plan", "plant the roses")


def write_thread_title(folder: Path, session: str) -> None:
    """Write the state database of Codex with the title of one thread."""
    uri = f"{(folder / 'state_5.sqlite').as_uri()}?mode=rwc"
    with closing(_sqlite3.connect(uri, busy_timeout_s=1)) as connection:
        connection.execute(
            "CREATE TABLE threads (id TEXT, updated_at INTEGER, name TEXT, title TEXT)"
        )
        values = (session, int(START), "Garden plan", "x")
        connection.execute("INSERT INTO threads VALUES (?, ?, ?, ?)", values)
