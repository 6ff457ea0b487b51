"""Homes that break, block or exhaust a careless reader: a table of builders."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.homes import add_message, add_session, connect, fill_database, make_hermes_database

Builder = Callable[[Path, Path], None]
"""Makes a home in the first folder; the second folder is outside of it and has `target`."""

HUGE = 1 << 40
ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[31m\x9b31m"
WRONG = (b"\xff\x00blob", "text\0nul", -(2**63), 2**63 - 1, 1e308, float("inf"), "", ESCAPES)

_FILES = {
    "routes": "sessions/sessions.json",
    "settings": "config.yaml",
    "old settings": "gateway.json",
    "gateway": "gateway.pid",
    "gateway state": "gateway_state.json",
    "leases": "runtime/active_sessions.json",
    "store": "active_profile",
}


def _make_fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _make_folder(path: Path, _: Path) -> None:
    (path / "below").mkdir(parents=True)


def _make_outside_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "target")


def _make_link_loop(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def _make_sparse_file(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


_KINDS: dict[str, Builder] = {
    "a fifo": _make_fifo,
    "a folder": _make_folder,
    "a link out": _make_outside_link,
    "a loop": _make_link_loop,
    "1 TB": _make_sparse_file,
}


def _make_ordinary_home(home: Path) -> Path:
    path = home / "state.db"
    make_hermes_database(path)
    fill_database(path, 4, 6)
    return path


def _build_odd_file(name: str, make: Builder) -> Builder:
    def build(home: Path, outside: Path) -> None:
        _make_ordinary_home(home)
        (home / name).parent.mkdir(exist_ok=True)
        make(home / name, outside)

    return build


def _build_file_content(name: str, data: bytes | str) -> Builder:
    def build(home: Path, _: Path) -> None:
        _make_ordinary_home(home)
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(data.encode() if isinstance(data, str) else data)

    return build


def _build_database(make: Builder) -> Builder:
    """Return a builder of a home whose database is made by `make`."""

    def build(home: Path, outside: Path) -> None:
        (home / "config.yaml").write_text("{}")
        make(home / "state.db", outside)

    return build


def _build_by_statements(*statements: str) -> Builder:
    def build(home: Path, _: Path) -> None:
        with connect(_make_ordinary_home(home)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return build


def _build_view_home(table: str, body: str) -> Builder:
    """Return a builder of a home with a view in place of a table."""

    def build(home: Path, _: Path) -> None:
        with connect(_make_ordinary_home(home)) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            connection.execute(f"ALTER TABLE {table} RENAME TO {table}_of_before")
            listed = ", ".join(f"1 AS {name}" for name in columns)
            connection.execute(body.format(table=table, columns=listed))
            connection.commit()

    return build


def _build_changed_bytes(change: Callable[[bytearray], bytes | bytearray]) -> Builder:
    def build(home: Path, _: Path) -> None:
        path = _make_ordinary_home(home)
        path.write_bytes(change(bytearray(path.read_bytes())))

    return build


def _garble_bytes(data: bytearray) -> bytearray:
    chance = random.Random(7)
    for _ in range(400):
        data[chance.randrange(100, len(data))] = chance.randrange(256)
    return data


def _make_wrong_types(home: Path, _: Path) -> None:
    with connect(_make_ordinary_home(home)) as connection:
        for table in ("sessions", "messages"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for number, name in enumerate(columns):
                if name not in ("id", "session_id", "parent_session_id"):
                    value: Any = WRONG[number % len(WRONG)]
                    statement = f"UPDATE OR IGNORE {table} SET {name} = ? WHERE rowid % 2 = 0"  # noqa: S608
                    connection.execute(statement, (value,))
        connection.commit()


def _build_parent_links(links: Callable[[int], int | None], count: int) -> Builder:
    def build(home: Path, _: Path) -> None:
        with connect(_make_ordinary_home(home)) as connection:
            for number in range(count):
                add_session(connection, f"p{number}", started_at=1.7e9 + number)
                add_message(connection, f"p{number}", "user", "hello")
            for number in range(count):
                parent = links(number)
                if parent is not None:
                    arguments = (f"p{parent}", "compression", f"p{number}")
                    connection.execute(
                        "UPDATE sessions SET parent_session_id = ?, end_reason = ? WHERE id = ?",
                        arguments,
                    )
            connection.commit()

    return build


def _render_entries(**fields: Any) -> str:
    entry = {"session_key": "agent:main:telegram:dm:1", "session_id": "s", **fields}
    return json.dumps({"agent:main:telegram:dm:1": entry})


def _make_orphan_rows(home: Path, _: Path) -> None:
    with connect(_make_ordinary_home(home)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("UPDATE sessions SET parent_session_id = 'gone' || id")
        connection.execute("UPDATE messages SET session_id = 'gone' || id WHERE id % 2 = 0")
        connection.commit()


def _make_unreadable_home(home: Path, _: Path) -> None:
    _make_ordinary_home(home).chmod(0)


def _make_foreign_owner(home: Path, _: Path) -> None:
    path = _make_ordinary_home(home)
    if os.geteuid() == 0:
        os.chown(path, 4242, 4242)
    path.chmod(0o666)


def _make_outside_settings(home: Path, outside: Path) -> None:
    _make_ordinary_home(home)
    (home / "gateway.json").write_text(json.dumps({"sessions_dir": str(outside)}))


def _make_garbage_log(home: Path, _: Path) -> None:
    path = _make_ordinary_home(home)
    path.with_name("state.db-wal").write_bytes(random.Random(1).randbytes(100_000))
    path.with_name("state.db-shm").write_bytes(random.Random(2).randbytes(32_768))


def _make_log_folder(home: Path, _: Path) -> None:
    _make_ordinary_home(home).with_name("state.db-wal").mkdir()


def _make_linked_folder(home: Path, outside: Path) -> None:
    _make_ordinary_home(home)
    (home / "sessions").symlink_to(outside)


_ENDLESS = (
    "CREATE VIEW {table} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT {columns} FROM n"
)

HOMES: dict[str, Builder] = {
    **{
        f"{kind} as {what}": _build_odd_file(name, make)
        for what, name in _FILES.items()
        for kind, make in _KINDS.items()
    },
    "routes that are no JSON": _build_file_content("sessions/sessions.json", b"{\xff\x00"),
    "routes too deep": _build_file_content("sessions/sessions.json", "[" * 1_000_000),
    "routes in a list": _build_file_content("sessions/sessions.json", "[[]]"),
    "routes of wrong types": _build_file_content(
        "sessions/sessions.json",
        _render_entries(updated_at=[], created_at={}, origin=7, session_id=9),
    ),
    "routes with huge numbers": _build_file_content(
        "sessions/sessions.json", _render_entries(total_tokens=10**400, updated_at="9" * 5_000)
    ),
    "routes with escapes": _build_file_content(
        "sessions/sessions.json", _render_entries(display_name=ESCAPES)
    ),
    "settings that explode": _build_file_content(
        "config.yaml",
        "a: &a [x, x]\n"
        + "".join(
            f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefghij", "bcdefghijk", strict=True)
        )
        * 3,
    ),
    "settings too deep": _build_file_content("config.yaml", "session_reset: " + "[" * 200_000),
    "settings that construct": _build_file_content(
        "config.yaml", "a: !!python/object/apply:os.getpid []"
    ),
    "settings of wrong types": _build_file_content(
        "gateway.json", json.dumps({"sessions_dir": 7, "default_reset_policy": [[]]})
    ),
    "settings that lead out": _make_outside_settings,
    "a sessions folder that leads out": _make_linked_folder,
    "a lease of wrong types": _build_file_content(
        "runtime/active_sessions.json", '[{"pid": "x"}, 7, null]'
    ),
    "a gateway of wrong types": _build_file_content("gateway.pid", '{"pid": -1, "start_time": []}'),
    "a database that is a fifo": _build_database(_make_fifo),
    "a database that is a folder": _build_database(_make_folder),
    "a database that is a loop": _build_database(_make_link_loop),
    "a database that is a link out": _build_database(_make_outside_link),
    "a database of 1 TB of zeros": _build_database(_make_sparse_file),
    "a database that is empty": _build_database(lambda path, _: path.touch()),
    "a database that is text": _build_database(
        lambda path, _: path.write_text("x" * 9_000) and None
    ),
    "a database that is encrypted": _build_database(
        lambda path, _: path.write_bytes(random.Random(3).randbytes(65_536)) and None
    ),
    "a database cut short": _build_changed_bytes(lambda data: data[: len(data) // 2]),
    "a database of a header alone": _build_changed_bytes(lambda data: data[:100]),
    "a garbled database": _build_changed_bytes(_garble_bytes),
    "a log of garbage": _make_garbage_log,
    "a folder as log": _make_log_folder,
    "a database that nobody may read": _make_unreadable_home,
    "a database of another user": _make_foreign_owner,
    "wrong types in every column": _make_wrong_types,
    "a circle of parents": _build_parent_links(lambda number: (number + 1) % 50, 50),
    "its own parent": _build_parent_links(lambda number: number, 3),
    "a chain of 3000 parents": _build_parent_links(
        lambda number: number - 1 if number else None, 3_000
    ),
    "parents that are not there": _make_orphan_rows,
    "a view as sessions": _build_view_home("sessions", "CREATE VIEW {table} AS SELECT {columns}"),
    "endless sessions": _build_view_home("sessions", _ENDLESS),
    "endless messages": _build_view_home("messages", _ENDLESS),
    "an endless view beside": _build_by_statements(
        _ENDLESS.format(table="x", columns="i AS session_id")
    ),
    "triggers on all that changes": _build_by_statements(
        "CREATE TRIGGER t1 AFTER UPDATE ON sessions BEGIN DELETE FROM messages; END",
        "CREATE TRIGGER t2 BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TRIGGER t3 AFTER INSERT ON messages BEGIN UPDATE sessions SET title = 'x'; END",
    ),
    "no tables": _build_by_statements(
        "PRAGMA foreign_keys=OFF", "DROP TABLE messages", "DROP TABLE sessions"
    ),
    "an index that is a table": _build_by_statements(
        "DROP TABLE IF EXISTS messages_fts", "CREATE TABLE messages_fts (content)"
    ),
    "a version of the far future": _build_by_statements(
        "UPDATE schema_version SET version = 9223372036854775807"
    ),
    "a version that is a blob": _build_by_statements("UPDATE schema_version SET version = x'ff00'"),
    "columns that are missing": _build_by_statements(
        "ALTER TABLE sessions RENAME COLUMN started_at TO x"
    ),
    "tables of strange names": _build_by_statements(
        'CREATE TABLE "x\'];--" (session_id, "a""b")', 'CREATE TABLE "" (session_id)'
    ),
    "an expression that fails": _build_by_statements(
        "CREATE TABLE e (session_id, x GENERATED ALWAYS AS (abs(session_id)))"
    ),
    "400 columns": _build_by_statements(
        *(f"ALTER TABLE sessions ADD COLUMN c{number} DEFAULT {number}" for number in range(400))
    ),
}
