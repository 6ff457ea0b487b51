"""Data of missing sessions: rows, locks, links and files, selected by strict rules."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core import SessionFilter
from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.maintenance.select import orphans
from session_core.maintenance.select.orphans import FileOwners
from session_core.maintenance.types import PlanRequest
from session_core.types import Lease
from tests.maintenance.changed_homes import Changing, list_skip_reasons
from tests.maintenance.homes import DAY, NOW, Home, fill

ASKED = PlanRequest("orphans")
GONE = "20260101_120000_abcdef01"


@pytest.mark.requirement("maintenance:orphans")
def test_orphaned_rows_are_selected_by_table(full: Home) -> None:
    selected = orphans.select_orphaned_rows(
        full.take_snapshot(), full.db.admin.read_health_facts(), ASKED
    )
    assert {rows.id: rows.rows for rows in selected.items} == {
        name: 3 if name.startswith("messages") else 1 for name in full.of("rows").chosen
    }
    assert dict(selected.protected) == dict(full.of("rows").protected)


def test_rows_of_session_in_use_stay(home: Home) -> None:
    home.session("gone", 9)
    home.sql("DELETE FROM sessions")
    facts = home.db.admin.read_health_facts()
    leased = ActivitySnapshot(HomeActivity(NOW, leases={"gone": Lease("gone", 7)}))
    assert dict(
        orphans.select_orphaned_rows(home.take_snapshot(leased), facts, ASKED).protected
    ) == {"live": 1}
    assert len(orphans.select_orphaned_rows(home.take_snapshot(), facts, ASKED).items) == 1


@pytest.mark.requirement("maintenance:orphans")
def test_dead_compression_locks_are_selected(full: Home) -> None:
    selected = orphans.select_dead_locks(
        full.take_snapshot(), full.db.admin.read_health_facts(), ASKED
    )
    assert {lock.id: lock.why for lock in selected.items} == {
        "compression_locks/old": "ran out 2 days ago"
    }


@pytest.mark.requirement("maintenance:orphans")
def test_broken_and_cyclic_links_are_selected(full: Home) -> None:
    selected = orphans.select_broken_links(full.take_snapshot(), ASKED)
    assert {item.id for item in selected.items} == set(full.of("links").chosen)
    assert {item.left_behind for item in selected.items} == {("circle_a",), ("fatherless",)}


def test_link_of_active_session_stays(home: Home) -> None:
    home.session("s", 9)
    home.sql("UPDATE sessions SET parent_session_id = 's'")
    leased = ActivitySnapshot(HomeActivity(NOW, leases={"s": Lease("s", 7)}))
    assert dict(orphans.select_broken_links(home.take_snapshot(leased), ASKED).protected) == {
        "live": 1
    }
    assert [item.id for item in orphans.select_broken_links(home.take_snapshot(), ASKED).items] == [
        "s"
    ]


def test_orphan_age_comes_from_dated_table(full: Home) -> None:
    facts = full.db.admin.read_health_facts()
    lately = {
        orphan.table: orphan.last_at
        for orphan in facts.orphans
        if orphan.session_id == "gone_lately"
    }
    selected = orphans.select_orphaned_rows(full.take_snapshot(), facts, ASKED)
    assert lately["messages"] > NOW - DAY
    assert set(lately.values()) - {lately["messages"]} <= {None}
    assert not {rows.id for rows in selected.items if rows.session_id == "gone_lately"}


@pytest.mark.requirement("maintenance:filters")
def test_orphans_match_no_filter(full: Home) -> None:
    snapshot, facts = full.take_snapshot(), full.db.admin.read_health_facts()
    plan_request = PlanRequest("orphans", where=SessionFilter(source=("slack",)))
    assert orphans.select_orphaned_rows(snapshot, facts, plan_request).items == ()
    assert orphans.select_dead_locks(snapshot, facts, plan_request).items == ()
    assert orphans.select_broken_links(snapshot, plan_request).items == ()
    assert (
        orphans.select_orphaned_files(snapshot, full.store.sessions_dir, plan_request).items == ()
    )


@pytest.mark.requirement("maintenance:filters")
def test_filter_selects_links_and_locks_by_session(full: Home) -> None:
    snapshot, facts = full.take_snapshot(), full.db.admin.read_health_facts()
    plan_request = PlanRequest(
        "orphans", where=SessionFilter(source=("cli",), end_reason="cli_close")
    )
    links = {item.id for item in orphans.select_broken_links(snapshot, plan_request).items}
    assert links == set(full.of("links").chosen)
    idle = PlanRequest("orphans", where=SessionFilter(end_reason="idle"))
    assert [lock.session_id for lock in orphans.select_dead_locks(snapshot, facts, idle).items] == [
        "old"
    ]
    assert orphans.select_dead_locks(snapshot, facts, plan_request).items == ()


# -- files ---------------------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:orphans")
def test_orphaned_files_are_selected(full: Home) -> None:
    folder = full.store.sessions_dir
    selected = orphans.select_orphaned_files(full.take_snapshot(), folder, ASKED)
    assert {file.id for file in selected.items} == set(full.of("files").chosen)
    assert dict(selected.protected) == dict(full.of("files").protected)
    assert {file.bytes for file in selected.items} == {2}


def test_links_and_folders_are_no_session_files(home: Home) -> None:
    folder = home.file("notes.txt", 50).parent
    (folder / f"session_{GONE}.json").mkdir()
    (folder / f"{GONE}.json").symlink_to(folder / "notes.txt")
    os.utime(folder / f"{GONE}.json", (NOW - 1e7,) * 2, follow_symlinks=False)
    assert orphans.select_orphaned_files(home.take_snapshot(), folder, ASKED).items == ()


def test_missing_folder_has_no_orphaned_files(home: Home) -> None:
    assert (
        orphans.select_orphaned_files(home.take_snapshot(), home.folder / "nowhere", ASKED).items
        == ()
    )


@pytest.mark.needs_files
def test_mirror_and_lock_are_never_selected(home: Home) -> None:
    for name in ("sessions.json", ".sessions.lock"):
        home.file(name, 500)
    assert (
        orphans.select_orphaned_files(home.take_snapshot(), home.store.sessions_dir, ASKED).items
        == ()
    )
    assert orphans.find_session_files(home.store.sessions_dir, ["sessions", ".sessions"]) == {}


@pytest.mark.needs_files
def test_session_files_are_found_by_id(home: Home) -> None:
    fill(home)
    strange = home.file(f"session_{orphans.make_safe_name('a/b')}.json", 1)
    session_files = orphans.find_session_files(
        home.store.sessions_dir, ["old", "a/b", "long_lived"]
    )
    assert {name: sorted(path.name for path in paths) for name, paths in session_files.items()} == {
        "a/b": [strange.name],
        "old": [
            "old.json",
            "old.jsonl",
            "request_dump_old_20260101_120000.json",
            "session_old.json",
        ],
    }


@pytest.mark.parametrize(
    ("session_id", "safe"),
    [
        ("20260101_120000_abcdef01", "20260101_120000_abcdef01"),
        ("a/b", "a_b_c14cddc033f6"),
        ("._x_.", "x_204a9951e896"),
        ("...", "session_ab5df625bc76"),
        ("x" * 97, "x" * 96 + "_19a8f07eeb7f"),
    ],
)
def test_file_name_has_safe_session_id(session_id: str, safe: str) -> None:
    assert orphans.make_safe_name(session_id) == safe


@pytest.mark.requirement("maintenance:orphans")
@given(st.sets(st.text(min_size=1, max_size=12), max_size=6), st.text(max_size=20))
def test_file_owner_is_never_confused(ids: set[str], at: str) -> None:
    names = FileOwners(ids)
    for session_id in ids:
        safe = orphans.make_safe_name(session_id)
        assert names.find_owner(f"session_{safe}.json") in ids
        owner = names.find_owner(f"request_dump_{safe}_{at}.json")
        assert owner in ids
    assert names.find_owner("sessions.json") is None


@given(st.text(max_size=30))
def test_unrecognized_file_has_no_owner(name: str) -> None:
    known = ("session_", "request_dump_", ".sessions_", "cron_")
    if not name.startswith(known) and not name[:8].isdigit():
        assert FileOwners(()).find_owner(name) is None


def test_orphaned_nonpositive_message_ids_are_removed(changed: Changing) -> None:
    changed.home.session("gone", 5, messages=2)
    changed.home.sql("UPDATE messages SET id = -id")
    changed.home.sql("DELETE FROM sessions WHERE id = 'gone'")
    assert changed.plan_and_apply("orphans").removed == 1
    assert changed.read_everything()["rows"]["messages"] == []


def test_orphaned_rows_are_removed_in_batches(
    changed: Changing,
) -> None:
    for number in range(40):
        changed.home.session(f"gone_{number}", 9, messages=1)
    changed.home.session("large", 9, messages=0)
    changed.home.clock.now = NOW - 9 * DAY
    for number in range(6):
        changed.home.db.append_message("large", "user", f"says {number} " + "x" * 40_000)
    changed.home.clock.now = NOW
    changed.home.sql("DELETE FROM sessions")
    before = changed.read_everything()
    result = changed.plan_and_apply("orphans")
    assert (result.removed, result.skipped) == (41, ())
    assert 2 < len(changed.ledger.list_steps(result.batch)) < 10
    assert changed.read_everything()["rows"]["messages"] == []
    changed.restore(result)
    assert changed.read_everything() == before


def test_reappeared_session_keeps_its_rows(changed: Changing) -> None:
    for name in ("first", "again", "last"):
        changed.home.session(name, 9)
    changed.home.sql("DELETE FROM sessions")
    planned = changed.plan("orphans")
    changed.home.db.create_session("again", "cli")
    result = changed.apply(planned)
    assert list_skip_reasons(result) == {"messages/again": "its session exists again"}
    assert result.removed == 2
    assert len(changed.home.db.get_messages("again")) == 2


def test_rows_of_reappeared_session_stay(changed: Changing) -> None:
    changed.home.session("gone", 5, messages=3)
    changed.home.sql("DELETE FROM sessions WHERE id = 'gone'")
    planned = changed.plan("orphans")
    changed.home.db.create_session("gone", "cli")
    assert list_skip_reasons(changed.apply(planned)) == {
        "messages/gone": "its session exists again"
    }
    assert changed.home.db.message_count("gone") == 3
