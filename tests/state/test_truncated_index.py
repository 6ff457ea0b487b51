"""Search in a Hermes home whose word index has only the beginning of tool output."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.state.sqlite.search import candidates
from session_core.types import SearchResult
from tests.homes import add_message, add_session, connect, make_hermes_database

SCHEMAS = (22, 26, 30)
LONG = "lorem ipsum " * 800
PARTS = [{"type": "text", "text": "a giraffe in parts"}]


@pytest.fixture
def path(home_path: Path) -> Path:
    return home_path / "state.db"


@contextmanager
def open_filled_home(path: Path, schema: int) -> Iterator[Any]:
    make_hermes_database(path, schema)
    with connect(path) as connection:
        add_session(connection, "s")
        yield connection


def add_truncating_triggers(connection: Any) -> None:
    """Create an upgraded home with the triggers of a newer release, which truncate texts."""
    for table in ("messages_fts", "messages_fts_trigram"):
        name = f"{table}_insert"
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
        connection.execute(f"DROP TRIGGER {name}")
        text = "substr(COALESCE(new.content, ''), 1, 8192)"
        case = f"CASE WHEN new.role = 'tool' THEN {text} ELSE COALESCE(new.content, '') END"
        connection.execute(sql[0].replace("COALESCE(new.content, '')", case))


def iter_pages(path: Path, query: str, **options: Any) -> Iterator[SearchResult]:
    cursor = None
    with SessionDB(path, read_only=True) as db:
        while True:
            page = db.search(query, cursor=cursor, **options)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return


def list_hits(path: Path, query: str, **options: Any) -> list[int]:
    options.setdefault("per", "message")
    return sorted(
        hit.message_id for page in iter_pages(path, query, **options) for hit in page.hits
    )


@pytest.mark.requirement("search:cut")
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    "query",
    [
        "zebrafish",
        "zebraf",
        '"striped zebrafish"',
        "zebra*",
        "ze*",
        "lorem AND zebrafish",
        "zebrafish NOT giraffe",
        "where did the zebrafish go?",
        "größe",
        "大阪",
    ],
)
def test_word_late_in_tool_output_is_found(path: Path, schema: int, query: str) -> None:
    with open_filled_home(path, schema) as connection:
        text = f"{LONG} striped zebrafish Größe 大阪"
        message_id = add_message(connection, "s", "tool", text, tool_name="terminal")
        add_message(connection, "s", "user", "else")
    assert list_hits(path, query) == [message_id]


@pytest.mark.requirement("search:cut")
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("options", [{}, {"mode": "substring"}])
def test_tool_output_in_parts_is_found(path: Path, schema: int, options: dict[str, Any]) -> None:
    with open_filled_home(path, schema) as connection:
        message_id = add_message(connection, "s", "tool", PARTS, tool_name="terminal")
        two = add_message(connection, "s", "user", PARTS)
    assert list_hits(path, "giraffe", **options) == [message_id, two]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_tool_output_after_nul_is_found(path: Path, schema: int) -> None:
    with open_filled_home(path, schema) as connection:
        message_id = add_message(connection, "s", "tool", "binary \0 zebrafish")
    assert list_hits(path, "zebrafish") == [message_id]


@pytest.mark.parametrize("query", ["zebrafish", "striped zebra", "大阪"])
def test_truncating_triggers_are_recognized(path: Path, query: str) -> None:
    with open_filled_home(path, 22) as connection:
        add_truncating_triggers(connection)
        message_id = add_message(connection, "s", "tool", f"{LONG} striped zebrafish 大阪")
    assert list_hits(path, query) == [message_id]
    assert list_hits(path, query, mode="substring") == [message_id]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_word_late_in_output_can_be_excluded(path: Path, schema: int) -> None:
    with open_filled_home(path, schema) as connection:
        add_message(connection, "s", "tool", f"deploy {LONG} zebrafish")
        two = add_message(connection, "s", "tool", f"deploy {LONG}")
    assert list_hits(path, "deploy NOT zebrafish") == [two]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("query", ["deploy", "de*", "did we deploy anything?", "ship deploy"])
def test_search_pages_repeat_no_hits(path: Path, schema: int, query: str) -> None:
    with open_filled_home(path, schema) as connection:
        texts = ["deploy", f"deploy {LONG} deploy", f"{LONG} deploy", f"{LONG} ship deploy"]
        ids = [add_message(connection, "s", "tool", text) for text in texts]
        for number in range(3):
            add_session(connection, f"other {number}")
            add_message(connection, f"other {number}", "user", "deploy")
            ids.append(add_message(connection, f"other {number}", "tool", f"{LONG} deploy"))
            ids.append(ids[-1] - 1)
    arguments = {"per": "message", "limit": 2}
    assert list_hits(path, query, **arguments) in (sorted(ids), [ids[3]])
    shown = [
        hit.session_id
        for page in iter_pages(path, query, per="conversation", limit=2)
        for hit in page.hits
    ]
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("query", ["terminal", "t*", "erm"])
def test_silent_tool_is_found_by_name(path: Path, schema: int, query: str) -> None:
    with open_filled_home(path, schema) as connection:
        message_id = add_message(connection, "s", "tool", None, tool_name="terminal")
    mode = "substring" if query == "erm" else "words"
    assert list_hits(path, query, mode=mode) == [message_id]


@pytest.mark.requirement("search:cut")
def test_long_outputs_continue_on_next_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_CHARACTERS", 5000)
    with open_filled_home(path, 30) as connection:
        message_id = add_message(connection, "s", "tool", f"{LONG} zebrafish", timestamp=1000.0)
        for number in range(9):
            add_message(connection, "s", "tool", LONG, timestamp=2000.0 + number)
    first = next(iter_pages(path, "zebrafish", per="message"))
    assert (first.hits, first.next_cursor is not None) == ([], True)
    assert (first.searched_back_to or 0) > 2000
    assert list_hits(path, "zebrafish") == [message_id]


def test_tool_images_are_decoded_within_bounds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_CHARACTERS", 5000)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}
    with open_filled_home(path, 30) as connection:
        message_id = add_message(connection, "s", "tool", [*PARTS, image], timestamp=1000.0)
        for number in range(3):
            add_message(connection, "s", "tool", [image], timestamp=2000.0 + number)
    assert next(iter_pages(path, "giraffe")).searched_back_to == 2002.0
    assert list_hits(path, "giraffe") == [message_id]


@pytest.mark.requirement("search:cut")
@pytest.mark.parametrize("seed", range(4))
def test_truncated_index_gives_complete_answers(path: Path, seed: int) -> None:
    paths = [path.with_name(f"{schema}.db") for schema in SCHEMAS]
    for schema, one in zip(SCHEMAS, paths, strict=True):
        _fill_randomly(one, schema, random.Random(seed))
    for query in ("red", "red AND blue", "red NOT blue", "bl*", "b*", '"red blue"', "红", "red 红"):
        for per in ("message", "conversation"):
            answers = [list_hits(one, query, per=per, limit=3) for one in paths]
            assert answers[0]
            if per == "message":
                assert answers == answers[:1] * 3
            else:
                assert [len(answer) for answer in answers] == [len(answers[0])] * 3


def _fill_randomly(path: Path, schema: int, chance: random.Random) -> None:
    words = ["red", "blue", "red blue", "black", "红色", "nothing", "else"]
    make_hermes_database(path, schema)
    with connect(path) as connection:
        for number in range(40):
            session_id = f"s{number % 15}"
            if number < 15:
                add_session(connection, session_id, source=chance.choice(["cli", "cron"]))
            text = " ".join(chance.choice([*words, LONG]) for _ in range(chance.randrange(1, 5)))
            content: Any = [{"type": "text", "text": text}] if chance.random() < 0.2 else text
            role = chance.choice(["user", "tool", "tool", "assistant"])
            add_message(connection, session_id, role, content, timestamp=1000.0 + number)
