"""Kept rows that were changed in place: the copy and the index follow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from session_core import _sqlite3
from session_core.transcripts.keep import comparison
from session_core.transcripts.keep.comparison import RowComparison
from session_core.transcripts.keep.copies import Copy
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.keep.conftest import keep_all, read_copy
from tests.transcripts.test_agents import DATABASES, make_home
from tests.transcripts.trees import START

OPENCODE, OPENCLAW = "opencode/version2.sql", "openclaw/agent.sql"
SESSIONS = {OPENCODE: "ses_1", OPENCLAW: "3c3c"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with a store of each agent."""
    return make_home(tmp_path / "person")


@pytest.fixture
def store(home: Path, tmp_path: Path) -> Iterator[TranscriptStore]:
    """Return a store over that home which has kept everything."""
    with TranscriptStore(tmp_path / "state", environ={"HOME": str(home)}) as store:
        store.keep.turn_on()
        update(store)
        yield store


def update(store: TranscriptStore) -> None:
    """Index and keep everything."""
    index_all(store)
    keep_all(store)


def change(home: Path, name: str, sql: str) -> Path:
    """Change a database of an agent, not just now, and return its path."""
    path = home / DATABASES[name]
    with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rw", busy_timeout_s=1)) as connection:
        connection.execute(sql)
    os.utime(path, (START, START))
    return path


def find_sessions(store: TranscriptStore, word: str, source: str) -> list[str]:
    """Return the sessions of a store that have a word."""
    hits = store.search(word).hits
    return [hit.session_id for hit in hits if hit.source == source]


@pytest.mark.parametrize(
    ("name", "sql", "word"),
    [
        (OPENCODE, "UPDATE session_message SET data = replace(data, 'roses', 'XXXX')", "roses"),
        (OPENCODE, "DELETE FROM session_message WHERE rowid = 1", "roses"),
        (
            OPENCLAW,
            "UPDATE transcript_events SET event_json = replace(event_json, 'bread', 'XXXX')",
            "bread",
        ),
    ],
)
def test_rows_scrubbed_in_place_are_dropped(
    store: TranscriptStore, home: Path, name: str, sql: str, word: str
):
    session = SESSIONS[name]
    assert word.encode() in read_copy(store, session)
    before = store.get_session(session)
    path = change(home, name, sql)
    update(store)

    source = name.partition("/")[0]
    after = store.get_session(session)
    assert find_sessions(store, word, source).count(session) == 0
    assert word.encode() not in read_copy(store, session)
    assert before is not None
    assert after is not None
    assert after.title == before.title
    path.unlink()
    index_all(store)
    assert find_sessions(store, word, source).count(session) == 0
    assert store.read_window(session).messages


def test_off_drops_rows_that_are_scrubbed(store: TranscriptStore, home: Path):
    rows = read_copy(store, "ses_1").count(b'"row"')
    store.keep.turn_off()
    change(home, OPENCODE, "UPDATE session_message SET data = replace(data, 'roses', 'XXXX')")
    update(store)

    copy = read_copy(store, "ses_1")
    assert b"roses" not in copy
    assert b"XXXX" not in copy
    assert copy.count(b'"row"') == rows - 1
    store.keep.turn_on()
    update(store)
    assert b"XXXX" in read_copy(store, "ses_1")


def test_off_keeps_no_new_rows(store: TranscriptStore, home: Path):
    before = read_copy(store, "ses_1")
    store.keep.turn_off()
    sql = (
        "INSERT INTO session_message SELECT 'new', session_id, type, 100, time_created,"
        " time_updated, data FROM session_message LIMIT 1"
    )
    change(home, OPENCODE, sql)
    update(store)

    assert read_copy(store, "ses_1") == before


def test_index_that_is_behind_follows_later(store: TranscriptStore, home: Path):
    change(home, OPENCODE, "UPDATE session_message SET data = replace(data, 'roses', 'XXXX')")
    keep_all(store)
    assert b"roses" not in read_copy(store, "ses_1")

    index_all(store)
    store.keep.copy_pending(1.0)

    assert find_sessions(store, "roses", "opencode") == []


@pytest.mark.parametrize("name", [OPENCODE, OPENCLAW])
def test_session_without_its_messages_is_kept(store: TranscriptStore, home: Path, name: str):
    session = SESSIONS[name]
    before = store.read_window(session).messages
    total = len(store.list_sessions(limit=100).items)
    table = "session_message" if name == OPENCODE else "transcript_events"
    change(home, name, f"DELETE FROM {table} WHERE session_id = '{session}'")  # noqa: S608 -- fixed
    update(store)
    index_all(store)

    row = store.get_session(session)
    assert before
    assert store.read_window(session).messages == before
    assert row is not None
    assert row.is_kept
    assert len(store.list_sessions(limit=100).items) == total
    assert store.keep.measure_status().gone == 1
    update(store)
    assert store.read_window(session).messages == before


def test_session_read_again_has_its_totals(store: TranscriptStore, home: Path):
    before = store.get_session("ses_1")
    change(home, OPENCODE, "UPDATE session_message SET data = replace(data, 'roses', 'XXXX')")
    update(store)

    after = store.get_session("ses_1")

    assert before is not None
    assert after is not None
    assert (after.messages, after.tokens) == (before.messages, before.tokens)


def test_comparison_continues_in_another_process(
    store: TranscriptStore, home: Path, tmp_path: Path
):
    change(home, OPENCODE, "UPDATE session_message SET data = replace(data, 'roses', 'XXXX')")
    place = DATABASES[OPENCODE].rpartition("/")[2]
    copies = store.keep._copies._copies.values()
    wanted = sorted(copy.path for copy in copies if copy.path.startswith(place))
    store.close()
    ticks = iter(range(1000))
    # The time is over with each second look at the clock, so that each process compares one.
    clock = mock.Mock(wraps=time, monotonic=lambda: next(ticks) % 2)
    compared: list[str] = []
    is_different = RowComparison._is_different

    def note_and_compare(self: RowComparison, reader: Any, place: Any, copy: Copy) -> bool:
        compared.append(copy.path)
        return is_different(self, reader, place, copy)

    for _ in range(len(wanted) + 2):
        with TranscriptStore(tmp_path / "state", environ={"HOME": str(home)}) as anew:
            anew.list_sessions()
            roots = anew._indexer.catalog.roots.values()
            (root,) = (root for root in roots if place in root.files)
            with (
                mock.patch.object(comparison, "time", clock),
                mock.patch.object(RowComparison, "_is_different", note_and_compare),
            ):
                list(
                    RowComparison(root.copies, mock.Mock()).find_changed_copies(
                        root, place, 0, is_anew=True
                    )
                )

    assert compared == wanted
