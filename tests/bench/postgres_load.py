"""`python -m tests.bench.postgres_load`: many programs on one home in PostgreSQL.

Writers append to shared sessions, waiters wait for changes, and a gateway lives through a day. What
is stored is checked: no message is lost or doubled, and each session keeps the order of each
writer. The table also shows how many updates were heap-only and how much the tables grew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server
from tests.bench.postgres_scale import SETTINGS

PROCESSES, THREADS = 8, 8
SESSIONS = 16
WAITERS = 100
_WAIT_S = 60.0
_TABLES = ("session_rows", "message_rows", "homes", "route_rows", "usage_rows", "text_queue")

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class LoadResult:
    """The numbers of stored messages, and the seconds that it took."""

    stored: int
    lost: int
    doubled: int
    disordered: int
    seconds: float


def write_messages(address: str, process: int, threads: int, count: int) -> None:
    """Append from several threads of a process, each to all sessions in turn."""
    with PostgresDB(address, patience_s=300) as db:

        def append(thread: int) -> None:
            writer = process * threads + thread
            for number in range(count):
                session = f"s{(writer + number) % SESSIONS}"
                text = f"{writer} {number}"
                db.append_message(session, "user", text, create={"source": "load"})

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(append, range(threads)))


def run_writers(address: str, processes: int, threads: int, count: int) -> LoadResult:
    """Run writers in processes of their own and judge what they have stored."""
    began = time.perf_counter()
    _run_processes(write_messages, [(address, n, threads, count) for n in range(processes)])
    seconds = time.perf_counter() - began
    expected = {
        (writer, number) for writer in range(processes * threads) for number in range(count)
    }
    counter: Counter[tuple[int, int]] = Counter()
    disordered = 0
    with PostgresDB(address) as db:
        for session in range(SESSIONS):
            last: dict[int, int] = {}
            for message in db.get_messages(f"s{session}"):
                writer, number = map(int, str(message["content"]).split())
                disordered += number < last.get(writer, -1)
                last[writer] = number
                counter[writer, number] += 1
    doubled = sum(times - 1 for times in counter.values())
    return LoadResult(counter.total(), len(expected - counter.keys()), doubled, disordered, seconds)


def wait_for_changes(address: str, waiters: int, count: int, results: Any) -> None:
    """Wait in several threads until each has heard of all messages; report the delays."""
    with PostgresDB(address) as db:
        cursor = db.read_changes().cursor
        ready = threading.Barrier(waiters + 1)

        def wait(_: int) -> list[float]:
            position, delays = cursor, list[float]()
            ready.wait()
            until = time.monotonic() + _WAIT_S
            while len(delays) < count and time.monotonic() < until:
                page = db.read_changes(position, timeout_s=5)
                position = page.cursor
                now = time.time()
                delays += [
                    now - float(event.text or 0) for event in page.events if event.type == "message"
                ]
            return delays

        with ThreadPoolExecutor(waiters) as pool:
            futures = [pool.submit(wait, number) for number in range(waiters)]
            ready.wait()
            results.put("ready")
            results.put([future.result() for future in futures])


def run_waiters(address: str, processes: int, waiters: int, count: int) -> list[list[float]]:
    """Return for each waiter the seconds from before an append until it was heard of."""
    with PostgresDB(address) as db:
        db.create_session("heard", "load")
        results = _CONTEXT.Queue()
        arguments = (address, waiters // processes, count, results)
        started = [
            _CONTEXT.Process(target=wait_for_changes, args=arguments) for _ in range(processes)
        ]
        for process in started:
            process.start()
        for _ in started:
            assert results.get(timeout=_WAIT_S) == "ready"
        for _ in range(count):
            time.sleep(0.3)
            db.append_message("heard", "user", f"{time.time():.6f}")
        delays = [one for _ in started for one in results.get(timeout=_WAIT_S * 2)]
        for process in started:
            process.join(_WAIT_S)
    return delays


def live_gateway_day(db: PostgresDB, chats: int, turns: int) -> None:
    """Let chats take turns: messages, tokens, routes, and now and then a new session."""
    draw = random.Random(5)
    sessions = [_begin_session(db, chat, 0) for chat in range(chats)]
    entries: dict[int, str] = {}
    for turn in range(turns):
        chat = draw.randrange(chats)
        session = sessions[chat]
        db.append_message(session, "user", f"question {turn} " + "of this chat " * 10)
        for _ in range(draw.randint(0, 2)):
            db.append_message(session, "tool", "output " * 60, tool_name="terminal")
        db.append_message(session, "assistant", f"answer {turn} " + "for this chat " * 20)
        db.update_token_counts(session, input_tokens=900, output_tokens=120, model="m")
        entry = {"session_id": session, "turn": turn, "origin": {"chat": chat}}
        entries[chat] = _save_route(db, chat, entry, entries.get(chat))
        if draw.random() < 0.03:
            db.end_session(session, "session_reset")
            sessions[chat] = _begin_session(db, chat, turn)
        if turn % 50 == 0:
            db.search("question")


def _save_route(db: PostgresDB, chat: int, entry: dict[str, Any], before: str | None) -> str:
    """Store the route of a chat and return its text."""
    text = json.dumps(entry)
    db.routes.save_entry(f"agent:main:load:dm:{chat}", text, expect=before)
    return text


def _begin_session(db: PostgresDB, chat: int, turn: int) -> str:
    session: str = db.create_session(
        f"c{chat}-{turn}", "load", chat_id=str(chat), system_prompt="You are helpful. " * 60
    )
    return session


def _run_processes(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Run processes to their end and raise if one of them fails."""
    started = [_CONTEXT.Process(target=target, args=argument) for argument in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        raise RuntimeError("a writer has failed")


def read_update_counts(address: str) -> dict[str, tuple[int, int]]:
    """Return the updates of each table, and how many of them were heap-only."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        rows = connection.execute(
            "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
        ).fetchall()
    return {name: (updates, hot) for name, updates, hot in rows if name in _TABLES}


def read_sizes(address: str, *, full: bool = False) -> dict[str, int]:
    """Return the bytes of each table with its indexes, with `full` after it was written anew."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET search_path = mcp_sessions")
        for table in _TABLES if full else ():
            connection.execute(f"VACUUM FULL {table}")
        return {
            table: connection.execute(
                "SELECT pg_total_relation_size(%s::regclass)", (table,)
            ).fetchone()[0]  # type: ignore[index]
            for table in _TABLES
        }


@contextmanager
def start_home() -> Any:
    """Start a server; return an address of a home for programs, and that of the owner."""
    server = postgres_server.start_server("C.UTF-8", **SETTINGS, autovacuum_naptime="5s")
    try:
        address = postgres_server.prepare_database(server.address)
        yield f"{address}&home=load", server.address
    finally:
        server.stop()


def main() -> None:
    """Print what the load did."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.postgres_load")
    parser.add_argument("--appends", type=int, default=100, help="of each of 64 writers")
    parser.add_argument("--heard", type=int, default=20, help="messages that waiters hear of")
    parser.add_argument("--turns", type=int, default=5000, help="of the gateway")
    options = parser.parse_args()
    with start_home() as (address, owner):
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        result = run_writers(address, PROCESSES, THREADS, options.appends)
        print(
            f"{PROCESSES * THREADS} writers in {PROCESSES} processes: {result.stored:,} stored,"
            f" {result.lost} lost, {result.doubled} doubled, {result.disordered} out of order;"
            f" {result.stored / result.seconds:.0f} appends/s",
            flush=True,
        )
        delays = run_waiters(address.replace("=load", "=feed"), 4, WAITERS, options.heard)
        whole = sum(len(each) == options.heard for each in delays)
        times = sorted(delay * 1000 for each in delays for delay in each)
        cuts = statistics.quantiles(times, n=100)
        print(
            f"{WAITERS} waiters: {whole} heard all of {options.heard} messages; median"
            f" {cuts[49]:.0f} ms, p95 {cuts[94]:.0f} ms, p99 {cuts[98]:.0f} ms, most"
            f" {times[-1]:.0f} ms",
            flush=True,
        )
        before = read_update_counts(owner)
        with PostgresDB(address.replace("=load", "=day")) as db:
            live_gateway_day(db, 200, options.turns)
        _print_updates(owner, before)


def _print_updates(owner: str, before: dict[str, tuple[int, int]]) -> None:
    """Print the updates since then, and the sizes now and after each table was written anew."""
    after, sizes = read_update_counts(owner), read_sizes(owner)
    compact = read_sizes(owner, full=True)
    print("| table | updates | heap-only | MB | MB if written anew |")
    print("|---|---|---|---|---|")
    for table in _TABLES:
        updates, hot = (new - old for new, old in zip(after[table], before[table], strict=True))
        share = f"{hot / updates:.0%}" if updates else ""
        print(
            f"| {table} | {updates:,} | {share} | {sizes[table] / 1e6:.1f} |"
            f" {compact[table] / 1e6:.1f} |"
        )


if __name__ == "__main__":
    main()
