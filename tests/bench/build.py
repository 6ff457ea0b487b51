"""Builds the homes of the bench: those of Hermes by plain SQL, those of our own by the library.

Hermes makes its empty database itself and opens the filled one again afterwards; in between its
triggers are out of the way and the search tables are filled in one go, which is much faster.
A home that stands already, built from the same sources, is used again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from session_core import SessionDB, _sqlite3
from session_core.state.sqlite.connection import make_file_uri
from tests.bench import peer_jobs, shapes
from tests.bench.text import HALF_WORD

_SOURCE_FOLDER = Path(__file__).parent
_INDEXED_TEXT_SQL = (
    "coalesce(content, '') || ' ' || coalesce(tool_name, '') || ' ' || coalesce(tool_calls, '')"
)

_BATCH_ROWS = 50_000
"""So many messages are indexed in one transaction, so that the log stays short."""


@dataclass
class BuiltHome:
    """A built home, and its content."""

    shape: str
    kind: str
    db: str
    sessions: int
    messages: int
    content_bytes: int
    built_s: float
    longest: tuple[str, int]
    ordinary: tuple[str, int]
    half: str
    rare: list[str]
    tokens: list[tuple[str, str]]
    cjk: list[tuple[str, str]]
    questions: list[tuple[str, str]]

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.shape} {'hermes' if self.kind == 'hermes' else 'own'}"


def build_home(
    folder: Path, shape: shapes.HomeShape, kind: str, clock: Callable[[], float]
) -> BuiltHome:
    """Return the home of this shape and kind below `folder`, and build it if it is missing."""
    name = f"{shape.name}-{shape.sessions}-{kind}"
    home = folder / f"{name}-{_fingerprint_sources(shape, kind)}"
    told = home / "bench.json"
    if told.exists():
        return BuiltHome(**json.loads(told.read_text(encoding="utf-8")))
    for outdated in folder.glob(f"{name}-*"):
        shutil.rmtree(outdated)
    home.mkdir(parents=True)
    began = clock()
    content = shapes.HomeWriter(shape)
    fill = fill_hermes_home if kind == "hermes" else fill_own_home
    counted = fill(home / "state.db", content)
    built = _describe_home(home, kind, content, counted, clock() - began)
    told.write_text(json.dumps(asdict(built)), encoding="utf-8")
    return built


def _describe_home(
    home: Path, kind: str, content: shapes.HomeWriter, counted: ContentCounter, built_s: float
) -> BuiltHome:
    longest, ordinary, plants = content.longest, content.ordinary, content.plants
    return BuiltHome(
        shape=content.shape.name,
        kind=kind,
        db=str(home / "state.db"),
        sessions=len(content.lengths),
        messages=counted.messages,
        content_bytes=counted.content_bytes,
        built_s=built_s,
        longest=(shapes.make_session_id(longest), content.lengths[longest]),
        ordinary=(shapes.make_session_id(ordinary), content.lengths[ordinary]),
        half=HALF_WORD,
        rare=plants.rare,
        tokens=plants.tokens,
        cjk=plants.cjk,
        questions=plants.questions,
    )


class ContentCounter:
    """Counts the messages and bytes of the sessions that pass it."""

    def __init__(self) -> None:
        self.messages = 0
        self.content_bytes = 0

    def count_session(self, session: shapes.BenchSession) -> shapes.BenchSession:
        """Count a session and return it."""
        self.messages += len(session.messages)
        self.content_bytes += sum(len(row["content"].encode()) for row in session.messages)
        return session


def fill_own_home(db_path: Path, content: shapes.HomeWriter) -> ContentCounter:
    counted, ends_at = ContentCounter(), [0.0]
    with SessionDB(db_path, clock=lambda: ends_at[0]) as db:
        sessions = map(counted.count_session, content.list_sessions())
        while together := list(islice(sessions, 50)):
            with db.transaction():
                for session in together:
                    ends_at[0] = session.row["ended_at"] or 0.0
                    _store_session(db, session)
    return counted


def _store_session(db: SessionDB, session: shapes.BenchSession) -> None:
    row = {name: session.row[name] for name in _GIVEN_COLUMNS}
    key = db.create_session(session.row["id"], **row)
    db.set_session_title(key, session.row["title"])
    if session.messages:
        db.append_messages(key, session.messages)
    if session.row["ended_at"] is not None:
        db.end_session(key, session.row["end_reason"])


def fill_hermes_home(db_path: Path, content: shapes.HomeWriter) -> ContentCounter:
    peer_jobs.run_hermes(db_path.parent, {"db": str(db_path), "do": "create"})
    counted = ContentCounter()
    connection = _sqlite3.connect(make_file_uri(db_path, "mode=rw"), busy_timeout_s=1)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        triggers = _remove_triggers(connection)
        sessions = map(counted.count_session, content.list_sessions())
        while together := list(islice(sessions, 500)):
            _insert_rows(connection, together)
        _fill_search_index(connection)
        for sql in triggers:
            connection.execute(sql)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    hermes = peer_jobs.run_hermes(db_path.parent, {"db": str(db_path), "do": "verify"})
    if hermes["messages"] != counted.messages or not hermes["found"]:
        raise RuntimeError(f"hermes does not see what was built: {hermes}")
    return counted


def _remove_triggers(connection: _sqlite3.Connection) -> list[str]:
    asked = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'messages'"
    triggers = connection.execute(asked).fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    return [sql for _, sql in triggers]


def _insert_rows(connection: _sqlite3.Connection, sessions: Iterable[shapes.BenchSession]) -> None:
    connection.execute("BEGIN")
    for session in sessions:
        _format_insert(connection, "sessions", [session.row])
        rows = [_encode_content(session.row["id"], message) for message in session.messages]
        if rows:
            _format_insert(connection, "messages", rows)
    connection.execute("COMMIT")


def _format_insert(connection: _sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    values = ", ".join(f":{name}" for name in names)
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"  # noqa: S608 -- our names
    connection.executemany(sql, rows)


def _encode_content(session_id: str, message: dict[str, Any]) -> dict[str, Any]:
    calls = message["tool_calls"]
    stored = {"session_id": session_id, "tool_calls": json.dumps(calls) if calls else None}
    return message | stored


def _fill_search_index(connection: _sqlite3.Connection) -> None:
    (last,) = connection.execute("SELECT max(id) FROM messages").fetchone()
    for table in ("messages_fts", "messages_fts_trigram"):
        for first in range(1, last + 1, _BATCH_ROWS):
            connection.execute("BEGIN")
            connection.execute(
                f"INSERT INTO {table}(rowid, content) SELECT id, {_INDEXED_TEXT_SQL} FROM messages"  # noqa: S608
                " WHERE id >= ? AND id < ?",
                (first, first + _BATCH_ROWS),
            )
            connection.execute("COMMIT")


def _fingerprint_sources(shape: shapes.HomeShape, kind: str) -> str:
    sources = [
        *_SOURCE_FOLDER.glob("*.txt"),
        *(_SOURCE_FOLDER / f"{name}.py" for name in _TEXT_SOURCES),
    ]
    if kind == "own":
        library = Path(_sqlite3.__file__).parent / "state"
        sources += sorted(path for path in library.rglob("*") if path.suffix in (".py", ".sql"))
    digest = hashlib.sha256(repr(shape).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


_GIVEN_COLUMNS = ("source", "model", "model_config", "parent_session_id", "started_at", "cwd")
_TEXT_SOURCES = ("text", "questions", "shapes", "build")
