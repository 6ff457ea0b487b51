"""Statements of PostgreSQL, which replace those of SQLite by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import ledger
from session_core.errors import Busy, Conflict, InvalidInput, SessionError, StorageError
from session_core.state import postgres, sql_blocks
from session_core.state.postgres import connection

OWN_FILES = {"feed", "integrity", "sizes"}
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
