"""Rows with invalid values do not hide other rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import Corrupt, SessionDB, SessionFilter
from tests.homes import add_session, connect, fill_database, make_hermes_database, make_own_database
from tests.thorough import take_main_kinds

BAD = "fill_0_00001"
DAMAGE = [
    f"UPDATE {table} SET {column} = {value} WHERE {key}"  # noqa: S608 -- the names below
    for table, key, columns in (
        ("sessions", f"id = '{BAD}'", ("title", "started_at", "ended_at", "input_tokens")),
        ("messages", f"session_id = '{BAD}'", ("timestamp", "tool_calls", "tool_name", "content")),
    )
    for column in columns
    for value in ("'2024-01-01T00:00:00'", "x'ff00'", "9e999", "'[NaN]'", "CAST(x'ff41' AS TEXT)")
]
STRANGERS = [
    f"INSERT INTO sessions (id, source, started_at) VALUES ({value}, 'cli', 1700003600)"  # noqa: S608 -- the values below
    for value in ("x'ff00'", "CAST(x'ff41' AS TEXT)")
]


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    if request.param == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, request.param)
    fill_database(path, 5, 8)
    return path


LOOKS: list[Callable[[SessionDB], Any]] = [
    lambda db: {line.id for line in db.list_sessions(limit=9).items},
    lambda db: {line.id for line in db.list_sessions(SessionFilter(status="all"), limit=9).items},
    lambda db: {line.id for line in db.list_sessions(order="size", limit=9).items},
    lambda db: {line.id for line in db.list_sessions(order="cost", limit=9).items},
    lambda db: {line.id for line in db.list_sessions(order="tokens", limit=9).items},
    lambda db: {hit.session_id for hit in db.search("turn", limit=9).hits} | {BAD},
    lambda db: {
        str(row["session_id"]) for one in list_session_ids(db) for row in db.get_messages(one)
    },
    lambda db: set(db.find_sessions(SessionFilter(ids=tuple(list_session_ids(db))))),
]


def list_session_ids(db: SessionDB) -> list[str]:
    return [f"fill_0_{number:05}" for number in range(5)]


@pytest.mark.requirement("lists:damage")
@pytest.mark.parametrize("damage", [*DAMAGE, *STRANGERS])
def test_damaged_row_hides_no_other_rows(path: Path, damage: str) -> None:
    with SessionDB(path) as db:
        db.list_sessions()
        with connect(path) as connection:
            connection.execute(damage)
        for opened in (db, SessionDB(path)):
            for look in LOOKS:
                assert look(opened) == set(list_session_ids(db))
            line = opened.summarize_session(BAD)
            assert not math.isnan(line.started_at + line.last_active_at + (line.ended_at or 0))
            opened.update_token_counts(BAD, input_tokens=1)
            opened.close()


@pytest.mark.requirement("lists:damage")
def test_last_active_time_skips_invalid_times(path: Path) -> None:
    with connect(path) as connection:
        sql = "SELECT min(id), max(timestamp) FROM messages WHERE session_id = ?"
        first, last = connection.execute(sql, (BAD,)).fetchone()
        connection.execute("UPDATE messages SET timestamp = 'once' WHERE id = ?", (first,))
    with SessionDB(path, read_only=True) as db:
        assert db.summarize_session(BAD).last_active_at == last


@pytest.mark.parametrize("kind", ["own", "hermes"])
@pytest.mark.parametrize("message_id", [-7, 0, 2**62, 2**63 - 1])
def test_damaged_message_id_breaks_no_reads(home_path: Path, kind: str, message_id: int) -> None:
    path = home_path / "odd.db"
    if kind == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, 22)
    with connect(path) as connection:
        add_session(connection, "s")
        connection.execute(
            "INSERT INTO messages (id, session_id, role, content, timestamp)"
            " VALUES (?, 's', 'user', 'a wombat', 5.0)",
            (message_id,),
        )
    with SessionDB(path) as db:
        for query in ("wombat", "what is wombat nowhere"):
            db.search(query)
        db.search("wom", mode="substring")
        db.list_sessions()
        cursor = db.read_changes().cursor
        assert db.read_changes(cursor).events == []
        if message_id == 2**63 - 1:
            with pytest.raises(Corrupt, match="highest possible id"):
                db.append_message("s", "user", "more")
        else:
            db.append_message("s", "user", "more")
            assert [event.text for event in db.read_changes(cursor).events] == ["more"]
