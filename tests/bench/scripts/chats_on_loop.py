"""Runs 200 chats on one event loop next to a held write lock, in the process of a small bot.

Prints the milliseconds by which each sleep of a ticker was late, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from session_core import SessionDB, SessionRuntime, SessionSource, SessionStore

_TICK_S = 0.001

_HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
connection.close()
"""


async def measure_lags(folder: Path, chats: int, hold_s: float) -> list[float]:
    """Return the lag of each tick, in milliseconds."""
    with SessionDB(folder / "state.db") as db, SessionStore(folder / "sessions", db=db) as store:
        async with SessionRuntime(store, lambda _: answer) as runtime:
            await runtime.ahandle(make_chat(0), "warm up")
            holder = await hold_lock(db.path, hold_s)
            turns = [runtime.ahandle(make_chat(number), "hello") for number in range(chats)]
            lags_ms, replies = await tick_during(asyncio.gather(*turns))
            await holder.wait()
    if len(replies) != chats:
        raise AssertionError(f"{len(replies)} of {chats} turns returned")
    return lags_ms


async def answer(run, message):
    """Store both messages and read the conversation."""
    await run.aappend("user", message)
    await run.aappend("assistant", "noted")
    return f"{len(await run.ahistory())} messages"


async def tick_during(work):
    """Return the lags of the ticks until the work is done, and its result."""
    lags_ms = []
    while not work.done():
        began = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        lags_ms.append((time.perf_counter() - began - _TICK_S) * 1000)
    return lags_ms, await work


async def hold_lock(path: Path, hold_s: float):
    """Hold the write lock of a database in another process, which ends by itself."""
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLDER, str(path), str(hold_s), stdout=asyncio.subprocess.PIPE
    )
    await holder.stdout.readline()
    return holder


def make_chat(number: int) -> SessionSource:
    """Return the source of the messages of one chat."""
    return SessionSource(platform="telegram", chat_id=str(number), user_id="7")


if __name__ == "__main__":
    folder, chats, hold_s = sys.argv[1:]
    print(json.dumps(asyncio.run(measure_lags(Path(folder), int(chats), float(hold_s)))))
