"""The inventory and the facts of a home on SQLite, and their query plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.state.sqlite.admin import admin
from session_core.types import Claim
from tests.homes import SCHEMAS, fill_database, make_hermes_database, make_own_database
from tests.maintenance.homes import DAY, NOW, Home, opened

COVERING = "USING COVERING INDEX"


def test_null_flag_means_live(home_path: Path) -> None:
    make_hermes_database(home_path / "state.db", null_flags=True)
    with SessionDB(home_path / "state.db") as db:
        message = db.append_message("s", "user", "x", create={"source": "cli"})
        db.append_message("s", "user", "y")
        with db.transaction():
            sql = "UPDATE messages SET active = NULL WHERE id = ?"
            db._write(lambda handle: handle.execute_update(sql, (int(message),)))
        (found,) = db.admin.list_inventory()
        assert found.live == 2
        assert found.revision == db.get_revision("s")


def test_facts_count_messages_per_week(home: Home) -> None:
    for days, count in ((20, 7), (9, 4), (1, 2)):
        home.clock.now = NOW - days * DAY
        for _ in range(count):
            home.db.append_message("s", "user", "x", create={"source": "cli"})
    home.clock.now = NOW
    assert home.db.admin.read_health_facts().weeks == (2, 4, 7, *[0] * 23)


def test_claims_list_other_processes(home_path: Path) -> None:
    with opened(home_path, 30) as home:
        home.session("s", 1)
        home.db.try_acquire_compression_lock("s", "me", 60)
        home.sql("INSERT INTO session_turn_leases VALUES ('s', 'you', 1, 2)")
        home.sql("INSERT INTO gateway_heartbeats VALUES ('gw', 7, 1, 2, '', 'there')")
        assert home.db.admin.list_claims() == [
            Claim("compression", "s", "me", NOW, NOW + 60),
            Claim("turn", "s", "you", 1.0, 2.0),
            Claim("gateway", None, "gw", 2.0, None, 7, "there"),
        ]
        assert home.db.admin.read_health_facts().claims == tuple(home.db.admin.list_claims())


# -- how it is read ------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:reading")
@pytest.mark.parametrize("schema", ["own", *SCHEMAS])
def test_messages_are_counted_by_covering_index(home_path: Path, schema: Any) -> None:
    path = home_path / "state.db"
    if schema == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, schema)
    fill_database(path, 4, 4)
    with SessionDB(path) as db:
        steps = [
            step
            for block in (admin.SQL["count_messages"], list_orphaned_messages())
            for step in read_query_plan(db, block)
            if "messages" in step or "counted" in step
        ]
    # Rows are read only for inactive messages, since no index has the compacted ones.
    inexact = [step for step in steps if COVERING not in step]
    assert all("(session_id=? AND active=?)" in step for step in inexact)
    assert len(inexact) == (schema != 16)
    assert not any("TEMP B-TREE" in step for step in steps)
    # Without this column there are no compacted messages, and no row is read.
    assert sum(step.startswith("SCAN messages") for step in steps) == (schema == 16)


def list_orphaned_messages() -> str:
    return admin.SQL["list_orphan_rows"].format(
        table="messages", column="session_id", last_at="max(timestamp)"
    )


def read_query_plan(db: SessionDB, block: str) -> list[str]:
    return db._read(
        lambda handle: [
            row[3]
            for row in handle.fetch_tuples(
                f"EXPLAIN QUERY PLAN {handle.expand_sql(block)}", {"most": 1}
            )
        ]
    )
