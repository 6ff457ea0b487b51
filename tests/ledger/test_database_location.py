"""Ledgers in the database of a home: in memory, and in tables of a PostgreSQL database."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
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
from session_core.errors import Busy, Changed, Conflict
from session_core.ledger import database_location
from session_core.ledger.execute import resume_steps, run_step
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance import PlanRequest
from session_core.routing.session_store import check_database
from session_core.state.postgres.store import PostgresStore
from tests.postgres_home import get_home_address, make_postgres, read_tables

CHAT = SessionSource(platform="telegram", chat_id="42", user_id="7", chat_type="dm")
DAY_S = 86_400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenedHome]:
    """Return a home in memory. The working folder stays empty."""
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
    assert home_id in database_location._locations
    del db, same
    gc.collect()
    assert home_id not in database_location._locations


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


OLD = 1_500_000_000.0

HELD_STEP = """
import sys
from session_core import Ledger
from session_core.ledger.execute import run_step
from session_core.ledger.types import TrashItem
from session_core.state.postgres.session_db import PostgresDB

def change(db):
    db.delete_sessions(["a"])
    print("removed", flush=True)
    sys.stdin.read()

with PostgresDB(sys.argv[1]) as db, Ledger.open(db) as ledger:
    kept = [TrashItem("message", row) for row in db.get_messages("a")]
    run_step(db, ledger, sys.argv[2], before=lambda _: kept, change=change, members=["a"])
"""


@pytest.fixture
def db(home_path: Path) -> Iterator[Any]:
    """Return a home with three old sessions."""
    with make_postgres(home_path) as db:
        for session in ("a", "b", "c"):
            create = {"source": "cli", "started_at": OLD}
            db.append_message(session, "user", f"said in {session}", timestamp=OLD, create=create)
            db.end_session(session, "user_exit")
        yield db


@pytest.fixture
def ledger(db: Any) -> Iterator[Ledger]:
    with Ledger.open(db) as ledger:
        yield ledger


def begin_batch(ledger: Ledger) -> str:
    plan = ledger.add_plan("sessions", [Member(name) for name in "abc"], None)
    return ledger.begin_plan(plan.handle).batch_id


def run(db: Any, ledger: Ledger, batch: str, change: Any, **options: Any) -> Any:
    """Run a step that stores the messages of the session `a`."""
    return run_step(
        db,
        ledger,
        batch,
        before=lambda db: (TrashItem("message", row) for row in db.get_messages("a")),
        change=change,
        members=["a"],
        **options,
    )


def remove_session(db: Any) -> dict[str, int]:
    return {"removed": db.delete_sessions(["a"])}


def list_ledger_rows(db: Any) -> list[Any]:
    return db._store.read(lambda handle: handle.fetch_tuples("SELECT id, state FROM steps"))


@pytest.mark.requirement("ledger:steps")
def test_step_and_trash_commit_together(db: Any, ledger: Ledger, home_path: Path) -> None:
    batch = begin_batch(ledger)
    with make_postgres(home_path) as other:

        def change(db: Any) -> dict[str, int]:
            assert list_ledger_rows(other) == []
            assert len(list_ledger_rows(db)) == 1
            return remove_session(db)

        assert run(db, ledger, batch, change) == {"removed": 1}
        assert other.get_session("a") is None
        assert [state for _, state in list_ledger_rows(other)] == ["done"]
    (step,) = ledger.list_steps(batch)
    assert [item.value["content"] for item in ledger.read_trash(step.id)] == ["said in a"]
    assert read_tables(db)["state_meta"] == []


@pytest.mark.requirement("ledger:steps")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, Changed("it was changed")])
def test_failed_step_leaves_nothing(db: Any, ledger: Ledger, error: Any) -> None:
    batch, before = begin_batch(ledger), read_tables(db)

    def change(db: Any) -> None:
        remove_session(db)
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        run(db, ledger, batch, change)
    assert read_tables(db) == before
    assert list_ledger_rows(db) == []
    assert resume_steps(db, ledger) == []
    member = ledger.get_plan(ledger.get_batch(batch).plan or "").members[0]
    skipped = "it was changed" if isinstance(error, Changed) else None
    assert (member.step, member.skipped) == (None, skipped)


@pytest.mark.requirement("ledger:steps")
@pytest.mark.parametrize("stored", [True, False])
def test_cut_commit_is_decided_by_step(
    db: Any, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    batch, usual = begin_batch(ledger), PostgresStore.end_write

    def end(store: PostgresStore, handle: Any, *, commit: bool) -> None:
        monkeypatch.undo()
        usual(store, handle, commit=stored)
        raise Busy("the connection was lost at the commit")

    def change(db: Any) -> dict[str, int]:
        result = remove_session(db)
        monkeypatch.setattr(PostgresStore, "end_write", end)
        return result

    if stored:
        assert run(db, ledger, batch, change) == {"removed": 1}
    else:
        with pytest.raises(Busy, match="lost"):
            run(db, ledger, batch, change)
    assert (db.get_session("a") is None, len(ledger.list_steps(batch))) == (stored, int(stored))


@pytest.mark.requirement("ledger:steps")
def test_killed_client_leaves_no_step(db: Any, ledger: Ledger, home_path: Path) -> None:
    batch, before = begin_batch(ledger), read_tables(db)
    command = [sys.executable, "-c", HELD_STEP, get_home_address(home_path), batch]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"removed\n"
        process.kill()
    assert run(db, ledger, batch, remove_session) == {"removed": 1}  # after the server's rollback
    (step,) = ledger.list_steps(batch)
    assert [item.value["content"] for item in ledger.read_trash(step.id)] == ["said in a"]
    assert read_tables(db)["sessions"] == [row for row in before["sessions"] if "'a'" not in row]


def test_member_is_claimed_by_one_step(db: Any, ledger: Ledger, home_path: Path) -> None:
    batch, outcomes = begin_batch(ledger), list[str]()

    def apply() -> None:
        with make_postgres(home_path) as other, Ledger.open(other) as same:
            try:
                run(other, same, batch, remove_session)
                outcomes.append("done")
            except Conflict:
                outcomes.append("conflict")

    threads = [threading.Thread(target=apply) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["conflict", "conflict", "done"]
    assert len(ledger.list_steps(batch)) == 1


def test_ledger_refuses_other_instance(db: Any, ledger: Ledger, home_path: Path) -> None:
    with make_postgres(home_path) as other, pytest.raises(InvalidInput, match=r"Ledger\.open"):
        ledger.check_home(other)
    with pytest.raises(Unsupported, match="trash_dir"):
        Ledger.open(db, trash_dir=home_path)


def test_ledgers_of_homes_are_apart(db: Any, ledger: Ledger, tmp_path: Path) -> None:
    batch = ledger.add_batch("test")
    with make_postgres(tmp_path / "other") as other, Ledger.open(other) as empty:
        assert empty.list_audit_entries().items == []
        with pytest.raises(Exception, match="there is no batch"):
            empty.get_batch(batch.id)


def test_every_plan_runs_without_files(db: Any, ledger: Ledger) -> None:
    chat = SessionSource(platform="telegram", chat_id="42")
    with SessionStore(db=db) as store:
        entry = store.get_or_create_session(chat)
        maintenance = Maintenance(db, ledger, store=store)
        maintenance.edit("b", pinned=True, title="Trip")
        preview = maintenance.plan(PlanRequest("sessions", older_than_days=90))
        result = maintenance.apply(preview.plan or "")
        assert (result.removed, db.get_session("b")["title"]) == (2, "Trip")
        maintenance.restore(result.batch)
        assert [row["content"] for row in db.get_messages("a")] == ["said in a"]
        assert store.get(entry.session_key) == entry
        assert ledger.empty_trash(0).batches == 1  # that of the edit
        assert ledger.count_disk_bytes() == 0
