"""Row images on SQLite: every value is restored byte by byte, also into another schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import SessionDB
from session_core.ledger.codec import pack_trash, unpack_trash
from session_core.ledger.types import TrashItem
from session_core.state.sqlite import session_lists
from session_core.types import PutResult, RowImages
from tests.homes import add_message, connect, fill_database, make_hermes_database, make_own_database
from tests.thorough import take_main_kinds

Dump = dict[str, list[Any]]

BROKEN = "CAST(x'ff41' AS TEXT)"
VALUES = (
    *("NULL", "''", "'text'", "'1700000000.5'", "'2024-01-01'", "'x' || char(0) || 'y'"),
    *(BROKEN, "CAST(x'41ff00fe' AS TEXT)", "x'00ff'", "x''", "9e999", "-9e999", "1.0", "-0.0"),
    *("9223372036854775807", "-9223372036854775808", "0.1", "'数据'", "'\U0001f680'"),
)
ODD = (
    'CREATE TABLE "odd ""name" (session_id TEXT, note)',
    """CREATE TABLE keyed (
        a, session_id TEXT, b TEXT COLLATE NOCASE, n DEFAULT 5, twice AS (n * 2),
        PRIMARY KEY (session_id, a, b)
    ) WITHOUT ROWID""",
    "CREATE TABLE loose (session_id TEXT, a, b, PRIMARY KEY (session_id, a))",
    "CREATE TABLE shadowed (rowid TEXT, session_id TEXT)",
    """CREATE TABLE linked (
        id INTEGER PRIMARY KEY, origin TEXT REFERENCES sessions(id),
        other TEXT REFERENCES sessions ON DELETE SET NULL, up INTEGER REFERENCES linked(id)
    )""",
    "ALTER TABLE sessions ADD COLUMN strange",
    "ALTER TABLE messages ADD COLUMN strange",
    "ALTER TABLE messages ADD COLUMN length AS (length(content))",
)


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 26, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    return create_home(home_path / "state.db", request.param)


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        yield db


def create_home(path: Path, kind: Any) -> Path:
    if kind == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, kind)
    return path


def execute_statements(path: Path, *statements: str, checked: bool = False) -> None:
    with connect(path) as connection:
        connection.execute(f"PRAGMA foreign_keys={'ON' if checked else 'OFF'}")
        for statement in statements:
            connection.execute(statement)


MARK = b"mcp_sessions_indexed_to"


def dump_rows(path: Path) -> Dump:
    """Return every row of every table except the search indexes, as types and bytes."""
    with connect(path, "ro") as connection:
        found = {}
        for name in list_tables(connection):
            listed = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))
            columns = ['"' + column.replace('"', '""') + '"' for (column,) in listed]
            parts = ", ".join(f"typeof({one}), CAST({one} AS BLOB)" for one in columns)
            quoted = '"' + name.replace('"', '""') + '"'
            rows = connection.execute(f"SELECT {parts} FROM {quoted}").fetchall()  # noqa: S608
            found[name] = sorted((row for row in rows if MARK not in row), key=repr)
        return found


def list_tables(connection: Any) -> list[str]:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    virtual = [name for name, sql in rows if sql.startswith("CREATE VIRTUAL")]
    shadows = tuple(f"{name}_" for name in virtual)
    return [name for name, _ in rows if name not in virtual and not name.startswith(shadows)]


def pass_through_trash(images: Sequence[RowImages]) -> list[RowImages]:
    """Return images after a round trip through the trash of a step."""
    packed = pack_trash(TrashItem("", image.pack()) for image in images)
    return [RowImages.unpack(entry.value) for entry in unpack_trash(packed)]


def read_images(db: SessionDB, *session_ids: str) -> list[RowImages]:
    images = []
    for session_id in session_ids:
        images += [
            *db.rows.read_session_images(session_id),
            db.rows.read_message_images(session_id, 0, 10**9)[0],
        ]
    return images


def remove_sessions(db: SessionDB, *session_ids: str) -> list[RowImages]:
    """Remove sessions as a step does, and return the images in its trash."""
    images = pass_through_trash(read_images(db, *session_ids))
    ids = {
        session_id: db.rows.read_message_images(session_id, 0, 10**9)[0]
        for session_id in session_ids
    }
    with db.transaction():
        db.rows.remove_messages(
            {
                each: (
                    [row[image.columns.index("id")] for row in image.rows],
                    db.get_revision(each),
                )
                for each, image in ids.items()
            }
        )
        db.rows.remove_rows(one for one in images if one.table != "messages")
    return images


def list_columns(path: Path, table: str) -> list[str]:
    with connect(path, "ro") as connection:
        cursor = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return [name for (name,) in cursor]


def store_odd_values(path: Path) -> None:
    """Store every kind of value in every column that accepts it."""
    spared = {"id", "session_id", "parent_session_id", "rewind_count", "system_prompt_hash"}
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for table, key in (("sessions", "id"), ("messages", "session_id")):
            for place, name in enumerate(list_columns(path, table)):
                for number, value in enumerate(VALUES):
                    at = f"fill_0_{(number + place) % 12:05}"
                    if name not in spared:
                        connection.execute(
                            f'UPDATE OR IGNORE {table} SET "{name}" = {value}'  # noqa: S608
                            f" WHERE {key} = '{at}' AND rowid % 3 = {number % 3}"
                        )


def add_unknown_tables(path: Path) -> None:
    """Give sessions rows in unknown tables."""
    execute_statements(path, *ODD)
    for number, value in enumerate(VALUES):
        session_id = f"fill_0_{number % 3:05}"
        execute_statements(
            path,
            f'INSERT INTO "odd ""name" VALUES (\'{session_id}\', {value})',  # noqa: S608
            f'INSERT INTO "odd ""name" VALUES (\'{session_id}\', {value})',  # noqa: S608
            "INSERT OR IGNORE INTO keyed (a, session_id, b, n)"  # noqa: S608
            f" VALUES (coalesce({value}, 7), '{session_id}', 'B{number}', {value})",
            f"INSERT INTO shadowed VALUES ({value}, '{session_id}')",  # noqa: S608
            *[f"INSERT INTO loose VALUES ('{session_id}', NULL, {value})"] * 2,  # noqa: S608
            f"INSERT INTO linked (origin, up) VALUES ('{session_id}', {number} + 2 - {number} % 2)",  # noqa: S608
        )


def test_images_restore_rows_exactly(db: SessionDB, path: Path) -> None:
    ids = fill_database(path)
    add_unknown_tables(path)
    store_odd_values(path)
    execute_statements(path, "UPDATE linked SET up = NULL WHERE up NOT IN (SELECT id FROM linked)")
    before, others = dump_rows(path), ids[6:]
    images = remove_sessions(db, *ids[:6])
    remaining = dump_rows(path)
    assert len(remaining["sessions"]) == len(others)
    assert (
        remaining["loose"]
        == remaining["shadowed"]
        == remaining["keyed"]
        == remaining["linked"]
        == remaining['odd "name']
        == []
    )
    report = db.rows.put_images(images)
    assert (report.refused, report.emptied, report.dropped_columns) == ((), (), {})
    assert dump_rows(path) == before
    assert db.rows.put_images(images) == PutResult(present=report.inserted)
    assert dump_rows(path) == before
    assert db.admin.check_integrity(deep=True) == []


def test_restored_messages_are_searchable(db: SessionDB, path: Path) -> None:
    ids = fill_database(path, 12, 40)
    questions = [
        (query, mode)
        for query in ("deploy", "миграцию", "データ", "数据库", "read_file", "turn")
        for mode in ("words", "substring")
    ]
    before = [list_hits(db, *question) for question in questions]
    assert sum(map(len, before)) > 100
    for session_id in reversed(ids):
        images = remove_sessions(db, session_id)
        assert db.rows.put_images(images).refused == ()
    assert [list_hits(db, *question) for question in questions] == before
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.parametrize("schema", [26, 30])
def test_hermes_triggers_index_restored_rows(home_path: Path, schema: int) -> None:
    path = create_home(home_path / "state.db", schema)
    ids = fill_database(path, 12, 40)

    def counted() -> list[int]:
        sql = "SELECT count(*) FROM {0} WHERE {0} MATCH 'turn'"
        with connect(path, "ro") as connection:
            names = ("messages_fts", "messages_fts_trigram")
            return [connection.execute(sql.format(name)).fetchone()[0] for name in names]

    before = counted()
    with SessionDB(path) as db:
        db.rows.put_images(reversed(remove_sessions(db, *ids)))
    assert counted() == before


def list_hits(db: SessionDB, query: str, mode: Any) -> set[int]:
    hits: set[int] = set()
    cursor = None
    while True:
        page = db.search(query, mode=mode, per="message", status="all", limit=100, cursor=cursor)
        hits |= {hit.message_id for hit in page.hits}
        cursor = page.next_cursor
        if cursor is None:
            return hits


VALUE = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
STORED = st.tuples(VALUE, st.booleans())
"""A value, and whether bytes are stored as text."""


@pytest.fixture(scope="module", params=take_main_kinds(["own", 16, 22, 30]))
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = create_home(tmp_path_factory.mktemp("shared") / "state.db", request.param)
    execute_statements(path, *ODD)
    fill_database(path, 2, 2)
    return path


@settings(max_examples=25)
@given(values=st.lists(STORED, min_size=12, max_size=12))
def test_images_restore_random_values(shared: Path, values: list[tuple[Any, bool]]) -> None:
    session_id = "fill_0_00000"
    with connect(shared) as connection:
        marks = [
            ("CAST(? AS TEXT)" if raw and isinstance(value, bytes) else "?", value)
            for value, raw in values
        ]
        for (mark, value), (table, name) in zip(marks, PLACES, strict=True):
            key = {"sessions": "id"}.get(table, "session_id")
            sql = f"UPDATE OR IGNORE {table} SET {name} = {mark} WHERE {key} = ?"  # noqa: S608
            connection.execute(sql, (value, session_id))
        mark, value = marks[0]
        connection.execute('DELETE FROM "odd ""name"')
        sql = f'INSERT INTO "odd ""name" VALUES (?, {mark})'  # noqa: S608
        connection.execute(sql, (session_id, value))
    before = dump_rows(shared)
    with SessionDB(shared) as db:
        images = remove_sessions(db, session_id)
        assert dump_rows(shared) != before
        assert db.rows.put_images(images).refused == ()
        assert dump_rows(shared) == before


def test_inconsistent_index_is_reset_on_delete(tmp_path: Path) -> None:
    path = create_home(tmp_path / "state.db", "own")
    with SessionDB(path) as db:
        db.append_message("gone", "user", "the ferry", create={"source": "cli"})
        db.append_message("stays", "user", "the harbour", create={"source": "cli"})
    execute_statements(path, "INSERT INTO ms_index(ms_index) VALUES ('delete-all')")
    with SessionDB(path) as db:
        db.delete_session("gone")
        assert [hit.session_id for hit in db.search("harbour").hits] == ["stays"]


PLACES = [
    *(("sessions", name) for name in ("title", "cwd", "message_count", "ended_at", "strange")),
    *(("messages", name) for name in ("content", "tool_calls", "tool_name", "timestamp", "role")),
    *(("messages", name) for name in ("strange", "token_count")),
]


def test_foreign_triggers_leave_restored_rows_unchanged(db: SessionDB, path: Path) -> None:
    (session_id, *_) = fill_database(path, 2)
    execute_statements(
        path,
        "CREATE TABLE log (what)",
        "CREATE TRIGGER counts AFTER INSERT ON messages BEGIN UPDATE sessions SET"
        " message_count = message_count + 1, title = 'new' WHERE id = new.session_id; END",
        "CREATE TRIGGER counts_less AFTER DELETE ON messages BEGIN UPDATE sessions SET"
        " message_count = message_count - 1 WHERE id = old.session_id;"
        " INSERT INTO log VALUES (old.id); END",
        "CREATE TRIGGER marks AFTER INSERT ON sessions BEGIN UPDATE sessions SET"
        " cwd = 'marked' WHERE id = new.id; END",
    )
    before = dump_rows(path)
    images = remove_sessions(db, session_id)
    for table in ("sessions", "messages"):
        assert (
            db.rows.put_images(
                session_id for session_id in images if session_id.table == table
            ).refused
            == ()
        )
    after = dump_rows(path)
    assert len(after.pop("log")) == 10
    before.pop("log")
    assert after == before
    assert db.admin.check_integrity(deep=True) == []


def test_message_trigger_leaves_restored_rows_unchanged(home_path: Path) -> None:
    path = create_home(home_path / "state.db", "own")
    (session_id, *_) = fill_database(path, 2)
    execute_statements(
        path,
        "CREATE TRIGGER numbers AFTER INSERT ON messages BEGIN UPDATE messages SET"
        " token_count = 9, content = 'made' WHERE id = new.id; END",
    )
    before = dump_rows(path)
    with SessionDB(path) as db:
        assert db.rows.put_images(remove_sessions(db, session_id)).refused == ()
        assert dump_rows(path) == before
        assert db.search("made").hits == []
        assert db.admin.check_integrity(deep=True) == []


def test_missing_display_order_stays_null(home_path: Path) -> None:
    path = create_home(home_path / "state.db", 30)
    (session_id, *_) = fill_database(path, 2)
    execute_statements(path, "UPDATE messages SET display_order = NULL")
    before = dump_rows(path)
    with SessionDB(path) as db:
        db.rows.put_images(remove_sessions(db, session_id))
    assert dump_rows(path) == before


@pytest.mark.parametrize("newer", [19, 22, 26, 30])
def test_images_of_older_schema_are_restored(home_path: Path, newer: int) -> None:
    older = create_home(home_path / "old" / "state.db", 16)
    ids = fill_database(older)
    execute_statements(
        older, "ALTER TABLE sessions ADD COLUMN strange", "UPDATE sessions SET strange = 1"
    )
    with SessionDB(older) as db:
        images = pass_through_trash(read_images(db, *ids))
    path = create_home(home_path / "new" / "state.db", newer)
    with SessionDB(path) as db:
        report = db.rows.put_images(images)
        assert (report.refused, report.emptied) == ((), ())
        assert report.dropped_columns == {"sessions": ("strange",)}
        assert report.inserted == sum(len(image.rows) for image in images)
        assert db.rows.put_images(images).present == report.inserted
        assert len(list_hits(db, "turn", "words")) > 40
        assert db.admin.check_integrity(deep=True) == []
    assert [len(rows) for rows in (dump_rows(path)["sessions"], dump_rows(path)["messages"])] == [
        12,
        120,
    ]


def test_older_schema_reports_omitted_values(home_path: Path) -> None:
    newer = create_home(home_path / "new" / "state.db", 30)
    ids = fill_database(newer)
    execute_statements(newer, "INSERT INTO session_turn_leases VALUES ('fill_0_00000', 'h', 1, 2)")
    with SessionDB(newer) as db:
        images = pass_through_trash(read_images(db, *ids))
    with SessionDB(create_home(home_path / "old" / "state.db", 22)) as db:
        report = db.rows.put_images(images)
        assert {"pinned", "hidden", "last_read_at"} <= set(report.dropped_columns["sessions"])
        assert "display_order" in report.dropped_columns["messages"]
        assert [row.table for row in report.refused] == ["session_turn_leases"]
        assert db.message_count() == 120
        assert db.admin.check_integrity(deep=True) == []


def test_extended_key_matches_stored_rows(home_path: Path) -> None:
    older = create_home(home_path / "old" / "state.db", 20)
    (session_id, *_) = fill_database(older, 1)
    insert = "INSERT INTO session_model_usage (session_id, model"
    execute_statements(older, f"{insert}) VALUES ('{session_id}', 'm')")
    with SessionDB(older) as db:
        images = pass_through_trash(db.rows.read_session_images(session_id))
    path = create_home(home_path / "new" / "state.db", 22)
    with SessionDB(path) as db:
        assert (
            db.rows.put_images(image for image in images if image.table == "sessions").inserted == 1
        )
        execute_statements(
            path, f"{insert}, task, input_tokens) VALUES ('{session_id}', 'm', 'vision', 7)"
        )
        assert db.rows.put_images(images) == PutResult(inserted=1, present=1)
        assert db.rows.put_images(images) == PutResult(present=2)
        assert len(db.admin.get_model_usage(session_id)) == 2
        db.rows.remove_rows(db.rows.read_session_images(session_id))
        usage = [image for image in images if image.table != "sessions"]
        assert [misfit.key[0] for misfit in db.rows.put_images(usage).refused] == [session_id]
        assert db.admin.get_model_usage(session_id) == []


def test_null_in_required_column_becomes_default(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 16, null_flags=True)
    (session_id, *_) = fill_database(path, 1)
    execute_statements(
        path, "UPDATE messages SET active = NULL", "UPDATE sessions SET archived = 1"
    )
    with SessionDB(path) as db:
        images = pass_through_trash(read_images(db, session_id))
    with SessionDB(create_home(home_path / "new" / "state.db", 22)) as db:
        report = db.rows.put_images(images)
        assert {(lost.table, lost.column) for lost in report.emptied} == {("messages", "active")}
        assert (report.inserted, report.refused) == (11, ())
        assert len(db.get_messages(session_id)) == 10


def test_incomplete_row_is_refused_with_reason(db: SessionDB, path: Path) -> None:
    execute_statements(
        path, "CREATE TABLE needs (session_id TEXT, a)", "CREATE TABLE rules (session_id, a)"
    )
    (session_id, *_) = fill_database(path, 1)
    execute_statements(
        path,
        f"INSERT INTO needs VALUES ('{session_id}', NULL)",  # noqa: S608
        f"INSERT INTO rules VALUES ('{session_id}', 3)",  # noqa: S608
    )
    images = remove_sessions(db, session_id)
    execute_statements(
        path,
        *("DROP TABLE needs", "DROP TABLE rules"),
        "CREATE TABLE needs (session_id TEXT, a NOT NULL)",
        "CREATE TABLE rules (session_id TEXT, a CHECK (a > 5))",
    )
    report = db.rows.put_images(images)
    assert report.emptied == ()
    assert {session_id.table: session_id.why for session_id in report.refused} == {
        "needs": "this home requires a value",
        "rules": "a rule of this home refuses it",
    }
    assert db.message_count(session_id) == 10


def test_keyless_rows_are_restored_beside_others(db: SessionDB, path: Path) -> None:
    execute_statements(path, "CREATE TABLE notes (session_id TEXT, note)")
    ids = fill_database(path, 2)
    twice = [f"INSERT INTO notes VALUES ('{ids[0]}', 'same')"] * 2  # noqa: S608
    execute_statements(path, *twice)
    images = remove_sessions(db, ids[0])
    execute_statements(path, *[f"INSERT INTO notes VALUES ('{ids[1]}', {n})" for n in range(2)])  # noqa: S608
    others = dump_rows(path)["notes"]
    report = db.rows.put_images(images)
    assert report.refused == ()
    back = dump_rows(path)["notes"]
    assert len(back) == 4
    assert [row for row in back if row in others] == others
    assert db.rows.put_images(images) == PutResult(present=report.inserted)
    assert dump_rows(path)["notes"] == back


def test_shared_rows_are_kept_on_removal(home_path: Path) -> None:
    path = create_home(home_path / "state.db", 30)
    ids = fill_database(path, 2)
    execute_statements(
        path,
        "INSERT INTO system_prompts VALUES ('h', 'You are')",
        "UPDATE sessions SET system_prompt_hash = 'h'",
    )
    with SessionDB(path) as db:
        before = dump_rows(path)
        images = remove_sessions(db, *ids)
        assert dump_rows(path)["system_prompts"] == before["system_prompts"]
        execute_statements(path, "DELETE FROM system_prompts")
        assert db.rows.put_images(images).refused == ()
        assert dump_rows(path) == before


def test_text_with_nul_is_reindexed(db: SessionDB, path: Path) -> None:
    (session_id, *_) = fill_database(path, 1)
    with connect(path) as connection:
        for content in (b"\x00\xff\x00", [{"type": "text", "text": "parts"}], "a\0b needle"):
            add_message(connection, session_id, "user", content, tool_name="x\0y")
    before = dump_rows(path)
    if db.kind == "own":
        db.append_messages("later", [{"role": "user", "content": "x"}] * 1200, create={})
        before = dump_rows(path)
    images = remove_sessions(db, session_id)
    db.rows.put_images(images)
    assert dump_rows(path) == before
    assert db.admin.check_integrity(deep=True) == []


def test_changed_message_leaves_no_index_words(db: SessionDB, path: Path) -> None:
    first, *_ = (row["id"] for row in db.get_messages(fill_database(path, 1)[0]))
    sql = f"UPDATE messages SET content = 'a' || char(0) || 'needle' WHERE id = {first}"  # noqa: S608
    execute_statements(path, sql)
    if db.kind == "own":
        db.append_messages("later", [{"role": "user", "content": "x"}] * 1200, create={})
    before = {"content": "a\0needle"}
    db.rows.change_row("messages", {"id": first}, before, {"content": "b\0haystack"})
    index = "ms_index" if db.kind == "own" else "messages_fts"
    with connect(path) as connection:
        for word, ids in (("needle", []), ("haystack", [(first,)])):
            asked = f"SELECT rowid FROM {index} WHERE {index} MATCH ?"  # noqa: S608
            assert connection.execute(asked, (word,)).fetchall() == ids
    assert db.admin.check_integrity(deep=True) == []


def test_session_with_restored_messages_is_recent(db: SessionDB, path: Path) -> None:
    for number in range(session_lists.MAX_RECENT + 50):
        db.append_message(f"s{number}", "user", "x", timestamp=1e9 + number, create={})
    db.append_message("back", "user", "first", timestamp=1.0, create={})
    last = db.append_message("back", "user", "last", timestamp=2e9)
    db.append_message("s7", "user", "x", timestamp=1.9e9)
    images = db.rows.read_message_images("back", last - 1, 1)[0]
    with SessionDB(path) as other:
        assert [line.id for line in other.list_sessions(limit=2).items] == ["back", "s7"]
        db.rows.remove_messages({"back": ([last], db.get_revision("back"))})
        assert [line.id for line in other.list_sessions(limit=1).items] == ["s7"]
        assert db.rows.put_images([images]).inserted == 1
        assert [line.id for line in other.list_sessions(limit=2).items] == ["back", "s7"]
