"""Maintenance and compression of a home with an index that this process cannot write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Compressor, SessionDB
from session_core.compression import CompressionLimits
from session_core.errors import Unsupported
from session_core.maintenance.types import PlanRequest
from tests.cjk import INDEX, add_cjk_index, block_index
from tests.hermes_schema import list_cjk_statements
from tests.homes import connect
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import fill, opened

REFUSED = "messages_fts_cjk, which needs the tokenizer cjk_unicode61"
TABLES = ("sessions", "messages", "gateway_routing")


@pytest.fixture(params=(22, 30))
def usual(request, home_path: Path, tmp_path: Path) -> Iterator[Changing]:
    """A filled Hermes home, still without the index."""
    with opened(home_path, request.param) as home:
        fill(home)
        home.session("long", 0.2, messages=60)
        home.store.close()
        with changing(home, tmp_path / "kept") as made:
            yield made


@pytest.fixture
def blocked(usual: Changing) -> Changing:
    """The same home with the index, without its tokenizer."""
    add_cjk_index(usual.home.db.path)
    return usual


@pytest.fixture
def compressor(usual: Changing) -> Iterator[Compressor]:
    home, limits = usual.home, CompressionLimits(keep_last=8)
    ledger, clock = usual.ledger, home.clock
    with Compressor(home.db, ledger, store=home.store, limits=limits, clock=clock) as made:
        yield made


def read_all_rows(changed: Changing) -> dict[str, list[Any]]:
    """Return all rows that a change could affect, in the home and in the ledger."""
    found = {}
    with connect(changed.home.db.path, "ro") as connection:
        for table in TABLES:
            found[table] = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
    folder = changed.ledger.folder.find()
    if folder is not None:
        with connect(folder / "ledger.db", "ro") as connection:
            for table in ("plans", "batches", "steps"):
                count = f"SELECT count(*) FROM {table}"  # noqa: S608
                found[table] = connection.execute(count).fetchall()
    return found


@pytest.mark.parametrize("what", ["sessions", "orphans", "all"])
def test_prune_of_messages_is_refused(blocked: Changing, what: str) -> None:
    before = read_all_rows(blocked)
    with pytest.raises(Unsupported, match=REFUSED):
        blocked.plan(what)
    assert read_all_rows(blocked) == before


def test_delete_of_empty_session_is_refused(usual: Changing) -> None:
    usual.home.session("empty", 0.2, messages=0)
    path = usual.home.db.path
    with connect(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE session_titles USING fts5(t, tokenize=unicode61)")
        connection.execute(
            "CREATE TRIGGER session_titles_delete AFTER DELETE ON sessions BEGIN "
            "DELETE FROM session_titles WHERE rowid = old.rowid; END"
        )
    block_index(path, "session_titles")
    before = read_all_rows(usual)
    with pytest.raises(Unsupported, match="session_titles, which needs the tokenizer"):
        usual.maintenance.delete_session("empty")
    assert read_all_rows(usual) == before


@pytest.mark.parametrize(
    ("what", "verb"),
    [
        ("ghosts", "prune"),
        ("routes", "prune"),
        ("index", "prune"),
        ("trash", "prune"),
        ("abandoned", "finalize"),
        ("orphaned", "finalize"),
        ("expired", "finalize"),
    ],
)
def test_plan_without_messages_is_applied(blocked: Changing, what: str, verb: str) -> None:
    planned = blocked.plan(what, verb)
    if planned.plan is not None:
        assert blocked.apply(planned).outcome == "applied"
    else:
        assert what in ("trash", "routes", "index")


def test_restore_without_messages_is_done(blocked: Changing) -> None:
    before = read_all_rows(blocked)
    for what, verb in (("ghosts", "prune"), ("abandoned", "finalize")):
        result = blocked.plan_and_apply(what, verb)
        assert result.removed + result.finalized
        assert blocked.maintenance.preview_restore(result.batch).count
        assert not blocked.restore(result).unfit
    after = read_all_rows(blocked)
    assert all(sorted(after[t], key=repr) == sorted(before[t], key=repr) for t in TABLES)


def test_edit_works_beside_blocked_index(blocked: Changing) -> None:
    edited = blocked.maintenance.edit("long", title="Another title", archived=True)
    blocked.maintenance.restore(edited.batch)
    assert blocked.home.db.get_session("long")["title"] is None


def test_restore_of_messages_is_refused(usual: Changing) -> None:
    result = usual.plan_and_apply("sessions")
    add_cjk_index(usual.home.db.path)
    before = read_all_rows(usual)
    for call in (usual.maintenance.preview_restore, usual.maintenance.restore):
        with pytest.raises(Unsupported, match=REFUSED):
            call(result.batch)
    assert read_all_rows(usual) == before


def test_plan_older_than_index_is_refused(usual: Changing) -> None:
    planned = usual.plan("sessions")
    add_cjk_index(usual.home.db.path)
    before = read_all_rows(usual)
    with pytest.raises(Unsupported, match="cjk_unicode61"):
        usual.apply(planned)
    after = read_all_rows(usual)
    assert [after[table] for table in TABLES] == [before[table] for table in TABLES]


def test_import_of_messages_is_refused(blocked: Changing, tmp_path: Path) -> None:
    exported = tmp_path / "sessions.jsonl"
    blocked.maintenance.export_sessions(exported, ["long"])
    text = exported.read_text().replace('"long"', '"another"')
    exported.write_text(text)
    before = read_all_rows(blocked)
    for call in (blocked.maintenance.preview_import, blocked.maintenance.import_sessions):
        with pytest.raises(Unsupported, match=REFUSED):
            call(exported)
    assert read_all_rows(blocked) == before


def test_import_of_known_sessions_is_previewed(blocked: Changing, tmp_path: Path) -> None:
    exported = tmp_path / "sessions.jsonl"
    blocked.maintenance.export_sessions(exported, ["long"])
    assert [item.id for item in blocked.maintenance.preview_import(exported).skipped] == ["long"]
    assert blocked.maintenance.import_sessions(exported).sessions == 0


def test_compression_is_refused_before_model_call(
    blocked: Changing, compressor: Compressor
) -> None:
    asked: list[Any] = []
    before = read_all_rows(blocked)
    with pytest.raises(Unsupported, match=REFUSED):
        compressor.plan("long", force=True)
    with pytest.raises(Unsupported, match=REFUSED):
        compressor.compress("long", lambda request: str(asked.append(request)))
    assert read_all_rows(blocked) == before
    assert asked == []


@pytest.mark.parametrize("shape", ["in_place", "continuation"])
def test_undo_of_compression_is_refused(
    usual: Changing, compressor: Compressor, shape: Any
) -> None:
    usual.home.db.end_session("long", "idle")
    usual.home.db.reopen_session("long")
    result = compressor.compress("long", shape=shape)
    add_cjk_index(usual.home.db.path)
    before = read_all_rows(usual)
    for call in (compressor.undo, compressor.plan_undo, usual.maintenance.preview_restore):
        with pytest.raises(Unsupported, match=REFUSED):
            call(result.batch)
    assert read_all_rows(usual) == before


def test_compression_plan_older_than_index_is_refused(
    usual: Changing, compressor: Compressor
) -> None:
    planned = compressor.plan("long")
    add_cjk_index(usual.home.db.path)
    before = read_all_rows(usual)
    with pytest.raises(Unsupported, match="cjk_unicode61"):
        compressor.apply(planned.plan)
    after = read_all_rows(usual)
    assert [after[table] for table in TABLES] == [before[table] for table in TABLES]


def test_health_names_blocked_index(blocked: Changing) -> None:
    health = blocked.maintenance.health()
    (finding,) = [finding for finding in health.findings if finding.code == "blocked_index"]
    assert INDEX in finding.what
    assert "cjk_unicode61" in finding.what
    assert not [finding for finding in health.findings if finding.code == "unreadable"]


def test_findings_name_no_refused_plan(blocked: Changing) -> None:
    findings = blocked.maintenance.health().findings
    for finding in findings:
        if finding.tool is not None and finding.plan is not None:
            request = PlanRequest(finding.plan, finding.tool)
            assert blocked.maintenance.plan(request).outcome == "planned"
    (old,) = [finding for finding in findings if finding.code == "old_sessions"]
    assert (old.tool, INDEX in old.what) == (None, True)


def test_index_without_triggers_blocks_nothing(blocked: Changing) -> None:
    with connect(blocked.home.db.path) as connection:
        for event in ("insert", "delete", "update"):
            connection.execute(f"DROP TRIGGER {INDEX}_{event}")
    assert [index.tables for index in blocked.home.db.admin.list_blocked_indexes()] == [()]
    assert "blocked_index" not in {
        finding.code for finding in blocked.maintenance.health().findings
    }
    result = blocked.plan_and_apply("sessions")
    assert blocked.restore(result).unfit == ()


def test_usual_home_has_no_blocked_index(usual: Changing) -> None:
    assert "blocked_index" not in {finding.code for finding in usual.maintenance.health().findings}


def test_blocked_index_promises_no_freed_space(home_path: Path) -> None:
    with opened(home_path, 30) as home:
        for statement in list_cjk_statements("unicode61"):
            home.sql(statement)
        for number in range(40):
            home.session(f"s{number}", 140, reason="idle", messages=30)
        while home.db.admin.optimize_step():
            pass
        home.db.delete_sessions([f"s{number}" for number in range(30)])
        dead = home.db.admin.measure_sizes().index_dead
    block_index(home_path / "state.db")
    with SessionDB(home_path / "state.db") as db:
        assert 0 < db.admin.measure_sizes().index_dead < dead
        while db.admin.optimize_step():
            pass
        assert db.admin.measure_sizes().index_dead == 0
