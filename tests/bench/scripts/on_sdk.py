"""Append and read by an adapter and by the SQLite store of its SDK, in turns.

`on_sdk.py EXTRA FOLDER ROUNDS` runs in the environment of the SDK. It prints the journal mode and
the synchronous setting of each side, and the seconds of one call in each round, by the clock and of
the processor. If the settings of the store of the SDK are not ours, it takes part with ours too.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3  # noqa: TID251 -- the library of the peers, whose settings are read
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APPENDS, READS, SIZE, LONG = 50, 20, 100, 2000
CROWD = tuple(f"crowd {number}" for number in range(8))
NAMES = ("short", "long", "appended", *CROWD)
TEXT = "We keep the ledger in SQLite, because one file is easy to back up. " * 4

Append = Callable[[str, int], Awaitable[Any]]
Read = Callable[[str], Awaitable[list[Any]]]
Settings = tuple[str, int]
"""The journal mode and the number of the synchronous setting; 2 syncs each commit."""

OURS, PEER, LEVELED = "ours", "peer", "peer with our settings"


@dataclass(frozen=True)
class Side:
    """A store: its calls and the settings of its writing connection."""

    append: Append
    read: Read
    settings: Settings


class Moment:
    """The time of the clock and of the processor at the beginning of some calls."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def measure(self, calls: int) -> tuple[float, float]:
        """Return the seconds of one call since then, by the clock and of the processor."""
        clock, processor = time.perf_counter(), time.process_time()
        return (clock - self._clock) / calls, (processor - self._processor) / calls


def read_settings(connection: Any) -> Settings:
    """Return the settings of a connection of `sqlite3`."""
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    return journal, synchronous


def read_own_settings(home: Any) -> Settings:
    """Return the settings of the writing connection of a home that was written."""
    return read_settings(home.db._store.pool.writer._handle.connection)


async def open_openai(folder: Path) -> dict[str, Side]:
    """Return our session and `SQLiteSession`, both in files."""
    from agents import SQLiteSession  # noqa: PLC0415 -- in one of the environments

    from session_core import open_home  # noqa: PLC0415 -- as above
    from session_core.adapters.openai import OpenAISession  # noqa: PLC0415 -- as above

    class LeveledSession(SQLiteSession):
        @staticmethod
        def _configure_connection(conn: sqlite3.Connection) -> None:
            SQLiteSession._configure_connection(conn)
            conn.execute("PRAGMA synchronous=FULL")

    home = open_home(folder / "home")

    # One object for each session, as an application has.
    def open_peers(make: Any, file: str) -> dict[str, Any]:
        return {name: make(name, folder / file) for name in NAMES}

    async def make_side(sessions: dict[str, Any], get_settings: Callable[[], Settings]) -> Side:
        async def append(name: str, count: int) -> None:
            for _ in range(count):
                await sessions[name].add_items([{"role": "user", "content": TEXT}])

        async def read(name: str) -> list[Any]:
            items: list[Any] = await sessions[name].get_items(SIZE)
            return items

        await append("short", 1)
        return Side(append, read, get_settings())

    async def make_peer(make: Any, file: str) -> Side:
        sessions = open_peers(make, file)
        connection = sessions["short"]._get_connection()
        return await make_side(sessions, lambda: read_settings(connection))

    ours = {name: OpenAISession(name, home) for name in NAMES}
    return {
        OURS: await make_side(ours, lambda: read_own_settings(home)),
        PEER: await make_peer(SQLiteSession, "peer.db"),
        LEVELED: await make_peer(LeveledSession, "leveled.db"),
    }


async def open_adk(folder: Path) -> dict[str, Side]:
    """Return our service and `SqliteSessionService`."""
    from google.adk.events.event import Event  # noqa: PLC0415 -- in one of the environments
    from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: PLC0415
    from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415 -- as above

    from session_core.adapters.adk import AdkSessionService  # noqa: PLC0415 -- as above

    config = GetSessionConfig(num_recent_events=SIZE)

    async def make_side(service: Any, get_settings: Callable[[], Settings]) -> Side:
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

        return Side(append, read, get_settings())

    async def make_peer(path: Path) -> Side:
        service = SqliteSessionService(str(path))

        def get_settings() -> Settings:  # the service opens such a connection for each call
            with sqlite3.connect(path) as connection:
                return read_settings(connection)

        return await make_side(service, get_settings)

    with sqlite3.connect(folder / "leveled.db") as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # it stays in the file
    ours = AdkSessionService(folder / "home")
    return {
        OURS: await make_side(ours, lambda: read_own_settings(ours.home)),
        PEER: await make_peer(folder / "peer.db"),
        LEVELED: await make_peer(folder / "leveled.db"),
    }


OPENERS = {"openai": open_openai, "adk": open_adk}


async def measure_side(side: Side) -> dict[str, tuple[float, float]]:
    """Return the seconds of a call of each kind."""
    began = Moment()
    await side.append("appended", APPENDS)
    times = {"append": began.measure(APPENDS)}
    began = Moment()
    await asyncio.gather(*(side.append(name, APPENDS // 5) for name in CROWD))
    times["append together"] = began.measure(APPENDS // 5 * len(CROWD))
    for name in ("short", "long"):
        began = Moment()
        for _ in range(READS):
            assert len(await side.read(name)) == SIZE
        times[f"read {name}"] = began.measure(READS)
    return times


async def main(extra: str, folder: Path, rounds: int) -> None:
    """Print the settings of each side and the seconds of a call in each round."""
    sides = await OPENERS[extra](folder)
    if sides[PEER].settings == sides[OURS].settings:
        del sides[LEVELED]
    for side in sides.values():
        await side.append("short", SIZE)
        await side.append("long", LONG)
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for number in range(rounds):
        for name in sorted(sides, reverse=number % 2 == 1):
            for what, taken in (await measure_side(sides[name])).items():
                seconds.setdefault(what, {}).setdefault(name, []).append(taken)
    settings = {name: side.settings for name, side in sides.items()}
    print(json.dumps({"settings": settings, "seconds": seconds}))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
