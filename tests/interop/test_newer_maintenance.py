"""Homes of the schemas 23 to 30, changed and restored. Unknown data stays unchanged.

If the SQLite of the run can load extensions, each is also tested with the CJK index.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Compressor, _sqlite3
from session_core.compression import CompressionLimits
from tests.cjk import INDEX
from tests.homes import connect, make_hermes_database
from tests.interop.twins import shape
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import NOW, fill, opened

CAN_LOAD = hasattr(_sqlite3.load_library().Connection, "enable_load_extension")
CJK = (False, True) if CAN_LOAD else (False,)
KINDS = [(schema, cjk) for schema in range(23, 31) for cjk in CJK]

FUTURE = (
    "CREATE TABLE table_of_the_future (id INTEGER PRIMARY KEY, blob BLOB, at REAL)",
    "CREATE INDEX index_of_the_future ON table_of_the_future(at)",
    "CREATE VIEW view_of_the_future AS SELECT id, title FROM sessions",
    "CREATE TRIGGER trigger_of_the_future AFTER UPDATE OF title ON sessions BEGIN SELECT 1; END",
    "INSERT INTO table_of_the_future VALUES (7, x'00ff80', 1.5)",
    "ALTER TABLE sessions ADD COLUMN column_of_the_future BLOB",
    "ALTER TABLE messages ADD COLUMN column_of_the_future BLOB",
    "UPDATE sessions SET column_of_the_future = x'00ff' || id",
    "UPDATE messages SET column_of_the_future = x'ff00' || id",
)

CELLS = {
    "sessions": {
        "created_source": "'cli'",
        "system_prompt_hash": "(SELECT hash FROM system_prompts)",
        "git_metadata_generation": "3",
        "title_source": "'user'",
        "last_activity_description": "'typing'",
        "last_activity_provenance": "'gateway'",
        "compression_ineffective_count": "2",
        "compression_recovery_deadline": "12.5",
        "compression_overload_streak": "1",
        "transport_profile": "'tui'",
        "hidden": "id = 'old_titled'",
        "last_read_at": "99.5",
        "tool_names": "'[\"ls\"]'",
    },
    "messages": {
        "_compressed_summary": "id % 7 = 0",
        "display_kind": "'odd'",
        "display_metadata": "'{\"a\": 1}'",
        "display_identity": "x'0102'",
    },
}

ROWS = {
    "system_prompts": "('h', 'You are kind.')",
    "gateway_hygiene_state": "('agent:main:telegram:dm:1', 2)",
    "conversation_generations": "('telegram', 'agent:main:telegram:dm:1', 4)",
    "gateway_heartbeats": "('b', 1, 1.0, 2.0, 'p', 'elsewhere')",
    "session_turn_leases": "('old', 'somebody', 1.0, 2.0)",
}


def fill_unknown_columns(path: Path) -> None:
    """Fill every column and table of a newer Hermes, and some that do not exist yet."""
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")  # some rows are orphans
        for table, values in ROWS.items():
            if columns(connection, table):
                connection.execute(f"INSERT INTO {table} VALUES {values}")  # noqa: S608 -- fixed names
        delegation = "(delegation_id, origin_session, state, dispatched_at, updated_at)"
        connection.execute(
            f"INSERT INTO async_delegations {delegation} VALUES ('d', 'old', 'done', 1.0, 1.0)"  # noqa: S608
        )
        for table, cells in CELLS.items():
            known = columns(connection, table)
            for name, value in cells.items():
                if name in known:
                    connection.execute(f"UPDATE {table} SET {name} = {value}")  # noqa: S608 -- fixed names
        for statement in FUTURE:
            connection.execute(statement)


def columns(connection: Any, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{'cjk' if kind[1] else 'usual'}")
def changed(request, home_path: Path, tmp_path: Path) -> Iterator[Changing]:
    """A home of one schema with items for every plan and unknown data."""
    schema, cjk = request.param
    with opened(home_path, schema, cjk=cjk) as home:
        fill(home)
        home.session("long", 0.5, messages=60)
        home.store.close()
        fill_unknown_columns(home.db.path)
        with changing(home, tmp_path / "kept") as made:
            yield made


@pytest.fixture
def compressor(changed: Changing) -> Iterator[Compressor]:
    home, limits = changed.home, CompressionLimits(keep_last=8)
    with Compressor(
        home.db, changed.ledger, store=home.store, limits=limits, clock=home.clock
    ) as made:
        yield made


def check_indexes(changed: Changing) -> None:
    """Check every full-text index against itself and its expected words."""
    db = changed.home.db
    codes = {finding.code for finding in db.admin.check_integrity(deep=True)}
    assert codes <= {"orphaned_messages", "orphaned_rows", "broken_parents"}
    assert db.search("says", limit=3).hits


@pytest.mark.requirement("homes:newer-maintenance")
@pytest.mark.parametrize("what", ["sessions", "all"])
def test_prune_restores_newer_schema_whole(changed: Changing, what: str) -> None:
    before, home_shape = changed.read_everything(), shape(changed.home.folder)
    result = changed.plan_and_apply(what)
    assert result.removed > 5
    assert changed.home.db.get_session("old") is None
    assert shape(changed.home.folder) == home_shape
    assert changed.restore(result).unfit == ()
    assert changed.read_everything() == before
    assert shape(changed.home.folder) == home_shape
    check_indexes(changed)


@pytest.mark.requirement("homes:newer-maintenance")
def test_finalize_restores_newer_schema_whole(changed: Changing) -> None:
    before, home_shape = changed.read_everything(), shape(changed.home.folder)
    result = changed.plan_and_apply("abandoned", "finalize")
    assert result.finalized
    assert changed.restore(result).unfit == ()
    assert changed.read_everything() == before
    assert shape(changed.home.folder) == home_shape


@pytest.mark.requirement("homes:newer-maintenance")
@pytest.mark.parametrize("kind", ["in_place", "continuation"])
def test_compression_undo_restores_newer_schema_whole(
    changed: Changing, compressor: Compressor, kind: Any
) -> None:
    before, home_shape = changed.read_everything(), shape(changed.home.folder)
    result = compressor.compress("long", shape=kind)
    assert changed.home.db.search("summary", limit=1) is not None
    assert result.tokens_after < result.tokens_before
    assert shape(changed.home.folder) == home_shape
    check_indexes(changed)
    compressor.undo(result.batch)
    assert changed.read_everything() == before
    assert shape(changed.home.folder) == home_shape
    check_indexes(changed)


@pytest.mark.requirement("homes:newer-maintenance")
def test_export_import_keeps_newer_schema_whole(changed: Changing, tmp_path: Path) -> None:
    names = ("old", "old_titled", "chain_1")
    exported = tmp_path / "sessions.jsonl"
    changed.maintenance.export_sessions(exported, names)
    with connect(changed.home.db.path) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        dropped = columns & {"transport_profile"}  # names a chat, which an import drops
        for column in dropped:
            connection.execute(f"UPDATE sessions SET {column} = NULL")  # noqa: S608 -- a fixed name
    before = changed.read_everything()
    changed.plan_and_apply("sessions", ids=names)
    assert changed.home.db.get_session("old") is None
    imported = changed.maintenance.import_sessions(exported)
    assert imported.sessions == 5
    assert imported.dropped_columns == {}
    assert set(imported.chat_state) == dropped
    assert select_rows(changed.read_everything(), names) == select_rows(before, names)


def select_rows(everything: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    tables = everything["rows"]
    rows = [*tables["sessions"], *tables["messages"]]
    return [row for row in rows if not set(names).isdisjoint(map(str, row))]


@pytest.mark.requirement("homes:newer-maintenance")
def test_vacuum_keeps_newer_schema_content(changed: Changing) -> None:
    changed.plan_and_apply("ghosts")
    before, home_shape = changed.read_everything(), shape(changed.home.folder)
    while changed.home.db.admin.optimize_step():
        pass
    changed.home.db.admin.vacuum()
    assert changed.read_everything() == before
    assert shape(changed.home.folder) == home_shape
    check_indexes(changed)


@pytest.mark.requirement("homes:newer-maintenance")
def test_append_is_found_in_every_index(changed: Changing) -> None:
    db = changed.home.db
    message = db.append_message("long", "user", "a chamois joins 羚羊也来了")
    assert [hit.message_id for hit in db.search("chamois").hits] == [message]
    assert [hit.message_id for hit in db.search("羚羊也").hits] == [message]
    assert db.get_messages("long")[-1]["content"] == "a chamois joins 羚羊也来了"
    assert "long" in {line.id for line in db.list_sessions(limit=200).items}
    cjk = f"SELECT count(*) FROM {INDEX}_docsize WHERE id = ?"  # noqa: S608 -- a fixed name
    with connect(db.path, "ro") as connection:
        if columns(connection, f"{INDEX}_docsize"):
            assert connection.execute(cjk, (message,)).fetchone() == (1,)


@pytest.mark.requirement("homes:newer-maintenance")
def test_finding_names_no_blocked_index(changed: Changing) -> None:
    codes = {finding.code for finding in changed.maintenance.health(deep=True).findings}
    assert not codes & {"blocked_index", "unreadable", "search_index_damaged", "damaged"}
    assert changed.home.clock.now == NOW


@pytest.mark.requirement("homes:newer-maintenance")
def test_every_fixture_schema_is_covered(tmp_path: Path) -> None:
    make_hermes_database(tmp_path / "state.db", 30)
    with connect(tmp_path / "state.db", "ro") as connection:
        for table, cells in CELLS.items():
            assert set(cells) <= columns(connection, table)
        for table in ROWS:
            assert columns(connection, table)
