"""Statements of PostgreSQL, which replace those of SQLite by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from session_core import ledger
from session_core.errors import Busy, Conflict, InvalidInput, SessionError, StorageError
from session_core.state import postgres, sql_blocks
from session_core.state.postgres import connection
from session_core.state.postgres.session_db import PostgresDB

OWN_FILES = {"feed", "holders", "integrity", "sizes"}
"""Files that only code of this engine uses."""

_PLACEHOLDER = re.compile(r"(?<!:):([a-z_]\w*)|\?")


def list_placeholders(block: str) -> tuple[set[str], int]:
    """Return the names of placeholders, and the number of those without one."""
    text = re.sub(r"'[^']*'|--[^\n]*", "", block)
    found = list(_PLACEHOLDER.finditer(text))
    return {match[1] for match in found if match[1]}, sum(match[0] == "?" for match in found)


def _find_package(file: str) -> str:
    """Return the package whose statements a file of this engine replaces."""
    is_of_ledger = (Path(ledger.__file__).parent / f"{file}.sql").exists()
    return ledger.__name__ if is_of_ledger else "session_core.state.sqlite"


def iter_shared_blocks() -> Iterator[tuple[str, str, str, str]]:
    for path in sorted(Path(postgres.__file__).parent.glob("*.sql")):
        if path.stem not in OWN_FILES:
            shared = sql_blocks.load_blocks(path.stem, _find_package(path.stem))
            for name, block in sql_blocks.load_blocks(path.stem, postgres.__name__).items():
                yield path.stem, name, shared.get(name, ""), block


def test_every_statement_replaces_one_of_sqlite() -> None:
    assert [name for _, name, shared, _ in iter_shared_blocks() if not shared] == []


def test_statements_take_placeholders_of_sqlite() -> None:
    different = []
    for file, name, shared, own in iter_shared_blocks():
        (shared_names, shared_marks), (names, marks) = map(list_placeholders, (shared, own))
        if not names <= shared_names or marks != shared_marks:
            different.append((file, name))
    # SQLite repeats the mark of this one by its number.
    assert different in ([], [("admin", "list_children")])


@pytest.mark.parametrize(
    ("sql", "translated"),
    [
        ("a = ? AND b = :name", "a = %s AND b = %(name)s"),
        ("x::text = '? :no %' -- :not ?\n", "x::text = '? :no %%' \n"),
        ("\"a?b\" LIKE '%'", "\"a?b\" LIKE '%%'"),
    ],
)
def test_placeholders_are_translated(sql: str, translated: str) -> None:
    assert connection._translate_placeholders(sql) == translated


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (connection.errors.LockNotAvailable(), Busy),
        (connection.errors.UniqueViolation(), Conflict),
        (connection.errors.NumericValueOutOfRange(), InvalidInput),
        (connection.psycopg.OperationalError("password=secret"), Busy),
        (connection.errors.InternalError_("secret"), StorageError),
    ],
)
def test_error_is_translated_without_its_text(error: Exception, kind: type[SessionError]) -> None:
    translated = connection.translate_error(error)
    assert type(translated) is kind
    assert "secret" not in str(translated)


def test_prefetched_rows_equal_single_reads(db: PostgresDB) -> None:
    for name in ("a", "b\0", "c"):
        db.append_message(name, "user", f"said 100% in {name}", create={"source": "cli"})
    db.append_message("a", "user", "two")
    statements = (
        "SELECT id, session_id, content FROM messages WHERE session_id = ?",
        "SELECT count(*), 50 % 7, '50%' FROM sessions WHERE id = :id -- a note",
    )
    keys = ["a", "b\0", "nobody"]

    def read_all(handle: Any) -> list[Any]:
        return [
            (handle.fetch_rows(statements[0], (key,)), handle.fetch_row(statements[1], {"id": key}))
            for key in keys
        ]

    store: Any = db._store
    single = store.read(read_all)
    calls: list[str] = []

    def read_prefetched(handle: Any) -> list[Any]:
        handle.prefetch_rows(statements, keys)
        handle.execute = calls.append
        return read_all(handle)

    assert store.read(read_prefetched) == single
    assert calls == []
    with db.transaction():  # a statement may have another result after a change
        assert store.read(lambda handle: handle.prefetch_rows(statements, keys)) is None
        db.append_message("a", "user", "three")
        assert len(store.read(read_all)[0][0]) == 3


def test_list_takes_few_statements(db: PostgresDB, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        db.append_message(f"s{number}", "user", f"said {number}", create={"source": "cli"})
    usual, calls = psycopg.Connection.execute, list[Any]()

    def execute(connection: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return usual(connection, *arguments)

    monkeypatch.setattr(psycopg.Connection, "execute", execute)
    page = db.list_sessions(limit=20)
    assert (len(page.items), page.items[0].preview) == (20, "said 29")
    assert len(calls) < 15


def test_columns_are_read_once(db: PostgresDB, monkeypatch: pytest.MonkeyPatch) -> None:
    db.append_message("s", "user", "one", create={"source": "cli"})
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def note_statement(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(str(query))
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", note_statement)
    db.append_message("s", "user", "two")
    db.list_sessions()
    assert not [statement for statement in statements if "pg_attribute" in statement]
