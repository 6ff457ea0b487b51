"""`python -m tests.bench.postgres_scale`: a large home in PostgreSQL, and how long its calls take.

The home is filled by COPY with the triggers off, as no client fills it, and compared with the
counters that the engine keeps. Times are medians of single calls of the library, with the first
call left out, over the socket of a server that syncs every commit.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psycopg

from session_core import SessionFilter
from session_core.state.postgres import fts
from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server
from tests.bench.text import HALF_WORD, TextWriter

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "8GB",
}
HOME = "large"
RARE_WORD, CJK_PAIR = "zyqqex", "鰯鯖"
LARGEST = "large"
FOLDER = "/srv/app7"
_FOLDERS = 50
_DISTINCT_TEXTS = 20_000
_BEGIN = 1_700_000_000.0
_ROLES = ("user", "assistant", "tool", "assistant")
_INDEXES = ("word_rows_words", "message_rows_time", "message_rows_change", "message_rows_session")
"""Indexes that are built after the rows, which takes a fraction of the time."""

_SESSION_COLUMNS = (
    "home_id, id, source, cwd, started_at, message_count, live_rows, last_message_id, active_at,"
    " started_change"
)
_MESSAGE_COLUMNS = 'home_id, id, session_id, role, content, "timestamp", change'


@dataclass(frozen=True)
class Scale:
    """The numbers of messages and sessions; a hundredth of all messages is one session."""

    messages: int
    sessions: int

    @property
    def largest(self) -> int:
        """The messages of the largest session."""
        return self.messages // 100


class HomeBuilder:
    """Fills a home by COPY, with the role that owns the tables."""

    def __init__(self, connection: psycopg.Connection[Any], scale: Scale) -> None:
        self._connection = connection
        self._scale = scale
        self._random = random.Random(15)
        self._texts = self._write_texts()
        self._counts: dict[str, list[float]] = {}

    def build(self) -> None:
        """Store all rows and build the indexes."""
        run = self._connection.execute
        run("SET search_path = mcp_sessions")
        run("SELECT set_config('mcp_sessions.home_name', %s, false)", (HOME,))
        row = run("INSERT INTO homes (name) VALUES (%s) RETURNING id", (HOME,)).fetchone()
        self._home = 0 if row is None else int(row[0])
        run("SELECT set_config('mcp_sessions.home', %s, false)", (str(self._home),))
        definitions = [
            run("SELECT pg_get_indexdef(%s::regclass)", (name,)).fetchone() for name in _INDEXES
        ]
        for table in ("session_rows", "message_rows", "word_rows"):
            # COPY is refused on tables whose policies bind their owner.
            run(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
            run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for name in _INDEXES:
            run(f"DROP INDEX {name}")
        sessions = self._draw_sessions()
        self._copy_messages(sessions)
        self._copy_sessions()
        for definition in definitions:
            run(definition[0])  # type: ignore[index]
        for table in ("session_rows", "message_rows", "word_rows"):
            run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
            if table != "word_rows":
                run(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        run("UPDATE homes SET last_message_id = %s", (self._scale.messages,))
        run("VACUUM (ANALYZE) session_rows, message_rows, word_rows, homes")

    def _write_texts(self) -> list[tuple[str, str]]:
        """Return texts and their words as a `tsvector`; half of them have a common word."""
        writer = TextWriter(15)
        texts = []
        for number in range(min(_DISTINCT_TEXTS, self._scale.messages)):
            text = writer.write_message(_ROLES[number % 4])
            if number % 2:
                text = f"{text} {HALF_WORD}"
            texts.append((text, format_vector(text)))
        return texts

    def _draw_sessions(self) -> list[str]:
        """Return the session of each message: conversations take turns, as on a real day."""
        count, largest = self._scale.sessions, self._scale.largest
        names = [f"s{number:07}" for number in range(count - 1)]
        rest = self._scale.messages - largest
        sessions = names + self._random.choices(names, k=rest - len(names)) + [LARGEST] * largest
        # Sessions are active around a time of their own.
        places = {name: number / count for number, name in enumerate(names)}
        sessions.sort(key=lambda name: places.get(name, 0.5) + self._random.random() * 0.05)
        return sessions

    def _copy_messages(self, sessions: list[str]) -> None:
        cursor = self._connection.cursor()
        words: list[str] = []
        rare = set(self._random.sample(range(len(sessions)), min(20, len(sessions) // 2)))
        with cursor.copy(f"COPY message_rows ({_MESSAGE_COLUMNS}) FROM STDIN") as copy:
            for number, session in enumerate(sessions, 1):
                text, vector = self._random.choice(self._texts)
                if number - 1 in rare:
                    text = f"{text} {RARE_WORD} {CJK_PAIR}"
                    vector = format_vector(text)
                at = _BEGIN + number
                role = _ROLES[number % 4]
                copy.write_row((self._home, number, session, role, text, at, None))
                words.append(vector)
                count = self._counts.setdefault(session, [0, 0, 0, at])
                count[0], count[1], count[2] = count[0] + 1, number, at
        columns = "home_id, message_id, part, whole, words"
        with cursor.copy(f"COPY word_rows ({columns}) FROM STDIN") as copy:
            for number, vector in enumerate(words, 1):
                copy.write_row((self._home, number, 0, True, vector))

    def _copy_sessions(self) -> None:
        statement = f"COPY session_rows ({_SESSION_COLUMNS}) FROM STDIN"
        with self._connection.cursor().copy(statement) as copy:
            for number, (name, (count, last, active, at)) in enumerate(self._counts.items()):
                source = ("cli", "telegram", "discord")[number % 3]
                folder = f"/srv/app{number % _FOLDERS}"
                values = (count, count, last, active, None)
                copy.write_row((self._home, name, source, folder, at, *values))


def format_vector(text: str) -> str:
    """Return the words of a text in the notation of a `tsvector`."""
    lexemes = (lexeme.replace("\\", "\\\\").replace("'", "''") for lexeme in fts.list_lexemes(text))
    return " ".join(f"'{lexeme}'" for lexeme in lexemes)


@contextmanager
def build_home(scale: Scale) -> Iterator[tuple[PostgresDB, int]]:
    """Start a server, build the home, and open it with a role that owns nothing.

    Return it with the process of the server.
    """
    server = postgres_server.start_server("C.UTF-8", **SETTINGS)
    try:
        address = postgres_server.prepare_database(server.address)
        with psycopg.connect(server.address, autocommit=True) as connection:
            HomeBuilder(connection, scale).build()
        with PostgresDB(f"{address}&home={HOME}") as db:
            yield db, server.process.pid
    finally:
        server.stop()


def list_calls(db: PostgresDB) -> dict[str, tuple[float | None, Callable[[], Any]]]:
    """Return the calls to measure, each with the milliseconds to reach."""
    number = iter(range(10**9))
    newest = db.list_sessions(limit=1).items[0].id
    cursor = db.read_changes().cursor

    def append(session: str) -> Any:
        return db.append_message(session, "user", f"message {next(number)} of the bench")

    def hear() -> Any:
        nonlocal cursor
        append(newest)
        page = db.read_changes(cursor)
        cursor = page.cursor
        assert page.events
        return page

    return {
        "list, newest 20": (5, lambda: db.list_sessions(limit=20)),
        "list, newest 20 of a project": (
            5,
            lambda: db.list_sessions(SessionFilter(project=FOLDER)),
        ),
        "list, 20 by cost": (None, lambda: db.list_sessions(order="cost")),
        "page of 50, newest": (5, lambda: db.read_window(newest)),
        f"page of 50 inside {LARGEST}": (
            5,
            lambda: db.read_window(LARGEST, before=db.get_revision(LARGEST).last_id // 2),
        ),
        "search, rare word": (5, lambda: db.search(RARE_WORD)),
        "search, CJK pair": (5, lambda: db.search(CJK_PAIR)),
        "search, word in half of all": (30, lambda: db.search(HALF_WORD)),
        "search, three words": (None, lambda: db.search(f"{HALF_WORD} migration the")),
        "search, phrase": (None, lambda: db.search('"in the"')),
        "search, rare substring": (None, lambda: db.search("yqqe", mode="substring")),
        "append": (None, lambda: append(newest)),
        "append to the largest session": (None, lambda: append(LARGEST)),
        "append, and hear of it in the feed": (None, hear),
        "feed without news": (None, lambda: db.read_changes(cursor)),
    }


def measure_call(call: Callable[[], Any], server: int, rounds: int) -> tuple[float, float, float]:
    """Return median milliseconds: of the clock, and of the processor in client and server."""
    times: list[tuple[float, float, float]] = []
    call()
    for _ in range(rounds):
        begin = time.perf_counter(), time.process_time(), read_server_seconds(server)
        call()
        end = time.perf_counter(), time.process_time(), read_server_seconds(server)
        times.append((end[0] - begin[0], end[1] - begin[1], end[2] - begin[2]))
    clock, client, backend = (
        statistics.median(column) * 1000 for column in zip(*times, strict=True)
    )
    return clock, client, backend


def read_server_seconds(server: int) -> float:
    """Return the seconds that the processes of a server have run."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split()
    seconds = 0
    for child in children:
        with suppress(OSError):
            stat = Path(f"/proc/{child}/schedstat").read_text(encoding="ascii")
            seconds += int(stat.split()[0])
    return seconds / 1e9


def main() -> None:
    """Build the home and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.postgres_scale")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    began = time.perf_counter()
    with build_home(Scale(options.messages, options.sessions)) as (db, server):
        sizes = db.admin.measure_sizes()
        print(
            f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), Python"
            f" {platform.python_version()}, {date.today().isoformat()}, {options.messages:,}"  # noqa: DTZ011
            f" messages in {options.sessions:,} sessions, built in"
            f" {time.perf_counter() - began:.0f} s"
        )
        for name, size in sizes.tables.items():
            if size > sizes.db / 100:
                print(f"{name}: {size / 1e6:.0f} MB")
        print("| call | ms | processor: client | server | reach |")
        print("|---|---|---|---|---|")
        for what, (reach, call) in list_calls(db).items():
            clock, client, backend = measure_call(call, server, options.rounds)
            missed = " **missed**" if reach is not None and clock > reach else ""
            print(
                f"| {what} | {clock:.1f}{missed} | {client:.1f} | {backend:.1f} |"
                f" {'' if reach is None else f'{reach:g}'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
