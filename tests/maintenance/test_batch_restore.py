"""A restore brings back the exact state, keeps later changes, and reports misfits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionDB
from session_core.errors import Conflict, Corrupt, Denied, InvalidInput, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.restore import batch_restore
from tests.homes import connect, make_hermes_database
from tests.maintenance.changed_homes import Changing, changing, live_gateway
from tests.maintenance.homes import BRANCH, DAY, NOW, opened

Row = dict[str, Any]


def list_refused(back) -> list[tuple[str, str]]:
    return [(item.what, item.why) for item in back.unfit]


@pytest.fixture
def gone(changed: Changing) -> Changing:
    """A home from which a session was removed."""
    changed.home.session("old", 140, reason="idle")
    changed.home.db.set_session_title("old", "The schema")
    return changed


def test_batch_is_restored_once(gone: Changing) -> None:
    result = gone.plan_and_apply()
    gone.restore(result)
    with pytest.raises(Conflict, match="undone already"):
        gone.restore(result)


def test_unknown_batch_raises_not_found(changed: Changing) -> None:
    with pytest.raises(NotFound):
        changed.maintenance.restore("b-nothing")


def test_expired_trash_is_not_restored(gone: Changing) -> None:
    result = gone.plan_and_apply()
    gone.home.clock.now = NOW + 31 * DAY
    with pytest.raises(Conflict, match="its trash is gone"):
        gone.restore(result)


@pytest.mark.requirement("maintenance:restore")
def test_taken_title_is_left_out_and_reported(gone: Changing) -> None:
    result = gone.plan_and_apply()
    gone.home.session("other", 1)
    gone.home.db.set_session_title("other", "The schema")
    restored = gone.restore(result)
    assert [what for what, _ in list_refused(restored)] == ["title of sessions old"]
    assert gone.home.db.get_session("old")["title"] is None
    assert gone.home.db.get_session("other")["title"] == "The schema"


@pytest.mark.requirement("maintenance:restore")
def test_taken_id_receives_no_messages(gone: Changing) -> None:
    result = gone.plan_and_apply()
    gone.home.session("old", 1, messages=1)
    restored = gone.restore(result)
    taken = "a session with this id was made since; prune it, then restore again"
    assert ("sessions old", taken) in list_refused(restored)
    assert gone.home.db.message_count("old") == 1
    gone.maintenance.delete_session("old")
    assert list_refused(gone.restore(result)) == []
    assert gone.home.db.message_count("old") > 1


def test_taken_id_of_large_session_receives_nothing(changed: Changing) -> None:
    changed.home.session("large", 150, reason="idle", messages=0)
    changed.home.clock.now = NOW - 150 * DAY
    for number in range(6):
        changed.home.db.append_message("large", "user", f"{number} " + "x" * 40_000)
    changed.home.clock.now = NOW
    result = changed.plan_and_apply()
    assert len(changed.ledger.list_steps(result.batch)) > 1
    changed.home.session("large", 1, messages=1)
    restored = changed.restore(result)
    taken = "a session with this id was made since; prune it, then restore again"
    assert ("messages of large", taken) in list_refused(restored)
    assert changed.home.db.message_count("large") == 1


def test_child_with_new_parent_keeps_parent(changed: Changing) -> None:
    changed.home.session("trunk", 140, reason="branched")
    changed.home.session("branch", 3, parent_session_id="trunk", config=BRANCH)
    result = changed.plan_and_apply()
    changed.home.session("other", 5)
    changed.home.db.update_session("branch", parent_session_id="other")
    restored = changed.restore(result)
    assert list_refused(restored) == [
        ("parent_session_id of branch in sessions", "it was changed again since")
    ]
    assert changed.home.db.get_session("branch")["parent_session_id"] == "other"


@pytest.mark.requirement("maintenance:restore")
def test_session_reopened_since_stays_open(changed: Changing) -> None:
    changed.home.session("s", 2)
    result = changed.plan_and_apply("sessions", "finalize", ids=("s",))
    changed.home.db.reopen_session("s")
    changed.home.db.end_session("s", "other")
    restored = changed.restore(result)
    assert list_refused(restored) == [
        ("ended_at, end_reason of s in sessions", "it was changed again since")
    ]
    assert changed.home.db.get_session("s")["end_reason"] == "other"


def test_chat_with_new_route_keeps_route(changed: Changing) -> None:
    changed.home.route("1", "nobody", 40)
    result = changed.plan_and_apply("routes")
    changed.home.session("s", 0)
    key = changed.home.route("1", "s", 0)
    restored = changed.restore(result)
    assert list_refused(restored) == [(f"the route of {key}", "the chat was used since")]
    assert changed.home.store.peek_session_id(key) == "s"


@pytest.mark.needs_files
def test_replaced_file_stays_in_trash(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.file("session_old.json", 140, "mine")
    result = changed.plan_and_apply()
    path = changed.home.file("session_old.json", 0, "another")
    restored = changed.restore(result)
    assert [reason for _, reason in list_refused(restored)] == ["another file has its name by now"]
    assert path.read_text() == "another"


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:restore")
def test_partly_damaged_trash_restores_rest(changed: Changing) -> None:
    for number in range(3):
        changed.home.session(f"old_{number}", 140, messages=0)
        changed.home.db.append_message(f"old_{number}", "user", "x" * 80_000, timestamp=NOW - DAY)
        changed.home.db.end_session(f"old_{number}", "idle")
    result = changed.plan_and_apply(older_than_days=0)
    lost = changed.ledger.list_steps(result.batch)[1]
    sql = "UPDATE trash SET data = x'00' WHERE step = ?"
    changed.ledger._file.write(lambda rows: rows.execute_update(sql, (lost.id,)))
    restored = changed.restore(result)
    (name,) = {"old_0", "old_1", "old_2"} - changed.sessions()
    assert (restored.outcome, restored.restored, restored.remaining) == ("applied", 2, 0)
    assert [(what, "is damaged" in reason) for what, reason in list_refused(restored)] == [
        (name, True)
    ]
    with pytest.raises(Corrupt, match=lost.id):  # nothing else is left
        changed.restore(result)


@pytest.mark.needs_files
def test_restore_of_routes_names_live_gateway(changed: Changing) -> None:
    changed.home.route("1", "nobody", 40)
    result = changed.plan_and_apply("routes")
    with live_gateway(changed.home), pytest.raises(Denied):
        changed.restore(result)
    assert changed.home.store.load_entries() == {}
    changed.restore(result)
    assert len(changed.home.store.load_entries()) == 1


def test_stopped_restore_resumes(changed: Changing) -> None:
    for number in range(3):
        changed.home.session(f"old_{number}", 140, reason="idle", messages=0)
        changed.home.clock.now = NOW - 140 * DAY
        changed.home.db.append_message(f"old_{number}", "user", f"says {number} " + "x" * 90_000)
        changed.home.clock.now = NOW
    before = changed.read_everything()
    result = changed.plan_and_apply()
    assert changed.maintenance.preview_restore(result.batch).count == 3
    part = changed.restore(result, 0)
    assert changed.maintenance.preview_restore(result.batch).count == 3 - part.restored
    assert (part.outcome, part.remaining > 0) == ("partial", True)
    rest = changed.restore(result)
    assert (rest.outcome, part.restored + rest.restored) == ("applied", 3)
    assert changed.read_everything() == before


def test_restore_preview_changes_nothing(gone: Changing) -> None:
    result = gone.plan_and_apply()
    before = gone.read_everything()
    coming = gone.maintenance.preview_restore(result.batch)
    assert (coming.batch.id, coming.count) == (result.batch, 1)
    assert [(item.id, item.title) for item in coming.items] == [("old", "The schema")]
    assert gone.read_everything() == before
    gone.restore(result)
    with pytest.raises(Conflict, match="undone already"):
        gone.maintenance.preview_restore(result.batch)


def test_restore_preview_describes_edit(gone: Changing) -> None:
    result = gone.maintenance.edit("old", title="Another", archived=True, pinned=True, reopen=True)
    coming = gone.maintenance.preview_restore(result.batch)
    assert [item.id for item in coming.items] == ["old"]
    assert set(coming.items[0].why.split("; ")) == {
        "title: Another -> The schema",
        "archived: yes -> no",
        "pinned: yes -> no",
        "status: open -> ended (idle)",
    }
    assert coming.count == 1


def test_restore_batch_cannot_be_restored(gone: Changing) -> None:
    result = gone.plan_and_apply()
    gone.restore(result)
    sql = "SELECT id FROM batches WHERE what = 'restore'"
    undoing = gone.ledger._file.read(lambda rows: rows.fetch_value(sql))
    with pytest.raises(InvalidInput, match="itself a restore"):
        gone.maintenance.restore(undoing)
    assert gone.plan_and_apply().removed == result.removed


@pytest.mark.requirement("maintenance:restore")
def test_restore_undoes_compression(changed: Changing) -> None:
    home = changed.home
    home.session("s", 2, messages=0)
    for number in range(12):
        home.db.append_message("s", "assistant" if number % 2 else "user", f"{number} " * 800)
    before = changed.read_everything()["rows"]["messages"]
    with batch_restore.create_compressor(changed.maintenance._require_home()) as compressor:
        result = compressor.compress("s", lambda _: "in short: counting", keep_last=2)
    assert changed.read_everything()["rows"]["messages"] != before
    coming = changed.maintenance.preview_restore(result.batch)
    assert [item.id for item in coming.items] == ["s"]
    restored = changed.maintenance.restore(result.batch)
    assert (restored.outcome, restored.restored, restored.undone.session_id) == ("applied", 1, "s")
    assert changed.read_everything()["rows"]["messages"] == before


def test_missing_handles_are_refused(changed: Changing) -> None:
    with pytest.raises(InvalidInput, match="its preview has nothing to change"):
        changed.maintenance.apply(changed.plan().plan)
    with pytest.raises(InvalidInput, match="the change has no undo"):
        changed.maintenance.restore(None)


def test_destructive_compression_undo_is_planned(
    changed: Changing,
) -> None:
    home = changed.home
    home.session("s", 2, messages=0)
    for number in range(12):
        home.db.append_message("s", "assistant" if number % 2 else "user", f"{number} " * 800)
    with batch_restore.create_compressor(changed.maintenance._require_home()) as compressor:
        result = compressor.compress(
            "s", lambda _: "in short: counting", keep_last=2, shape="continuation"
        )
    home.clock.now = NOW + 2 * 3600
    home.db.append_message(result.session_id, "user", "since")
    preview = changed.maintenance.preview_restore(result.batch)
    planned = changed.maintenance.restore(result.batch)
    assert (planned.outcome, planned.restored) == ("planned", 0)
    assert (preview.count, preview.items) == (planned.plan.count, planned.plan.items)
    assert (
        preview.plan.warnings
        == planned.plan.warnings
        == ("1 messages added since go to the trash",)
    )
    undone = changed.maintenance.apply(planned.plan.plan)
    assert undone.undone.session_id == "s"
    assert undone.undone.dropped > 1
    assert changed.sessions() == {"s"}


@pytest.fixture
def migrated(tmp_path: Path) -> Iterator[tuple[SessionDB, Maintenance, str, Row]]:
    """A Hermes home that was migrated after a session was removed, with the old row."""
    path, root = tmp_path / "home" / "state.db", tmp_path / "kept"
    with opened(tmp_path / "home", 22) as home, changing(home, root) as changed:
        home.session("old", 140, reason="idle")
        home.db.set_session_title("old", "The schema")
        home.session("other", 1)
        row = dict(home.db.get_session("old") or {})
        batch = changed.plan_and_apply().batch
    migrate_home(path, tmp_path / "newer" / "state.db")
    with (
        SessionDB(path, clock=lambda: NOW) as db,
        Ledger(StateFolder(path, root=root), clock=lambda: NOW) as ledger,
        Maintenance(db, ledger, hooks=Hooks(group=None), clock=lambda: NOW) as maintenance,
    ):
        yield db, maintenance, batch, row


def migrate_home(path: Path, newer: Path) -> None:
    """Migrate a home as Hermes does: add columns and tables, and drop a column."""
    make_hermes_database(newer, 26, fts_layout=0)
    with connect(newer) as there, connect(path) as here:
        known = {name for (name,) in here.execute("SELECT name FROM sqlite_master")}
        for name, sql in there.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"):
            if name not in known and "fts" not in name:
                here.execute(sql)
        for table in ("sessions", "messages"):
            listed = "SELECT name, type, dflt_value FROM pragma_table_info(?)"
            columns = {name for name, *_ in here.execute(listed, (table,))}
            for name, kind, default in there.execute(listed, (table,)):
                if name not in columns:
                    value = "" if default is None else f" DEFAULT {default}"
                    here.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{value}")
        here.execute(f"ALTER TABLE sessions DROP COLUMN {GOES}")
        here.execute("UPDATE schema_version SET version = 26")


GOES = "pricing_version"


@pytest.mark.requirement("maintenance:restore")
def test_restore_after_schema_migration(migrated) -> None:
    db, maintenance, batch, before = migrated
    restored = maintenance.restore(batch)
    after = dict(db.get_session("old") or {})
    assert after.keys() > before.keys() - {GOES}
    assert {name: after[name] for name in before.keys() - {GOES}} == {
        name: value for name, value in before.items() if name != GOES
    }
    assert list_refused(restored) == [
        (f"{GOES} of sessions", "this home does not have the column any more")
    ]
    assert {hit.session_id for hit in db.search("says").hits} == {"old", "other"}
    assert db.admin.check_integrity(deep=True) == []
