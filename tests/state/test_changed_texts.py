"""Search in a home of our own finds texts that another program has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.state.sqlite import fts
from tests.homes import connect

OLD, NEW = "walrus", "narwhal"
Change = Callable[[str], None]

LIBRARIES = [name for name in ("sqlite3", "pysqlite3") if find_spec(name)]
SHELL = shutil.which("sqlite3")
PROGRAMS = {
    name: [
        sys.executable,
        "-c",
        f"import sys, {name} as sqlite; sqlite.connect(sys.argv[1]).executescript(sys.argv[2])",
    ]
    for name in LIBRARIES
} | ({"shell": [SHELL]} if SHELL else {})


@pytest.fixture(params=PROGRAMS)
def change(request: pytest.FixtureRequest, home_path: Path) -> Change:
    """Run SQL in another program, with its own SQLite library."""

    def run(script: str) -> None:
        command = [*PROGRAMS[request.param], str(home_path / "state.db"), script]
        subprocess.run(command, check=True, timeout=60, capture_output=True)

    return run


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    with SessionDB(home_path / "state.db") as opened:
        opened.create_session("s", "cli")
        yield opened


def append_texts(db: SessionDB, *texts: str) -> list[int]:
    return list(db.append_messages("s", [{"role": "user", "content": text} for text in texts]).ids)


def index_everything(db: SessionDB) -> None:
    while db._write(fts.index_batch):
        pass


def search_messages(db: SessionDB, query: str, mode: str = "words") -> list[int]:
    """Return the hits of all pages of a search."""
    ids: list[int] = []
    cursor = None
    while True:
        answer = db.search(query, per="message", mode=mode, cursor=cursor)  # type: ignore[arg-type]
        ids += [hit.message_id for hit in answer.hits]
        cursor = answer.next_cursor
        if cursor is None:
            return sorted(ids)


def search_in_every_mode(db: SessionDB, word: str) -> list[list[int]]:
    """Return the hits of a word: alone, as a phrase, prefix or substring, and with other words."""
    queries = (
        word,
        f'"a {word}"',
        f"{word[:4]}*",
        f"{word} OR nothing",
        f"a {word}",
        f"{word} AND a",
    )
    results = [search_messages(db, query) for query in queries]
    return [
        *results,
        search_messages(db, word, "substring"),
        search_messages(db, word[1:], "substring"),
    ]


@pytest.mark.parametrize("indexed", [True, False])
def test_updated_text_is_found_by_new_words(
    db: SessionDB, change: Change, *, indexed: bool
) -> None:
    ids = append_texts(db, f"a {OLD}", "something else", f"a {OLD} and a seal")
    if indexed:
        index_everything(db)
    assert search_messages(db, OLD) == [ids[0], ids[2]]

    change("UPDATE messages SET content = replace(content, 'walrus', 'narwhal') WHERE id = 1;")

    assert search_in_every_mode(db, OLD) == [[ids[2]]] * 8
    assert search_in_every_mode(db, NEW) == [[ids[0]]] * 8
    assert search_messages(db, "seal NOT walrus") == []
    assert search_messages(db, "what is a narwhal good for?")[:1] == [ids[0]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("пароль", "секрет"),
        ("数据库", "日志服务"),
        ("数据", "日志"),
        ("カタカナ", "ひらがな"),
        ("비밀번호", "데이터베이스"),
        ("البيانات", "الملفات"),
        ("Größe", "Ångström"),
    ],
)
def test_updated_text_is_found_in_every_script(db: SessionDB, home_path: Path, old, new) -> None:
    ids = append_texts(db, f"x {old} y", f"x {old} z")
    index_everything(db)

    with connect(home_path / "state.db") as other:
        other.execute(
            "UPDATE messages SET content = replace(content, ?, ?) WHERE id = 1", (old, new)
        )

    for mode in ("words", "substring"):
        assert search_messages(db, old, mode) == [ids[1]]
        assert search_messages(db, new, mode) == [ids[0]]


def test_deleted_and_inserted_messages_are_searched(db: SessionDB, change: Change) -> None:
    ids = append_texts(db, f"a {OLD}", "b", f"a {OLD} c")
    index_everything(db)

    change(
        "DELETE FROM messages WHERE id = 1;"
        "INSERT OR REPLACE INTO messages (id, session_id, role, content, timestamp) VALUES"
        " (2, 's', 'user', 'a narwhal', 1.0), (-7, 's', 'user', 'a narwhal below', 1.0),"
        " (NULL, 's', 'user', 'a narwhal above', 1.0);"
    )

    assert search_in_every_mode(db, OLD) == [[ids[2]]] * 8
    assert search_in_every_mode(db, NEW) == [[-7, ids[1], ids[2] + 1]] * 8


def test_changed_tool_names_and_arguments_are_found(db: SessionDB, change: Change) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": OLD, "arguments": "{}"}}]
    db.append_messages("s", [{"role": "assistant", "content": "x", "tool_calls": calls}])
    db.append_messages("s", [{"role": "tool", "content": "y", "tool_name": OLD}])
    index_everything(db)

    change(
        "UPDATE messages SET tool_calls = replace(tool_calls, 'walrus', 'narwhal');"
        "UPDATE messages SET tool_name = 'narwhal' WHERE tool_name = 'walrus';"
    )

    assert search_messages(db, OLD) == []
    assert search_messages(db, NEW) == [1, 2]


def test_open_reader_sees_each_change_at_once(db: SessionDB, home_path: Path) -> None:
    append_texts(db, f"a {OLD}")
    with SessionDB(home_path / "state.db", read_only=True) as reader, connect(reader.path) as other:
        for word in ("first", "second", "third"):
            assert search_messages(reader, word) == []
            other.execute("UPDATE messages SET content = ?", (f"a {word}",))
            assert search_messages(reader, word) == [1]


def test_mass_update_resets_the_index(db: SessionDB, change: Change) -> None:
    ids = append_texts(db, *[f"a {OLD} {number}" for number in range(fts.MAX_LAG + 500)], "a seal")
    index_everything(db)

    change("UPDATE messages SET content = replace(content, 'walrus', 'narwhal');")
    with SessionDB(db.path, read_only=True) as reader:
        assert search_messages(reader, OLD) == []
        assert search_messages(reader, f'"{NEW} 1234"') == [ids[1234]]

    assert search_messages(db, f'"{NEW} 1234"') == [ids[1234]]
    assert search_messages(db, OLD) == []
    assert db._read(fts.find_high_mark) == ids[-1]
    assert db._read(fts.list_changed_messages) == ()
    with connect(db.path, "ro") as other:
        count = "SELECT count(*) FROM ms_index WHERE ms_index MATCH ?"
        assert other.execute(count, (OLD,)).fetchone() == (0,)


def test_few_changes_leave_the_index_in_use(db: SessionDB, home_path: Path) -> None:
    ids = append_texts(db, *[f"a {OLD} {number}" for number in range(3000)])
    index_everything(db)
    with connect(home_path / "state.db") as other:
        other.execute("UPDATE messages SET content = 'a narwhal' WHERE id % 100 = 0")
    assert db._read(fts.find_high_mark) == ids[-1]
    assert search_messages(db, NEW) == [message_id for message_id in ids if message_id % 100 == 0]
    assert search_messages(db, OLD) == [message_id for message_id in ids if message_id % 100]


def test_home_of_earlier_version_is_reindexed(db: SessionDB, home_path: Path) -> None:
    """Its index may have words that changed before there were triggers."""
    append_texts(db, f"a {OLD}", f"a {OLD} b")
    index_everything(db)
    with connect(home_path / "state.db") as other:
        for statement in (
            "DROP TRIGGER ms_message_updated",
            "DROP TRIGGER ms_message_inserted",
            "DROP TABLE ms_changed",
            "UPDATE state_meta SET key = 'mcp_sessions_found_to' WHERE key LIKE '%indexed_to'",
            "UPDATE messages SET content = 'a narwhal' WHERE id = 1",
        ):
            other.execute(statement)

    with SessionDB(home_path / "state.db", read_only=True) as reader:
        assert search_messages(reader, NEW) == [1]
        with connect(home_path / "state.db") as other:
            other.execute("UPDATE messages SET content = 'a seal' WHERE id = 2")
        assert search_messages(reader, "seal") == [2]
        assert search_messages(reader, OLD) == []
    with SessionDB(home_path / "state.db") as upgraded:
        append_texts(upgraded, "one more")
    with connect(home_path / "state.db") as other:
        other.execute("UPDATE messages SET content = 'a porpoise' WHERE id = 1")
    with SessionDB(home_path / "state.db", read_only=True) as reader:
        assert reader._read(fts.find_high_mark) == 3
        assert search_messages(reader, "porpoise") == [1]
        assert search_messages(reader, NEW) == search_messages(reader, OLD) == []


def test_changed_message_is_removed_and_restored(db: SessionDB, home_path: Path) -> None:
    ids = append_texts(db, f"a {OLD}", f"a {OLD} b")
    index_everything(db)
    with connect(home_path / "state.db") as other:
        other.execute("UPDATE messages SET content = 'a narwhal' WHERE id = 1")
    images, _ = db.rows.read_message_images("s", None, 1_000_000)
    db.rows.remove_messages({"s": (ids, db.get_revision("s"))})
    assert search_messages(db, NEW) == search_messages(db, OLD) == []

    db.rows.put_images([images])

    assert search_messages(db, NEW) == [ids[0]]
    assert search_messages(db, OLD) == [ids[1]]
    assert db._read(fts.list_changed_messages) == (ids[0],)


def test_words_of_conversation_include_changed_text(db: SessionDB, change: Change) -> None:
    append_texts(db, "the boiler makes noises", *["something else"] * 9, f"call the {OLD}")
    index_everything(db)
    change(f"UPDATE messages SET content = replace(content, '{OLD}', '{NEW}')")  # noqa: S608 -- words of the test
    result = db.search(f"boiler {NEW}")
    assert (result.matched, [hit.session_id for hit in result.hits]) == ("conversation", ["s"])
