"""Lists over long conversations: their statements, and the amounts of strange chains."""

from __future__ import annotations

from typing import Any, get_args

import psycopg
import pytest

from session_core import SessionFilter
from session_core.state.postgres.session_db import PostgresDB
from session_core.types import SessionOrder
from tests.postgres_home import change_rows

FOLDER = "/srv/app"


def add_chain(db: PostgresDB, length: int) -> str:
    """Add a conversation of some sessions and return its tip."""
    name = ""
    with db.transaction():
        for number in range(length):
            parent, name = name or None, f"s{number:04}"
            folder = None if parent else FOLDER
            db.create_session(
                name, "cli", cwd=folder, parent_session_id=parent, started_at=float(number)
            )
            db.append_message(name, "user", "hello", timestamp=float(number))
            db.update_token_counts(name, input_tokens=2, model="m")
            if number < length - 1:
                db.end_session(name, "compression")
    return name


def test_list_of_chain_takes_few_statements(
    db: PostgresDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = add_chain(db, 60)
    statements: list[Any] = []
    execute = psycopg.Connection.execute

    def count_statement(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(query)
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", count_statement)
    for order in get_args(SessionOrder):
        statements.clear()
        page = db.list_sessions(SessionFilter(project=FOLDER), order=order, limit=5)
        (line,) = page.items
        assert (line.id, line.root_id, line.project, line.tokens) == (tip, "s0000", FOLDER, 120)
        assert len(statements) <= 25


@pytest.mark.parametrize("order", ["cost", "tokens"])
def test_amount_order_keeps_sessions_of_cycle(db: PostgresDB, order: SessionOrder) -> None:
    for name in ("a", "b", "alone"):
        db.create_session(name, "cli")
        db.update_token_counts(name, input_tokens=3, model="m")
    for name in ("a", "b"):
        db.end_session(name, "compression")
    for name, parent in (("a", "b"), ("b", "a")):
        statement = "UPDATE sessions SET parent_session_id = ? WHERE id = ?"
        change_rows(db, statement, (parent, name))
    page = db.list_sessions(order=order)
    assert "alone" in {line.id for line in page.items}
    assert {line.id for line in page.items} & {"a", "b"}
    assert {line.tokens for line in page.items} == {3, 6}
