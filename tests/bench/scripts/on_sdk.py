"""Append and read by an adapter and by the SQLite store of its SDK, in turns.

`on_sdk.py EXTRA FOLDER ROUNDS` runs in the environment of the SDK, and prints the seconds of one
call in each round, by the clock and of the processor.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

APPENDS, READS, SIZE, LONG = 50, 20, 100, 2000
TEXT = "We keep the ledger in SQLite, because one file is easy to back up. " * 4

Append = Callable[[str, int], Awaitable[Any]]
Read = Callable[[str], Awaitable[list[Any]]]
Side = tuple[Append, Read]


class Moment:
    """The time of the clock and of the processor at the beginning of some calls."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def measure(self, calls: int) -> tuple[float, float]:
        """Return the seconds of one call since then, by the clock and of the processor."""
        clock, processor = time.perf_counter(), time.process_time()
        return (clock - self._clock) / calls, (processor - self._processor) / calls


async def open_openai(folder: Path) -> dict[str, Side]:
    """Return our session and `SQLiteSession`, both in files."""
    from agents import SQLiteSession  # noqa: PLC0415 -- in one of the environments

    from session_core import open_home  # noqa: PLC0415 -- as above
    from session_core.adapters.openai import OpenAISession  # noqa: PLC0415 -- as above

    home = open_home(folder / "home")
    # One object for each session, as an application has.
    ours: dict[str, Any] = {name: OpenAISession(name, home) for name in NAMES}
    peer: dict[str, Any] = {name: SQLiteSession(name, folder / "peer.db") for name in NAMES}

    def make_side(sessions: dict[str, Any]) -> Side:
        async def append(name: str, count: int) -> None:
            for _ in range(count):
                await sessions[name].add_items([{"role": "user", "content": TEXT}])

        async def read(name: str) -> list[Any]:
            items: list[Any] = await sessions[name].get_items(SIZE)
            return items

        return append, read

    return {"ours": make_side(ours), "peer": make_side(peer)}


async def open_adk(folder: Path) -> dict[str, Side]:
    """Return our service and `SqliteSessionService`."""
    from google.adk.events.event import Event  # noqa: PLC0415 -- in one of the environments
    from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: PLC0415
    from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415 -- as above

    from session_core.adapters.adk import AdkSessionService  # noqa: PLC0415 -- as above

    config = GetSessionConfig(num_recent_events=SIZE)

    async def make_side(service: Any) -> Side:
        keys = {name: {"app_name": "a", "user_id": "u", "session_id": name} for name in NAMES}
        held = {name: await service.create_session(**keys[name]) for name in NAMES}

        async def append(name: str, count: int) -> None:
            for _ in range(count):
                content = types.Content(role="user", parts=[types.Part(text=TEXT)])
                await service.append_event(held[name], Event(author="user", content=content))

        async def read(name: str) -> list[Any]:
            session = await service.get_session(**keys[name], config=config)
            events: list[Any] = session.events
            return events

        return append, read

    return {
        "ours": await make_side(AdkSessionService(folder / "home")),
        "peer": await make_side(SqliteSessionService(str(folder / "peer.db"))),
    }


NAMES = ("short", "long", "appended")
OPENERS = {"openai": open_openai, "adk": open_adk}


async def main(extra: str, folder: Path, rounds: int) -> None:
    """Print the seconds of a call in each round."""
    sides = await OPENERS[extra](folder)
    for append, _ in sides.values():
        await append("short", SIZE)
        await append("long", LONG)
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for number in range(rounds):
        for side in sorted(sides, reverse=number % 2 == 1):
            append, read = sides[side]
            began = Moment()
            await append("appended", APPENDS)
            times = {"append": began.measure(APPENDS)}
            for name in ("short", "long"):
                began = Moment()
                for _ in range(READS):
                    assert len(await read(name)) == SIZE
                times[f"read {name}"] = began.measure(READS)
            for what, taken in times.items():
                seconds.setdefault(what, {}).setdefault(side, []).append(taken)
    print(json.dumps(seconds))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
