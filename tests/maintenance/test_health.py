"""The report on a home: contents, problems and plans. No problem stops the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from session_core import Ledger, SessionDB, SessionStore, StateFolder
from session_core.maintenance import health
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.types import HealthFinding, HealthReport
from tests.homes import connect
from tests.maintenance.homes import DAY, NOW, Home, opened
from tests.postgres_home import read_tables


def examine_home(home: Home, **options: Any) -> HealthReport:
    return read_report(home.db, home.store, **options)


def read_report(db: SessionDB, store: SessionStore | None = None, **options: Any) -> HealthReport:
    # Not `Ledger.open`, which reads the home, and that may be damaged.
    with Ledger(StateFolder(db.path)) if db.path else Ledger.open(db) as ledger:
        return health.examine_home(HomeContext(db, ledger, store, clock=lambda: NOW), **options)


def list_findings(report: HealthReport) -> dict[str, HealthFinding]:
    by_code = {finding.code: finding for finding in report.findings}
    assert len(by_code) == len(report.findings)
    return by_code


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:health")
def test_findings_match_stated_counts(full: Home) -> None:
    stated = {kind: len(full.of(kind).chosen) for kind in full.stated}
    counted = {code: each.count for code, each in list_findings(examine_home(full)).items()}
    for noise in ("engine_fault", "free_pages", "never_ended", "drifted_counters"):
        counted.pop(noise, None)
    usage = {"orphaned_session_model_usage": 1}
    assert counted == {
        "old_sessions": stated["sessions"],
        "ghosts": stated["ghosts"],
        "abandoned": stated["abandoned"],
        "orphaned_continuations": stated["orphaned"],
        "expired": stated["expired"],
        "broken_parents": 1,
        "cycles": 1,
        "stale_routes": 2,
        "dangling_routes": 1,
        "foreign_routes": 1,
        "broken_entries": 1,
        "orphaned_messages": 3,
        **usage,
        "dead_locks": 1,
        "orphaned_files": stated["files"],
    }
    assert stated["routes"] == 4


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:health")
def test_finding_names_its_repair_plan(full: Home) -> None:
    plans = {
        code: (each.tool, each.plan) for code, each in list_findings(examine_home(full)).items()
    }
    orphans = ("prune", "orphans")
    expected = {
        "old_sessions": ("prune", "sessions"),
        "ghosts": ("prune", "ghosts"),
        "abandoned": ("finalize", "abandoned"),
        "orphaned_continuations": ("finalize", "orphaned"),
        "expired": ("finalize", "expired"),
        "broken_parents": orphans,
        "stale_routes": ("prune", "routes"),
        "orphaned_messages": orphans,
        "orphaned_files": orphans,
        "dead_locks": orphans,
        "never_ended": (None, None),
    }
    assert {code: plans[code] for code in expected} == expected


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:health")
def test_finding_without_plan_gives_reason(home: Home) -> None:
    for name in ("one", "other"):
        home.session(name, 2)
    home.sql("DROP INDEX IF EXISTS idx_sessions_title_unique")
    home.sql("UPDATE sessions SET title = 'Same', message_count = 9")
    unplanned = {
        code: each.what for code, each in list_findings(examine_home(home)).items() if not each.plan
    }
    assert "a person" in unplanned["duplicate_titles"]
    assert "their agent" in unplanned["drifted_counters"]
    assert "abandoned" in unplanned["never_ended"]


@pytest.mark.needs_files
def test_estimated_bytes_match_message_share(home: Home) -> None:
    home.session("old", 120, reason="cli_close", messages=30)
    home.session("new", 1, messages=10)
    report = examine_home(home)
    assert report.sizes is not None
    assert list_findings(report)["old_sessions"].bytes == report.sizes.db * 30 // 40
    home.file("20260101_120000_abcdef01.jsonl", 50, "x" * 777)
    assert list_findings(examine_home(home))["orphaned_files"].bytes == 777


@pytest.mark.needs_files
def test_report_counts_sessions(home: Home) -> None:
    home.session("a", 0.5, source="tui")
    home.session("b", 3, reason="cli_close", messages=5)
    home.session("c", 20)
    home.session("d", 80)
    home.session("e", 200, reason="cli_close")
    home.db.set_session_archived("e", archived=True)
    home.db.update_token_counts("a", input_tokens=5, estimated_cost_usd=0.25)
    report = examine_home(home)
    census = report.sessions
    assert (census.total, census.open, census.ended, census.archived) == (5, 3, 1, 1)
    assert census.by_source == {"cli": 4, "tui": 1}
    assert census.by_age == {
        "day": 1, "week": 1, "month": 1, "quarter": 1, "older": 1, "unknown": 0,
    }  # fmt: skip
    assert (census.messages, report.tokens["input"], report.cost) == (13, 5, 0.25)
    assert report.engine.startswith("SQLite 3.")


def test_growth_covers_last_weeks(home: Home) -> None:
    home.session("old", 100, messages=20)
    home.session("new", 1, messages=20)
    report = examine_home(home)
    assert report.sizes is not None
    assert report.growth_per_week == report.sizes.db // 2 // 4


@pytest.mark.requirement("maintenance:weeks")
def test_report_lists_newest_weeks_first(home: Home) -> None:
    for days in (170, 30, 29, 1):
        home.session(f"at{days}", days, messages=10)
    report = examine_home(home)
    assert report.sizes is not None
    assert [week.messages for week in report.weeks] == [10, *[0] * 3, 20, *[0] * 19, 10, 0]
    assert [week.begins_at for week in report.weeks][:2] == [NOW - 7 * DAY, NOW - 14 * DAY]
    assert report.weeks[0].bytes == pytest.approx(report.sizes.db / 4, rel=0.01)


@pytest.mark.parametrize("count", [0, 1])
def test_duplicate_title_is_found(home_path: Path, count: int) -> None:
    with opened(home_path, 22) as home:
        home.sql("DROP INDEX idx_sessions_title_unique")
        for name in ("a", "b", "c"):
            home.session(name, 1)
        home.sql("UPDATE sessions SET title = CASE WHEN ? THEN 'x' ELSE id END", count)
        titles = list_findings(examine_home(home)).get("duplicate_titles")
        assert (titles.count if titles else 0) == count


def test_drifted_counter_is_found(home: Home) -> None:
    home.session("s", 1)
    home.db.archive_and_compact("s", [{"role": "user", "content": "in short"}])
    assert "drifted_counters" not in list_findings(examine_home(home))
    home.sql("UPDATE sessions SET message_count = 0")
    assert list_findings(examine_home(home))["drifted_counters"].count == 1


@pytest.mark.needs_files
def test_free_pages_are_found(home: Home) -> None:
    home.session("s", 1)
    for _ in range(40):
        home.db.append_message("s", "user", "x" * 20_000)
    home.db.clear_messages("s")
    report = examine_home(home)
    assert report.sizes is not None
    free = list_findings(report)["free_pages"]
    assert (free.bytes, free.tool, free.plan) == (report.sizes.free, "prune", "index")


def test_sizes_are_estimates_unless_deep(full: Home) -> None:
    assert examine_home(full).estimated
    deep = examine_home(full, deep=True)
    assert deep.sizes is not None
    assert deep.estimated is not deep.sizes.exact


def test_deep_check_repeats_no_finding(full: Home) -> None:
    assert set(list_findings(examine_home(full, deep=True))) == set(
        list_findings(examine_home(full))
    )


def test_deep_check_covers_index(home_path: Path) -> None:
    with opened(home_path, 22) as home:
        home.session("s", 1)
        home.sql("DELETE FROM messages_fts_content")
        assert "search_index_damaged" not in list_findings(examine_home(home))
        assert "search_index_damaged" in list_findings(examine_home(home, deep=True))


def list_finding_codes(report: HealthReport) -> list[str]:
    return [finding.code for finding in report.findings]


@pytest.mark.requirement("maintenance:health")
def test_health_writes_nothing(full: Home) -> None:
    with Ledger.open(full.db) as ledger:
        ledger.add_audit_entry(None, "test", None, {})  # so that there is a ledger to read
    before = read_contents(full)
    examine_home(full)
    assert read_contents(full) == before


def read_contents(home: Home) -> tuple[list[tuple[str, int]], list[Any]]:
    """Return the files of a home with their times, and the rows of its tables.

    A reader of the ledger leaves an empty `-wal` and a `-shm` file of SQLite.
    """
    if home.db.path is None:
        return [], [read_tables(home.db)]
    files = sorted(
        (str(path), path.stat().st_mtime_ns)
        for path in home.folder.rglob("*")
        if path.is_file()
        and not path.name.endswith("-shm")
        and not (path.name == "ledger.db-wal" and path.stat().st_size == 0)
    )
    with connect(home.db.path, "ro") as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        rows = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables]  # noqa: S608
    return files, rows


def test_empty_home_has_no_findings(home: Home) -> None:
    report = examine_home(home)
    assert set(list_findings(report)) <= {"engine_fault"}
    assert report.sessions.total == 0


def test_missing_home_has_report(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "nowhere" / "state.db") as db:
        report = read_report(db)
    assert (report.sessions.total, report.growth_per_week) == (0, 0)
    assert not (tmp_path / "nowhere").exists()


# -- unreadable data -----------------------------------------------------------------------


@pytest.mark.requirement("maintenance:health")
def test_damaged_file_is_found(home_path: Path) -> None:
    path = home_path / "state.db"
    path.write_bytes(b"this is no database, though it is long enough to be one" * 100)
    with SessionDB(path) as db:
        report = read_report(db, deep=True)
    assert {finding.code for finding in report.findings} == {"unreadable"}
    assert report.sessions.total == 0


@pytest.mark.needs_files
def test_damaged_table_loses_only_its_part(home: Home) -> None:
    home.session("s", 120, reason="cli_close")
    home.sql("DROP TABLE compression_locks")
    home.sql("CREATE TABLE compression_locks (session_id TEXT)")
    report = examine_home(home)
    assert report.sessions.total == 1
    assert "old_sessions" in list_finding_codes(report)
    assert "unreadable" in list_finding_codes(report)


@pytest.mark.needs_files
def test_broken_mirror_is_found(home: Home) -> None:
    home.session("s", 120, reason="cli_close")
    home.file("sessions.json", 1, "{broken")
    report = list_findings(examine_home(home))
    assert report["broken_entries"].count == 1
    assert report["old_sessions"].count == 1


@pytest.mark.needs_files
def test_unreadable_folder_is_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.session("s", 120, reason="cli_close")
    home.file("x.json", 1)

    def refuse(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    report = examine_home(home)
    unreadable = [finding.what for finding in report.findings if finding.code == "unreadable"]
    assert any("the files of sessions cannot be read" in what for what in unreadable)
    assert "old_sessions" in list_finding_codes(report)


@pytest.mark.requirement("maintenance:long-looks")
def test_deep_check_reports_progress(full: Home, often: None) -> None:
    reports: list[tuple[int, int]] = []
    report = examine_home(full, deep=True, progress=lambda *at: reports.append(at))
    assert not report.estimated
    assert {total for _, total in reports} == {2}
    assert [result for result, _ in reports] == sorted(result for result, _ in reports)
    assert {result for result, _ in reports} == {0, 1}


@pytest.mark.requirement("maintenance:long-looks")
@pytest.mark.parametrize("part", [0, 1])
def test_stopped_deep_check_returns_findings(full: Home, often: None, part: int) -> None:
    reports = [-1]
    report = examine_home(
        full,
        deep=True,
        progress=lambda done, _: reports.append(done),
        stop=lambda: reports[-1] == part,
    )
    assert "ended" in list_findings(report)
    assert report.estimated is (part == 0)
    at_once = {finding.code for finding in examine_home(full).findings}
    assert at_once <= set(list_findings(report))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session_core.maintenance.types._PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr("session_core.state.sqlite.admin.vacuum_file._INSTRUCTIONS_PER_STEP", 50)
    monkeypatch.setattr("session_core.state.sqlite.admin.sizes._CHILD_WAIT_S", 0.001)
