"""Run by the Python of an environment with all peers: ADDRESS PEER_ADDRESS SERVER ROUNDS.

It prints the seconds of one call in each round, by the clock and of the processors of this process
and of the server. All sides append the same text, in turns, each in tables of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

APPENDS, READS, SIZE, WRITERS = 20, 10, 100, 8
TEXT = "We keep the ledger in one place, because one place is easy to back up. " * 4

Append = Callable[[str], Awaitable[Any]]
Read = Callable[[str], Awaitable[list[Any]]]
List = Callable[[], Awaitable[Any]]
Side = tuple[Append, Read, List]

NAMES = ("read", "appended", *(f"writer{number}" for number in range(WRITERS)))


class Moment:
    """The clock and the time of the processors at the beginning of some calls."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._began = self._read()

    def _read(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time() + read_server_seconds(self._server)

    def measure(self, calls: int) -> tuple[float, float]:
        """Return the seconds of one call since then."""
        clock, processor = self._read()
        return (clock - self._began[0]) / calls, (processor - self._began[1]) / calls


def read_server_seconds(server: int) -> float:
    """Return the seconds that the processes of a server have run."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split()
    stats = (Path(f"/proc/{child}/schedstat") for child in children)
    return sum(int(stat.read_text().split()[0]) for stat in stats if stat.exists()) / 1e9


async def open_openai(engine: Any, _: str) -> Side:
    """Return `SQLAlchemySession` of the OpenAI Agents SDK, which has no list of sessions."""
    from agents.extensions.memory import SQLAlchemySession  # noqa: PLC0415 -- of an environment

    held = {name: SQLAlchemySession(name, engine=engine, create_tables=True) for name in NAMES}

    async def append(name: str) -> None:
        await held[name].add_items([{"role": "user", "content": TEXT}])

    async def read(name: str) -> list[Any]:
        items: list[Any] = await held[name].get_items(SIZE)
        return items

    async def list_them() -> None:
        return None

    return append, read, list_them


async def open_our_openai(_: Any, address: str) -> Side:
    """Return our session for the OpenAI Agents SDK."""
    from session_core import open_home  # noqa: PLC0415 -- of an environment
    from session_core.adapters.openai import OpenAISession  # noqa: PLC0415 -- as above

    home = open_home(f"{address}&home=openai")
    held: dict[str, Any] = {name: OpenAISession(name, home) for name in NAMES}

    async def append(name: str) -> None:
        await held[name].add_items([{"role": "user", "content": TEXT}])

    async def read(name: str) -> list[Any]:
        items: list[Any] = await held[name].get_items(SIZE)
        return items

    async def list_them() -> Any:
        return await asyncio.to_thread(home.db.list_sessions, limit=20)

    return append, read, list_them


async def open_adk(_: Any, url: str, service: Any = None) -> Side:
    """Return `DatabaseSessionService` of the Google ADK, or our service."""
    from google.adk.events.event import Event  # noqa: PLC0415 -- of an environment
    from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: PLC0415
    from google.adk.sessions.database_session_service import (  # noqa: PLC0415
        DatabaseSessionService,
    )
    from google.genai import types  # noqa: PLC0415 -- as above

    chosen = DatabaseSessionService(url) if service is None else service
    config = GetSessionConfig(num_recent_events=SIZE)
    keys = {name: {"app_name": "a", "user_id": "u", "session_id": name} for name in NAMES}
    held = {name: await chosen.create_session(**keys[name]) for name in NAMES}

    async def append(name: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=TEXT)])
        await chosen.append_event(held[name], Event(author="user", content=content))

    async def read(name: str) -> list[Any]:
        session = await chosen.get_session(**keys[name], config=config)
        events: list[Any] = session.events
        return events

    async def list_them() -> Any:
        return await chosen.list_sessions(app_name="a", user_id="u")

    return append, read, list_them


async def open_our_adk(engine: Any, address: str) -> Side:
    """Return our service for the Google ADK."""
    from session_core import open_home  # noqa: PLC0415 -- of an environment
    from session_core.adapters.adk import AdkSessionService  # noqa: PLC0415 -- as above

    return await open_adk(engine, address, AdkSessionService(open_home(f"{address}&home=adk")))


async def open_langgraph(_: Any, conninfo: str) -> Side:
    """Return `AsyncPostgresSaver` of LangGraph, whose checkpoint has all messages of a thread."""
    from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415 -- of an environment
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415 -- as above
    from psycopg.rows import dict_row  # noqa: PLC0415 -- as above
    from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415 -- as above

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = AsyncConnectionPool(conninfo, kwargs=options, open=False, max_size=WRITERS)
    await pool.open()
    saver = AsyncPostgresSaver(pool)
    await saver.setup()
    held: dict[str, list[str]] = {name: [] for name in NAMES}
    configs: dict[str, Any] = {
        name: {"configurable": {"thread_id": name, "checkpoint_ns": ""}} for name in NAMES
    }

    async def append(name: str) -> None:
        held[name].append(TEXT)
        version = f"{len(held[name]):032}.0"
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(held[name])}
        checkpoint["channel_versions"] = {"messages": version}
        metadata: Any = {"source": "loop", "step": len(held[name]), "parents": {}}
        configs[name] = await saver.aput(configs[name], checkpoint, metadata, {"messages": version})

    async def read(name: str) -> list[Any]:
        config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        stored: Any = await saver.aget_tuple(config)
        messages: list[Any] = stored.checkpoint["channel_values"]["messages"][-SIZE:]
        return messages

    async def list_them() -> Any:
        return [one async for one in saver.alist(None, limit=20)]

    return append, read, list_them


async def open_our_library(_: Any, address: str) -> Side:
    """Return the library without an SDK, as an agent of its own calls it."""
    from session_core.state.async_db import AsyncSessionDB  # noqa: PLC0415 -- of an environment
    from session_core.state.postgres.session_db import PostgresDB  # noqa: PLC0415 -- as above

    db: Any = AsyncSessionDB(PostgresDB(f"{address}&home=library"))

    async def append(name: str) -> None:
        await db.append_message(name, "user", TEXT, create={"source": "bench"})

    async def read(name: str) -> list[Any]:
        messages: list[Any] = (await db.read_window(name, limit=SIZE)).messages
        return messages

    async def list_them() -> Any:
        return await db.list_sessions(limit=20)

    return append, read, list_them


async def measure_side(side: Side, server: int) -> dict[str, tuple[float, float]]:
    """Return the times of one round."""
    append, read, list_them = side
    times: dict[str, tuple[float, float]] = {}
    began = Moment(server)
    for _ in range(APPENDS):
        await append("appended")
    times["append"] = began.measure(APPENDS)

    async def append_alone(number: int) -> None:
        for _ in range(APPENDS):
            await append(f"writer{number}")

    began = Moment(server)
    await asyncio.gather(*(append_alone(number) for number in range(WRITERS)))
    times["append of 8"] = began.measure(APPENDS * WRITERS)
    began = Moment(server)
    for _ in range(READS):
        assert len(await read("read")) == SIZE
    times["read"] = began.measure(READS)
    began = Moment(server)
    for _ in range(READS):
        await list_them()
    times["list"] = began.measure(READS)
    return times


async def main(address: str, peer: str, server: int, rounds: int) -> None:
    """Print the times of all sides."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 -- of an environment

    url = peer.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(url, pool_size=WRITERS)
    sides: dict[str, Side] = {
        "openai": await open_openai(engine, url),
        "our openai": await open_our_openai(engine, address),
        "adk": await open_adk(engine, url),
        "our adk": await open_our_adk(engine, address),
        "langgraph": await open_langgraph(engine, peer),
        "our library": await open_our_library(engine, address),
    }
    for append, _, _ in sides.values():
        for _ in range(SIZE):
            await append("read")
        for name in NAMES:
            await append(name) if name != "read" else None
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in sides}
    for number in range(rounds):
        order = sorted(sides, reverse=number % 2 == 1)
        for name in order:
            for what, taken in (await measure_side(sides[name], server)).items():
                seconds[name].setdefault(what, []).append(taken)
    print(json.dumps(seconds))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
