"""Homes of every schema from 16 to 30, including those without an installable package."""

from __future__ import annotations

import json

import pytest

from session_core.state.sqlite.session_db import SessionDB
from tests.homes import (
    SCHEMAS,
    add_message,
    add_session,
    connect,
    fill_database,
    make_hermes_database,
)
from tests.interop.twins import shape

SHAPES = [*((schema, None) for schema in SCHEMAS), (30, 0), (30, 1)]

STRANGE = {
    "pinned": 1,
    "last_read_at": 12.5,
    "title_source": "user",
    "tool_names": '["ls"]',
    "last_activity_description": "typing",
    "of_the_future": "kept",
}


@pytest.fixture(params=SHAPES, ids=lambda each: f"{each[0]}-{each[1]}")
def newer(request, tmp_path):
    """A filled home of one schema, with a session that sets every column."""
    path = tmp_path / "newer" / "state.db"
    schema, layout = request.param
    make_hermes_database(path, schema, fts_layout=layout)
    with connect(path) as connection:
        connection.execute("ALTER TABLE sessions ADD COLUMN of_the_future TEXT")
        connection.execute("ALTER TABLE messages ADD COLUMN of_the_future TEXT DEFAULT 'new'")
        add_session(connection, "s", **STRANGE, title="Strange", model="m")
        add_message(connection, "s", "user", "an ibex on the cliff", display_kind="odd")
        add_message(connection, "s", "assistant", "山羊在悬崖上面", of_the_future="kept")
        add_message(connection, "s", "tool", "ibex " * 3000, tool_name="camera")
        add_session(connection, "job", source="cron")
        add_message(connection, "job", "user", "夜间报告已经完成")
    fill_database(path)
    return path


@pytest.fixture
def db(newer):
    with SessionDB(newer) as opened:
        yield opened


def read_unknown_cells(path):
    """Return the values of a session that only a newer Hermes knows."""
    with connect(path, "ro") as connection:
        names = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        columns = ", ".join(name for name in STRANGE if name in names)
        sql = f"SELECT {columns} FROM sessions WHERE id = 's'"  # noqa: S608 -- fixed names
        cells = connection.execute(sql).fetchone()
        return cells, {name: STRANGE[name] for name in STRANGE if name in names}


def test_newer_schema_rows_read_as_stored(db, newer):
    with connect(newer, "ro") as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM sessions")]
        cursor = connection.execute("SELECT * FROM messages ORDER BY id")
        names = [column[0] for column in cursor.description]
        stored = [dict(zip(names, row, strict=True)) for row in cursor]
    assert db.kind == "hermes"
    listed = db.list_sessions(limit=200)
    assert sorted(line.id for line in listed.items) == sorted(ids)
    for one in ids:
        assert db.get_session(one)["id"] == one
        mine = db.get_messages(one, include_inactive=True)
        theirs = [row for row in stored if row["session_id"] == one]
        assert [row["id"] for row in mine] == [row["id"] for row in theirs]
        for my_row, their_row in zip(mine, theirs, strict=True):
            decoded = {"content": my_row["content"], "tool_calls": my_row["tool_calls"]}
            assert my_row == their_row | decoded
    assert db.get_session("s")["of_the_future"] == "kept"


@pytest.mark.requirement("interop:newer")
def test_writes_keep_unknown_columns_and_tables(db, newer):
    before = shape(newer.parent)
    first, *_ = db.get_messages("s")
    appended = db.append_message("s", "user", "a second ibex", reasoning="why", api_content="x")
    db.rewind_to_message("s", appended)
    db.restore_rewound("s", appended)
    db.set_session_title("s", "Still strange")
    db.end_session("s", "cli_close")
    db.reopen_session("s")
    db.set_session_archived("s", archived=True)
    db.update_token_counts("s", input_tokens=5, model="m", api_call_count=1)
    db.append_messages("n", [{"role": "user", "content": "new"}], create={"source": "cli"})
    db.replace_messages("n", [{"role": "user", "content": "replaced"}])
    if any(name == "compacted" for name in first):
        db.archive_and_compact("n", [{"role": "user", "content": "summary"}])
    db.delete_session("job")

    assert shape(newer.parent) == before
    cells, expected = read_unknown_cells(newer)
    assert list(cells) == list(expected.values())
    assert db.get_messages("s")[0] == first
    assert db.get_messages("s")[1]["of_the_future"] == "kept"
    assert db.get_session("job") is None
    assert db.admin.check_integrity(deep=True) == []


def test_home_triggers_index_written_messages(db, newer):
    message_id = db.append_message("s", "user", "a chamois joins, 羚羊也来了")
    db.delete_session("job")
    with connect(newer) as connection:
        for table, words in (("messages_fts", "chamois"), ("messages_fts_trigram", '"羚羊也"')):
            sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"  # noqa: S608 -- fixed names
            assert connection.execute(sql, (words,)).fetchall() == [(message_id,)]
            check = f"INSERT INTO {table}({table}) VALUES ('integrity-check')"  # noqa: S608
            connection.execute(check)


def test_search_covers_newer_schema_scripts(db):
    def found(query, **options):
        hits = db.search(query, per="message", **options).hits
        return {(hit.session_id, hit.role) for hit in hits}

    assert found("ibex") == {("s", "user"), ("s", "tool")}
    assert found("ibex AND cliff") == {("s", "user")}
    assert found("山羊在悬崖") == {("s", "assistant")}
    assert found("悬崖") == {("s", "assistant")}
    assert found("夜间报告") == {("job", "user")}
    assert found("camera") == {("s", "tool")}
    assert found("bex on the cl", mode="substring") == {("s", "user")}
    assert len(db.search("foo_bar.baz", per="message", limit=50).hits) > 3


def test_search_skips_index_being_rebuilt(tmp_path):
    """The rows between progress and high water are not indexed yet."""
    path = tmp_path / "state.db"
    make_hermes_database(path, 30)
    fill_database(path)
    with connect(path) as connection:
        marks = [("fts_rebuild_high_water", "9999"), ("fts_rebuild_progress", "0")]
        connection.executemany("INSERT INTO state_meta VALUES (?, ?)", marks)
        add_session(connection, "s")
        message_id = add_message(connection, "s", "user", "a lonely serow 鬣羚")
    with SessionDB(path) as db:
        assert [hit.message_id for hit in db.search("serow").hits] == [message_id]
        assert [hit.message_id for hit in db.search("鬣羚").hits] == [message_id]


def test_broken_model_config_breaks_no_list(tmp_path):
    path = tmp_path / "state.db"
    make_hermes_database(path, 22)
    with connect(path) as connection:
        add_session(connection, "parent", ended_at=1.0, end_reason="compression")
        add_session(connection, "s", parent_session_id="parent", model_config="{broken")
        add_message(connection, "s", "user", json.dumps({"a": 1}))
    with SessionDB(path) as db:
        assert [line.id for line in db.list_sessions().items] == ["s"]
        assert db.get_compression_tip("parent") == "s"
