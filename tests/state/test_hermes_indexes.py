"""Search in a Hermes home finds rows that its indexes hide or lack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.state.sqlite.search import match_blocks
from tests.homes import add_message, add_session, connect, make_hermes_database
from tests.thorough import take_main_kinds

SCHEMAS = (16, 22, 23, 26, 30)


@pytest.fixture
def path(home_path: Path) -> Path:
    return home_path / "state.db"


@contextmanager
def open_filled_home(path: Path, schema: int, **options: Any) -> Iterator[Any]:
    make_hermes_database(path, schema, **options)
    with connect(path) as connection:
        add_session(connection, "s")
        yield connection


def list_hits(path: Path, query: str, **options: Any) -> list[int]:
    """Return the hits of all pages of a search."""
    ids: list[int] = []
    cursor = None
    with SessionDB(path, read_only=True) as db:
        while True:
            answer = db.search(query, per="message", cursor=cursor, **options)
            ids += [hit.message_id for hit in answer.hits]
            cursor = answer.next_cursor
            if cursor is None:
                return sorted(ids)


@pytest.mark.requirement("search:layouts")
@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
@pytest.mark.parametrize("query", ["数据", "架", "数据库的架构", "terminal", "deploy", "构设"])
def test_tool_output_is_found(path: Path, schema: int, query: str) -> None:
    with open_filled_home(path, schema) as connection:
        text = "deploy 了数据库的架构设计"
        message_id = add_message(connection, "s", "tool", text, tool_name="terminal")
        two = add_message(connection, "s", "user", "terminal " + text)
        add_message(connection, "s", "user", "else")
    assert list_hits(path, query) == [message_id, two]


@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
def test_cron_conversations_are_found(path: Path, schema: int) -> None:
    with open_filled_home(path, schema) as connection:
        add_session(connection, "job", source="cron")
        message_id = add_message(connection, "job", "user", "每天检查数据库")
    assert list_hits(path, "数据") == [message_id]
    assert list_hits(path, "天检查数", mode="substring") == [message_id]


@pytest.mark.requirement("search:layouts")
@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
@pytest.mark.parametrize("query", ["大阪", "second", "привет", "城", "Größe", "python"])
def test_encoded_text_is_found(path: Path, schema: int, query: str) -> None:
    text = "first\nsecond\t大阪城 python开发 Größe Привет"
    with open_filled_home(path, schema) as connection:
        message_id = add_message(connection, "s", "user", [{"type": "text", "text": text}])
        add_message(connection, "s", "user", [{"type": "text", "text": "else"}])
    assert list_hits(path, query) == [message_id]


@pytest.mark.requirement("search:layouts")
@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
@pytest.mark.parametrize("query", ["deploy", "DEPLOY ledger"])
def test_word_between_han_characters_is_found(path: Path, schema: int, query: str) -> None:
    text = "把deploy了的ledger库"
    calls = '[{"function": {"name": "run", "arguments": "先deploy后ledger吧"}}]'
    with open_filled_home(path, schema) as connection:
        add_session(connection, "job", source="cron")
        ids = [
            add_message(connection, "s", "tool", text, tool_name="terminal"),
            add_message(connection, "s", "user", text),
            add_message(connection, "s", "assistant", None, tool_calls=calls),
            add_message(connection, "job", "assistant", text),
        ]
        add_message(connection, "s", "tool", "部署deployed完成")
    assert list_hits(path, query) == ids
    assert list_hits(path, query, limit=1) == ids


@pytest.mark.parametrize("sign", ["\ue000", "\u0378", "\U00040000"])
@pytest.mark.parametrize("query", ["{}:zero", "({})zero", "zero"])
def test_word_beside_unassigned_character_is_found(path: Path, sign: str, query: str) -> None:
    with open_filled_home(path, 22) as connection:
        text = f"{sign}:zero ({sign})zero"
        message_id = add_message(connection, "s", "user", [{"type": "text", "text": text}])
        two = add_message(connection, "s", "user", text)
    assert list_hits(path, f'"{query.format(sign)}"') == [message_id, two]


@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
def test_words_after_escaped_character_are_found(path: Path, schema: int) -> None:
    with open_filled_home(path, schema) as connection:
        message_id = add_message(
            connection, "s", "user", [{"type": "text", "text": "say “deploy” now"}]
        )
        with SessionDB(path, read_only=True) as db:

            def ids(query: str) -> list[int]:
                return [hit.message_id for hit in db.search(query, per="message").hits]

            assert (
                ids("deploy") == ids('"deploy"') == ids("depl*") == ids("-deploy") == [message_id]
            )
            two = add_message(connection, "s", "user", [{"type": "text", "text": "• größe 用zsh"}])
            assert ids("deploy") == [message_id]
            assert ids("zsh") == ids("größe") == [two]


def drop_indexes(connection: Any) -> None:
    for table in ("messages_fts", "messages_fts_trigram"):
        for what in ("insert", "update", "delete"):
            connection.execute(f"DROP TRIGGER {table}_{what}")
        connection.execute(f"DROP TABLE {table}")


def test_search_without_index_ignores_accents(path: Path) -> None:
    with open_filled_home(path, 22) as connection:
        drop_indexes(connection)
        message_id = add_message(connection, "s", "user", "Café Noir")
        calls = [{"id": "c", "function": {"name": "run", "arguments": '{"a": "caf\\u00e9 noir"}'}}]
        two = add_message(connection, "s", "assistant", None, tool_calls=calls)
        unescaped = json.dumps(calls).replace(r"\\u00e9", "é")
        three = add_message(connection, "s", "assistant", None, tool_calls=unescaped)
        four = add_message(connection, "s", "tool", "ok", tool_name="café noir")
        add_message(connection, "s", "user", "café")
    assert list_hits(path, "cafe noir") == [message_id, two, three, four]
    assert list_hits(path, "afe noi", mode="substring") == [message_id, two, three, four]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("搜索", "words"),
        ("搜索", "substring"),
        ("rc/app.p", "substring"),
        ("葛城", "substring"),
        ("大学", "substring"),
    ],
)
def test_encoding_variants_hide_no_text(path: Path, indexed: bool, query: str, mode: str) -> None:
    arguments = r'{"path": "src\/app.py"}'
    calls = [{"id": "c", "function": {"name": "run", "arguments": arguments}}]
    with open_filled_home(path, 22) as connection:
        add_message(connection, "s", "assistant", None, tool_calls=calls)
        add_message(connection, "s", "tool", "ok", tool_name="搜索")
        add_message(connection, "s", "user", "我想去葛\U000e0100城看看")
        add_message(connection, "s", "user", "大\u200b学")
        if not indexed:
            drop_indexes(connection)
    places = ["rc/app.p", "搜索", "葛城", "大学"]
    assert list_hits(path, query, mode=mode) == [places.index(query) + 1]


@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
@pytest.mark.parametrize("needle", ["大阪", "d\t大", "大阪城 p", "cond", 'say "x', "öß"])
def test_encoded_substrings_are_found(path: Path, schema: int, needle: str) -> None:
    text = 'first\nsecond\t大阪城 python say "x" Größe'
    with open_filled_home(path, schema) as connection:
        message_id = add_message(connection, "s", "user", [{"type": "text", "text": text}])
        add_message(connection, "s", "user", [{"type": "text", "text": "else"}])
    assert list_hits(path, needle, mode="substring") == [message_id]


def test_json_key_names_are_not_found(path: Path) -> None:
    with open_filled_home(path, 22) as connection:
        add_message(connection, "s", "user", [{"type": "text", "text": "hello"}])
        calls = [{"id": "c", "function": {"name": "run", "arguments": '{"path": "x"}'}}]
        add_message(connection, "s", "assistant", None, tool_calls=calls)
    for query in ('"type"', '"function"', '"arguments"', '"json"'):
        assert list_hits(path, query) == []
    assert list_hits(path, "hello NOT type") == [1]


def test_rare_old_substring_is_found_immediately(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_blocks, "_DENSE_IDS", 5)
    with open_filled_home(path, 22) as connection:
        message_id = add_message(connection, "s", "user", "项目叫麒麟")
        connection.execute("BEGIN")
        for _ in range(60):
            add_message(connection, "s", "user", "其他的文字")
        connection.execute("COMMIT")
    for query in ("麒麟", "麟", "麒"):
        assert list_hits(path, query) == [message_id]


@pytest.mark.parametrize("table", ["messages_fts", "messages_fts_trigram"])
def test_missing_index_is_compensated(path: Path, table: str) -> None:
    with open_filled_home(path, 22) as connection:
        for what in ("insert", "update", "delete"):
            connection.execute(f"DROP TRIGGER {table}_{what}")
        connection.execute(f"DROP TABLE {table}")
        message_id = add_message(connection, "s", "user", "deploy 数据库")
    for query in ("deploy", "数据", "depl*"):
        assert list_hits(path, query) == [message_id]
    assert list_hits(path, "eplo", mode="substring") == [message_id]


def test_unindexed_messages_are_found(path: Path) -> None:
    with open_filled_home(path, 22) as connection:
        message_id = add_message(connection, "s", "user", "deploy 数据库")
        for table in ("messages_fts", "messages_fts_trigram"):
            connection.execute(f"DROP TRIGGER {table}_insert")
        two = add_message(connection, "s", "user", "deploy 数据库")
    assert list_hits(path, "deploy") == [message_id, two]
    assert list_hits(path, "数据") == [message_id, two]
    assert list_hits(path, "据库", mode="substring") == [message_id, two]


@pytest.mark.parametrize(
    "marks",
    [{"fts_stale": "1"}, {"fts_rebuild_high_water": "2", "fts_rebuild_progress": "0"}],
)
def test_index_under_rebuild_is_not_trusted(path: Path, marks: dict[str, str]) -> None:
    with open_filled_home(path, 30) as connection:
        connection.executemany("INSERT INTO state_meta VALUES (?, ?)", marks.items())
        message_id = add_message(connection, "s", "user", "deploy it")
        connection.execute("INSERT INTO messages_fts(messages_fts) VALUES ('delete-all')")
    assert list_hits(path, "deploy") == [message_id]


def test_damaged_hermes_index_is_compensated(path: Path) -> None:
    with open_filled_home(path, 22) as connection:
        message_id = add_message(connection, "s", "user", "deploy 数据库")
        connection.execute("UPDATE messages_fts_data SET block = x'FFFFFFFF' WHERE id > 10")
        connection.execute("UPDATE messages_fts_trigram_data SET block = x'FFFFFFFF' WHERE id > 10")
    assert list_hits(path, "deploy") == [message_id]
    assert list_hits(path, "数据库") == [message_id]
    assert list_hits(path, "eplo", mode="substring") == [message_id]


@pytest.mark.requirement("search:layouts")
@pytest.mark.parametrize("schema", take_main_kinds(SCHEMAS))
@pytest.mark.parametrize("indexed", [True, False])
def test_message_with_extreme_id_is_found(path: Path, schema: int, indexed: bool) -> None:
    odd = [-(2**63), -70_000, 0, 1, 300_000, 2**63 - 1]
    with open_filled_home(path, schema) as connection:
        if not indexed:
            connection.execute("DROP TABLE messages_fts")
            connection.execute("DROP TRIGGER messages_fts_insert")
        for number in odd:
            add_message(connection, "s", "tool", "deploy 数据库", id=number)
    for query in ("deploy", "dep*", "数据", "数据库", "did anybody deploy it?"):
        assert list_hits(path, query) == odd, query
    assert list_hits(path, "eplo", mode="substring") == odd


def test_null_flags_of_older_homes_are_live(path: Path) -> None:
    with open_filled_home(path, 16, null_flags=True) as connection:
        message_id = add_message(connection, "s", "user", "deploy", active=None)
    assert list_hits(path, "deploy") == [message_id]


def test_search_leaves_schema_unchanged(path: Path) -> None:
    with open_filled_home(path, 22) as connection:
        add_message(connection, "s", "user", "数据 deploy")
        before = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
        with SessionDB(path) as db:
            for query in ("数据", "deploy", "数 deploy", "nothing at all"):
                db.search(query)
                db.search(query, mode="substring")
        assert connection.execute("SELECT name, sql FROM sqlite_master").fetchall() == before
