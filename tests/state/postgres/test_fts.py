"""The lexemes of the search index."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from session_core.state import query
from session_core.state.postgres import fts
from session_core.state.postgres.session_db import PostgresDB


@pytest.mark.parametrize(
    ("text", "lexemes"),
    [
        ("The CAFÉ, the cafe", ["the", "cafe"]),
        ("数据库", ["数", "据", "库", "数据", "据库"]),
        ("数 据", ["数", "据", "数据"]),
        ("x数y", ["x", "数", "y"]),
        ("", []),
    ],
)
def test_text_is_cut_into_lexemes(text: str, lexemes: list[str]) -> None:
    assert fts.list_lexemes(text) == lexemes


@pytest.mark.parametrize(
    ("typed", "match"),
    [
        ("ledger", "('ledger')"),
        ('"the ledger"', "('the' & 'ledger')"),
        ("led*", "('led':*)"),
        ("数据库", "('数据' & '据库')"),
        ("库", "('库')"),
        ("a OR b", "(('a') | ('b'))"),
        ("a NOT b", "(('a'))"),
    ],
)
def test_query_becomes_superset(typed: str, match: str) -> None:
    node = query.parse_query(typed).node
    assert node is not None
    assert fts.compose_match(node) == match


def test_index_is_filled_by_search(db: PostgresDB) -> None:
    rows = [{"role": "user", "content": f"ledger {number}"} for number in range(150)]
    db.append_messages("s", rows, create={"source": "cli"})
    assert db.admin.check_integrity(deep=True) == []
    assert len(db.search("ledger", per="message", limit=100).hits) == 100
    count = "SELECT count(*) FROM text_queue WHERE home_id = this_home()"
    assert db._store.read(lambda handle: handle.fetch_value(count)) == 0


def test_message_with_very_many_words_is_found(db: PostgresDB) -> None:
    words = " ".join(f"{number:x}{'w' * 90}" for number in range(12_000))
    message_id = db.append_message("s", "user", f"begin {words} end", create={"source": "cli"})
    db._store.update_search_index()
    assert [hit.message_id for hit in db.search("begin end").hits] == [message_id]
    assert [hit.message_id for hit in db.search('"begin 0w"*').hits] == [message_id]


def test_search_of_indexed_home_changes_nothing(
    db: PostgresDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.append_message("s", "user", "ledger", create={"source": "cli"})
    db.admin.optimize_step()
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def note_statement(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(str(query))
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", note_statement)
    assert len(db.search("ledger").hits) == 1
    assert not [statement for statement in statements if "READ WRITE" in statement]
    assert len(statements) <= 6
