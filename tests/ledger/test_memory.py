"""The ledger of a database in memory, and every part of a home that runs on it."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    InvalidInput,
    Ledger,
    Maintenance,
    OpenedHome,
    SessionDB,
    SessionSource,
    SessionStore,
    Unsupported,
    open_home,
)
from session_core.ledger import memory
from session_core.maintenance import PlanRequest
from session_core.routing.session_store import check_database

CHAT = SessionSource(platform="telegram", chat_id="42", user_id="7", chat_type="dm")
DAY_S = 86_400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedHome]:
    """Return a home in memory; the working folder stays empty."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with open_home(":memory:") as opened:
        yield opened
    assert list(folder.iterdir()) == []


def build_echo(run: Any) -> Any:
    def answer(run: Any, message: str) -> str:
        run.append("user", message)
        run.append("assistant", f"you said {message}")
        return f"you said {message}"

    return answer


def add_old_session(home: OpenedHome, session_id: str = "old") -> None:
    long_ago = time.time() - 120 * DAY_S
    create = {"source": "cli", "started_at": long_ago}
    for text in ("one", "two"):
        home.db.append_message(session_id, "user", text, timestamp=long_ago, create=create)
    home.db.state.merge_session_state(session_id, {"key": 1})
    home.db.end_session(session_id, "user_exit")


def list_texts(home: OpenedHome, session_id: str) -> list[Any]:
    return [row["content"] for row in home.db.get_messages(session_id)]


@pytest.mark.requirement("state:memory")
def test_every_part_runs_in_memory(home: OpenedHome) -> None:
    assert (home.path, home.db.folder, home.store.sessions_dir) == (None, None, None)
    assert home.runtime(build_echo).handle(CHAT, "hello").text == "you said hello"
    entry = home.store.get_or_create_session(CHAT)
    assert list_texts(home, entry.session_id) == ["hello", "you said hello"]
    add_old_session(home)
    preview = home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
    result = home.maintenance.apply(preview.plan)
    assert home.db.get_session("old") is None
    assert home.ledger.count_trash_bytes() > 0
    assert home.ledger.count_disk_bytes() == 0
    home.maintenance.restore(result.batch)
    assert list_texts(home, "old") == ["one", "two"]
    assert home.db.state.read_session_state("old") == {"key": 1}
    assert [entry.what for entry in home.ledger.list_audit_entries().items]


@pytest.mark.requirement("state:memory")
@pytest.mark.parametrize("shape", ["in_place", "continuation"])
def test_compression_and_undo_run_in_memory(home: OpenedHome, shape: Any) -> None:
    entry = home.store.get_or_create_session(CHAT)
    for number in range(30):
        role = "assistant" if number % 2 else "user"
        home.db.append_message(
            entry.session_id, role, f"said {number} " * 40, create={"source": "telegram"}
        )
    before = list_texts(home, entry.session_id)
    result = home.compressor.compress(
        entry.session_id, lambda _: "a summary", shape=shape, keep_last=4
    )
    assert len(list_texts(home, result.session_id)) < len(before)
    assert home.store.get_or_create_session(CHAT).session_id == result.session_id
    home.compressor.undo(result.batch)
    assert list_texts(home, entry.session_id) == before


def test_export_and_import_run_in_memory(home: OpenedHome, tmp_path: Path) -> None:
    add_old_session(home)
    file = tmp_path / "export.jsonl"
    home.maintenance.export_sessions(file)
    assert json.loads(file.read_text().splitlines()[0])["id"] == "old"
    with open_home(":memory:") as copy:
        copy.maintenance.import_sessions(file)
        assert list_texts(copy, "old") == ["one", "two"]
        assert copy.db.state.read_session_state("old") == {"key": 1}


def test_pins_and_edits_run_in_memory(home: OpenedHome) -> None:
    add_old_session(home)
    home.maintenance.edit("old", title="Trip", pinned=True)
    assert home.db.get_session_title("old") == "Trip"
    assert home.ledger.pins.list_pinned() == {"old"}
    preview = home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
    assert preview.count == 0


def test_routes_survive_new_store(home: OpenedHome) -> None:
    entry = home.store.get_or_create_session(CHAT)
    with SessionStore(db=home.db) as other:
        assert other.get(entry.session_key) == entry
        other.reset_session(entry.session_key)
        assert home.store.get_or_create_session(CHAT).session_id != entry.session_id


def test_parts_of_other_database_are_refused(home: OpenedHome, tmp_path: Path) -> None:
    with SessionDB(":memory:") as other, SessionDB(tmp_path / "state.db") as file:
        for db in (other, file):
            with pytest.raises(InvalidInput, match="another"):
                check_database(home.store, db)
            with pytest.raises(InvalidInput, match="another"):
                Maintenance(db, home.ledger, store=home.store).plan(PlanRequest("sessions"))


def test_store_without_folder_needs_database() -> None:
    with pytest.raises(InvalidInput, match="sessions_dir"):
        SessionStore()


def test_ledgers_of_one_database_share_plans() -> None:
    with SessionDB(":memory:ledger") as db, SessionDB(":memory:ledger") as same:
        home_id = db.admin.get_home_id()
        with Ledger.open(db) as ledger:
            batch = ledger.add_batch("test").id
        with pytest.raises(InvalidInput, match="closed"):
            ledger.get_batch(batch)
        with Ledger.open(same) as other:
            assert other.get_batch(batch).what == "test"
    assert home_id in memory._locations
    del db, same
    gc.collect()
    assert home_id not in memory._locations


def test_ledger_refuses_another_database(tmp_path: Path) -> None:
    with SessionDB(":memory:") as db, SessionDB(":memory:") as other, Ledger.open(db) as ledger:
        ledger.check_home(db)
        with pytest.raises(InvalidInput, match="another"):
            ledger.check_home(other)
        with SessionDB(tmp_path / "state.db") as file, pytest.raises(InvalidInput):
            ledger.check_home(file)


def test_trash_folder_is_refused_in_memory(tmp_path: Path) -> None:
    with SessionDB(":memory:") as db, pytest.raises(Unsupported, match="trash_dir"):
        Ledger.open(db, trash_dir=tmp_path)


def test_state_folder_is_refused_in_memory(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="omit state"):
        open_home(":memory:", state=tmp_path)
