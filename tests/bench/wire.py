"""The rows over the wire, on stdio: start, memory, lists, pages, searches and freshness.

Each is compared with a bare server of the SDK, whose empty call is subtracted, and with the server
of Hermes. Hermes lists only conversations of chats, so a copy of the home gets some.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from session_core import SessionDB, _sqlite3
from session_core.state.sqlite.connection import make_file_uri
from tests.bench import http_start, rows, server_start, serving, through_sdk
from tests.bench.build import BuiltHome
from tests.bench.event_delay import measure_event_delay
from tests.bench.rows import Answer, BenchRow
from tests.bench.serving import EMPTY_CALL, StdioServer, ToolCall

_PAGE_SIZE = 50
_LIST_MS, _PAGE_MS = 1.5, 1.5
_WARM_UP = 3
_MIN_RUNS = 5

_CHATS_SQL = """
UPDATE sessions SET session_key = 'agent:main:' || source || ':dm:' || rowid,
    chat_id = CAST(rowid AS TEXT), chat_type = 'dm', display_name = 'Person ' || rowid
WHERE source IN ('telegram', 'discord', 'slack') AND ended_at IS NULL
"""
_READ_SESSIONS_SQL = """
UPDATE sessions SET source = 'telegram', ended_at = NULL, end_reason = NULL,
    session_key = 'agent:main:telegram:dm:' || id,
    chat_id = id, chat_type = 'dm', display_name = 'Person ' || id
WHERE id IN (?, ?)
"""


def measure_wire_rows(folder: Path, built: BuiltHome, *, quick: bool) -> Iterator[BenchRow]:
    """Yield the rows of one home, and before them those of every server on the first of all."""
    home = folder / "wire"
    _copy_home(built, home)
    if built.name == "even hermes":
        yield from server_start.measure_start(home, quick=quick)
        yield from http_start.measure_http_start(home, quick=quick)
        yield from server_start.measure_tool_list(home)
    yield from _measure_calls(home, built, quick=quick)
    yield measure_event_delay(home, built, quick=quick)
    shutil.rmtree(home)


def _copy_home(built: BuiltHome, home: Path) -> None:
    """Copy a home by SQLite, and give Hermes chats in it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    source = _sqlite3.connect(make_file_uri(Path(built.db), "mode=ro"), busy_timeout_s=1)
    target = _sqlite3.connect(make_file_uri(home / "state.db", "mode=rwc"), busy_timeout_s=1)
    target.execute("PRAGMA synchronous=OFF")
    source.backup(target)
    source.close()
    target.execute("PRAGMA journal_mode=WAL").fetchall()
    if built.kind == "hermes":
        target.execute(_CHATS_SQL)
        target.execute(_READ_SESSIONS_SQL, (built.ordinary[0], built.longest[0]))
    target.close()
    # The first searches index all messages that were stored on a busy machine.
    with SessionDB(home / "state.db") as db:
        for word in built.rare:
            db.search(word)


def _measure_calls(home: Path, built: BuiltHome, *, quick: bool) -> Iterator[BenchRow]:
    """Yield lists, pages and searches, without the time of an empty call."""
    seconds = 0.05 if quick else 1.5
    calls = _make_own_calls(home, built)
    ours = _time_calls(
        serving.make_own_program(home), serving.make_bare_program(home), calls, seconds
    )
    client = through_sdk.measure_call_times(
        serving.make_own_program(home), serving.make_bare_program(home), calls, 3 if quick else 30
    )
    theirs: dict[str, Answer] = {}
    if built.kind == "hermes":
        peers = _make_hermes_calls(built)
        theirs = _time_calls(
            serving.make_hermes_program(home), serving.make_bare_program(home), peers, seconds
        )
    for name, (target, _) in calls.items():
        mine = ours[name] | {"client": client[name]}
        yield _make_call_row(name, target, built, mine, theirs.get(name))


WireCalls = dict[str, tuple[float | None, list[ToolCall]]]
"""By what is said in the table: the most milliseconds, and calls that take turns."""


def _make_own_calls(home: Path, built: BuiltHome) -> WireCalls:
    calls: WireCalls = {"list newest 20": (_LIST_MS, [ToolCall("sessions_list", {"limit": 20})])}
    for session, count in dict([built.ordinary, built.longest]).items():
        most = _PAGE_MS if count <= 1000 else rows.READ_LONG_MS
        last = min(1000, count // _PAGE_SIZE)
        places = {"newest page": {}, "page 1": {"after": 0}}
        if last > 1:
            places[f"page {last:,}"] = {"after": _find_message_before(home, session, last)}
        for name, place in places.items():
            asked = {"session": session, "limit": _PAGE_SIZE, "max_chars": 40_000} | place
            calls[f"read {name} of {count:,}"] = (most, [ToolCall("sessions_read", asked)])
    rare = [ToolCall("sessions_search", {"query": word}) for word in built.rare]
    calls["search a rare word"] = (rows.RARE_MS, rare)
    half = [ToolCall("sessions_search", {"query": built.half})]
    calls["search a word in half of all"] = (rows.HALF_MS, half)
    return calls


def _find_message_before(home: Path, session: str, page: int) -> int:
    """Return the message before a page."""
    with SessionDB(home / "state.db", read_only=True) as db:
        return int(db.get_messages(session, limit=1, offset=(page - 1) * _PAGE_SIZE - 1)[0]["id"])


def _make_hermes_calls(built: BuiltHome) -> WireCalls:
    """Return the same calls for Hermes, which has no search and reads only the newest page."""
    calls: WireCalls = {"list newest 20": (None, [ToolCall("conversations_list", {"limit": 20})])}
    for session, count in dict([built.ordinary, built.longest]).items():
        asked = {"session_key": f"agent:main:telegram:dm:{session}", "limit": _PAGE_SIZE}
        calls[f"read newest page of {count:,}"] = (None, [ToolCall("messages_read", asked)])
    return calls


def _time_calls(
    program: serving.ServerProgram, bare: serving.ServerProgram, calls: WireCalls, seconds: float
) -> dict[str, Answer]:
    """Time each in turns with a call of nothing, of which the median is taken off."""
    with StdioServer(program) as server, StdioServer(bare) as nothing:
        return {
            name: _time_in_turns(server, nothing, each, seconds)
            for name, (_, each) in calls.items()
        }


def _time_in_turns(
    server: StdioServer, nothing: StdioServer, calls: list[ToolCall], seconds: float
) -> Answer:
    for number in range(_WARM_UP):
        answer = server.call_tool(calls[number % len(calls)])
        nothing.call_tool(EMPTY_CALL)
    if '"error"' in answer[:20]:
        raise RuntimeError(f"{calls[0].tool}: {answer}")
    taken, floor = [], []
    until = time.perf_counter() + seconds
    while len(taken) < max(_MIN_RUNS, len(calls)) or time.perf_counter() < until:
        taken.append(_compute_ms(server, calls[len(taken) % len(calls)]))
        floor.append(_compute_ms(nothing, EMPTY_CALL))
    least = statistics.median(floor)
    slow = sorted(taken)[min(len(taken) - 1, int(len(taken) * 0.95))]
    return {
        "ms": max(0.0, statistics.median(taken) - least),
        "p95": max(0.0, slow - least),
        "nothing": least,
        "characters": len(answer),
        "mb": server.measure_resident_mb(),
    }


def _compute_ms(server: StdioServer, call: ToolCall) -> float:
    began = time.perf_counter()
    server.call_tool(call)
    return (time.perf_counter() - began) * 1000


def _make_call_row(
    name: str, most: float | None, built: BuiltHome, ours: Answer, theirs: Answer | None
) -> BenchRow:
    return BenchRow(
        what=f"wire: {name}",
        home=built.name,
        ours=f"{ours['ms']:.2f} ms",
        theirs="" if theirs is None else f"{theirs['ms']:.2f} ms",
        better=None if theirs is None else theirs["ms"] / max(ours["ms"], 0.001),
        target="" if most is None else f"<= {most:g} ms",
        reached=None if most is None else ours["ms"] <= most,
        note=f"p95 {ours['p95']:.2f} ms; nothing takes {ours['nothing']:.2f} ms; "
        f"{ours['characters']:,} characters; the SDK's client {ours['client']:.2f} ms; "
        f"{ours['mb']:.0f} MB",
    )
