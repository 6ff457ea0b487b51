"""The lag of an event loop whose agents use a home while another process holds its write lock.

200 chats send a message each. A ticker sleeps for 1 ms again and again; the lag is the time by
which its slowest sleep was late.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from session_core import SessionDB, SessionRuntime, SessionSource, SessionStore
from tests.bench.rows import BenchRow
from tests.peers import ROOT

MAX_LAG_MS = 50.0
CHATS = 200
_TICK_S = 0.001
_HOLD_S = {False: 3.0, True: 0.2}
"""The time for which the other process holds the lock."""

_HOLDER = """
import sys, time
from tests.homes import connect
with connect(sys.argv[1]) as connection:
    connection.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def measure_loop_lag(folder: Path, *, quick: bool) -> BenchRow:
    """Return the row: 200 turns on one loop, next to a held lock."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="loop-") as name:
        lags_ms = asyncio.run(_measure_lags(Path(name), _HOLD_S[quick]))
    slowest = max(lags_ms)
    return BenchRow(
        what="lag of the loop, lock held",
        home="own",
        ours=f"{slowest:.1f} ms",
        theirs="",
        better=None,
        target=f"<= {MAX_LAG_MS:g} ms",
        reached=slowest <= MAX_LAG_MS,
        note=f"{len(lags_ms):,} ticks; {CHATS} chats; held for {_HOLD_S[quick]:g} s",
    )


async def _measure_lags(folder: Path, hold_s: float) -> list[float]:
    with SessionDB(folder / "state.db") as db, SessionStore(folder / "sessions", db=db) as store:
        runtime = SessionRuntime(store, lambda _: _answer)
        async with runtime:
            return await _run_chats(db.path, runtime, hold_s)


async def _run_chats(path: Path, runtime: SessionRuntime, hold_s: float) -> list[float]:
    await runtime.ahandle(_make_chat(0), "warm up")
    async with _hold_lock(path, hold_s):
        turns = [runtime.ahandle(_make_chat(number), "hello") for number in range(CHATS)]
        lags_ms, replies = await _tick_during(asyncio.gather(*turns))
    if len(replies) != CHATS:
        raise AssertionError(f"{len(replies)} of {CHATS} turns returned")
    return lags_ms


async def _answer(run: Any, message: Any) -> str:
    await run.aappend("user", message)
    await run.aappend("assistant", "noted")
    return f"{len(await run.ahistory())} messages"


async def _tick_during(work: asyncio.Future[list[Any]]) -> tuple[list[float], list[Any]]:
    lags_ms = []
    while not work.done():
        began = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        lags_ms.append((time.perf_counter() - began - _TICK_S) * 1000)
    return lags_ms, await work


@asynccontextmanager
async def _hold_lock(path: Path, hold_s: float) -> AsyncIterator[None]:
    """Hold the write lock of a database in another process, which ends by itself."""
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLDER, str(path), str(hold_s), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    await holder.stdout.readline()
    try:
        yield
    finally:
        await holder.wait()


def _make_chat(number: int) -> SessionSource:
    return SessionSource(platform="telegram", chat_id=str(number), user_id="7")
