"""The rows over the wire, on stdio: start, memory, lists, pages, searches and freshness.

Each beside a bare server of the SDK, whose call of nothing is taken off, and beside the server of
Hermes. It knows conversations of chats alone, so a copy of the home is given some.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from session_core import SessionDB, _sqlite3
from session_core.state.sqlite.connection import file_uri
from tests.bench import listening, rows, serving, starting, through_sdk
from tests.bench.build import Built
from tests.bench.hearing import heard_row
from tests.bench.rows import Answer, Row
from tests.bench.serving import NOTHING, Call, Server

_PAGE = 50
_WARM_UP = 3
_LEAST_RUNS = 5

_CHATS = """
UPDATE sessions SET session_key = 'agent:main:' || source || ':dm:' || rowid,
    chat_id = CAST(rowid AS TEXT), chat_type = 'dm', display_name = 'Person ' || rowid
WHERE source IN ('telegram', 'discord', 'slack') AND ended_at IS NULL
"""
_READ_ONES = """
UPDATE sessions SET source = 'telegram', ended_at = NULL, end_reason = NULL,
    session_key = 'agent:main:telegram:dm:' || id,
    chat_id = id, chat_type = 'dm', display_name = 'Person ' || id
WHERE id IN (?, ?)
"""


def rows_of(folder: Path, built: Built, *, quick: bool) -> Iterator[Row]:
    """Yield the rows of one home, and before them those of every server on the first of all."""
    home = folder / "wire"
    _copy(built, home)
    if built.name == "even hermes":
        yield from starting.start_rows(home, quick=quick)
        yield from listening.start_rows(home, quick=quick)
        yield from starting.list_rows(home)
    yield from _call_rows(home, built, quick=quick)
    yield heard_row(home, built, quick=quick)
    shutil.rmtree(home)


def _copy(built: Built, home: Path) -> None:
    """Copy a home by SQLite, and give Hermes chats in it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    source = _sqlite3.connect(file_uri(Path(built.db), "mode=ro"), busy_timeout_s=1)
    target = _sqlite3.connect(file_uri(home / "state.db", "mode=rwc"), busy_timeout_s=1)
    target.execute("PRAGMA synchronous=OFF")
    source.backup(target)
    source.close()
    target.execute("PRAGMA journal_mode=WAL").fetchall()
    if built.kind == "hermes":
        target.execute(_CHATS)
        target.execute(_READ_ONES, (built.ordinary[0], built.longest[0]))
    target.close()
    # What was stored on a busy machine is indexed to its end by the first searches.
    with SessionDB(home / "state.db") as db:
        for word in built.rare:
            db.search(word)


def _call_rows(home: Path, built: Built, *, quick: bool) -> Iterator[Row]:
    """Yield lists, pages and searches, without what a call of nothing takes."""
    seconds = 0.05 if quick else 1.5
    calls = _our_calls(home, built)
    ours = _timed(serving.ours(home), serving.bare(home), calls, seconds)
    client = through_sdk.times(serving.ours(home), serving.bare(home), calls, 3 if quick else 30)
    theirs: dict[str, Answer] = {}
    if built.kind == "hermes":
        peers = _their_calls(built)
        theirs = _timed(serving.hermes(home), serving.bare(home), peers, seconds)
    for name, (target, _) in calls.items():
        mine = ours[name] | {"client": client[name]}
        yield _call_row(name, target, built, mine, theirs.get(name))


Calls = dict[str, tuple[float | None, list[Call]]]
"""By what is said in the table: the most milliseconds, and calls that take turns."""


def _our_calls(home: Path, built: Built) -> Calls:
    calls: Calls = {"list newest 20": (rows.LIST_MS, [Call("sessions_list", {"limit": 20})])}
    for session, count in dict([built.ordinary, built.longest]).items():
        most = rows.READ_MS if count <= 1000 else rows.READ_LONG_MS
        last = min(1000, count // _PAGE)
        places = {"newest page": {}, "page 1": {"after": 0}}
        if last > 1:
            places[f"page {last:,}"] = {"after": _last_before(home, session, last)}
        for name, place in places.items():
            asked = {"session": session, "limit": _PAGE, "max_chars": 40_000} | place
            calls[f"read {name} of {count:,}"] = (most, [Call("sessions_read", asked)])
    rare = [Call("sessions_search", {"query": word}) for word in built.rare]
    calls["search a rare word"] = (rows.RARE_MS, rare)
    half = [Call("sessions_search", {"query": built.half})]
    calls["search a word in half of all"] = (rows.HALF_MS, half)
    return calls


def _last_before(home: Path, session: str, page: int) -> int:
    """Return the message before a page."""
    with SessionDB(home / "state.db", read_only=True) as db:
        return int(db.get_messages(session, limit=1, offset=(page - 1) * _PAGE - 1)[0]["id"])


def _their_calls(built: Built) -> Calls:
    """Return what Hermes has of these: it searches nothing, and reads the newest page alone."""
    calls: Calls = {"list newest 20": (None, [Call("conversations_list", {"limit": 20})])}
    for session, count in dict([built.ordinary, built.longest]).items():
        asked = {"session_key": f"agent:main:telegram:dm:{session}", "limit": _PAGE}
        calls[f"read newest page of {count:,}"] = (None, [Call("messages_read", asked)])
    return calls


def _timed(
    program: serving.Program, bare: serving.Program, calls: Calls, seconds: float
) -> dict[str, Answer]:
    """Time each in turns with a call of nothing, of which the median is taken off."""
    with Server(program) as server, Server(bare) as nothing:
        return {name: _turns(server, nothing, each, seconds) for name, (_, each) in calls.items()}


def _turns(server: Server, nothing: Server, calls: list[Call], seconds: float) -> Answer:
    for number in range(_WARM_UP):
        said = server.call(calls[number % len(calls)])
        nothing.call(NOTHING)
    if '"error"' in said[:20]:
        raise RuntimeError(f"{calls[0].tool}: {said}")
    taken, floor = [], []
    until = time.perf_counter() + seconds
    while len(taken) < max(_LEAST_RUNS, len(calls)) or time.perf_counter() < until:
        taken.append(_ms(server, calls[len(taken) % len(calls)]))
        floor.append(_ms(nothing, NOTHING))
    least = statistics.median(floor)
    slow = sorted(taken)[min(len(taken) - 1, int(len(taken) * 0.95))]
    return {
        "ms": max(0.0, statistics.median(taken) - least),
        "p95": max(0.0, slow - least),
        "nothing": least,
        "characters": len(said),
        "mb": server.resident_mb(),
    }


def _ms(server: Server, call: Call) -> float:
    began = time.perf_counter()
    server.call(call)
    return (time.perf_counter() - began) * 1000


def _call_row(
    name: str, most: float | None, built: Built, ours: Answer, theirs: Answer | None
) -> Row:
    return Row(
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
