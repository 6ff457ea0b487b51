"""The paths whose walk is measured, each warm and on a small home of its own kind."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from mcp_serve import server
from mcp_serve.cli.main import main
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB, SessionRuntime, SessionSource, SessionStore
from tests.homes import make_hermes_database
from tests.walk.trace import CallTracer, CallWalk

DAY_S = 86_400.0
SESSIONS = 40
CHAT = SessionSource(platform="telegram", chat_id="42", user_id="7")

MeasuredCall = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def build_home(folder: Path) -> Path:
    """Make a Hermes home in which half of the sessions are old and ended."""
    make_hermes_database(folder / "state.db")
    now = time.time()
    with SessionDB(folder / "state.db") as db:
        for number in range(SESSIONS):
            is_old = number % 2 == 1
            started_at = now - (200 - number) * DAY_S if is_old else now - 3600 - number * 60
            create = {"source": "cli", "cwd": "/src/shop", "started_at": started_at}
            messages = [_build_message(number, turn, started_at) for turn in range(40)]
            db.append_messages(f"s{number}", messages, create=create)
            if is_old:
                db.end_session(f"s{number}", "user_exit")
    return folder


def _build_message(number: int, turn: int, started_at: float) -> dict[str, Any]:
    role = ("user", "assistant")[turn % 2]
    text = f"session {number} turn {turn}: port {8000 + turn} serves the ledger. " + "More. " * 60
    return {"role": role, "content": text, "timestamp": started_at + turn}


def walk_library(tracer: CallTracer, folder: Path) -> dict[str, CallWalk]:
    """Walk one append and one window."""
    walks = {}
    with SessionDB(folder / "state.db") as db:
        for _ in ("warm", "measured"):
            with tracer.record_walk() as walks["SessionDB.append_message"]:
                db.append_message("s0", role="user", content="one more line")
            with tracer.record_walk() as walks["SessionDB.read_window"]:
                db.read_window("s0", limit=20)
    return walks


def walk_runtime(tracer: CallTracer, folder: Path) -> dict[str, CallWalk]:
    """Walk one turn of an agent that appends twice, and one reset."""

    def answer(run: Any, message: str) -> str:
        run.append("user", message)
        run.append("assistant", "noted")
        return "noted"

    walks = {}
    with (
        SessionDB(folder / "state.db") as db,
        SessionStore(folder / "sessions", db=db) as store,
        SessionRuntime(store, lambda _: answer) as runtime,
    ):
        for _ in ("warm", "measured"):
            with tracer.record_walk() as walks["SessionRuntime.handle"]:
                runtime.handle(CHAT, "a message")
            key = store.get_or_create_session(CHAT).session_key
            with tracer.record_walk() as walks["SessionRuntime.reset"]:
                runtime.reset(key)
            runtime.handle(CHAT, "a message of the next session")
    return walks


def walk_server(tracer: CallTracer, folder: Path) -> dict[str, CallWalk]:
    """Walk the tools of the server, over a client in memory."""
    return anyio.run(_walk_server_tools, tracer, folder)


async def _walk_server_tools(tracer: CallTracer, folder: Path) -> dict[str, CallWalk]:
    walks: dict[str, CallWalk] = {}
    served = ServedStores(ServerOptions(home=str(folder)))
    async with Client(server.create_server(served), cache=None) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            answer: dict[str, Any] = result.structured_content
            return answer

        async def walk(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
            with tracer.record_walk() as walks[name]:
                return await call(tool, arguments)

        for session, old in (("s2", "s1"), ("s4", "s3")):
            await walk("sessions_read", "sessions_read", session="s0")
            await walk("sessions_search", "sessions_search", query="ledger port 8003")
            plan = await walk("sessions_prune, plan", "sessions_prune", sessions=[old])
            await walk("sessions_prune, apply", "sessions_prune", plan=plan["plan"])
            plan = await walk(
                "sessions_compress, plan", "sessions_compress", session=session, keep_last=10
            )
            await walk(
                "sessions_compress, apply",
                "sessions_compress",
                plan=plan["plan"],
                summary="Ports serve the ledger.",
            )
    served.close()
    return walks


def walk_command(tracer: CallTracer, folder: Path) -> dict[str, CallWalk]:
    """Walk `prune --yes` of the command, after its imports."""
    walks = {}
    for session in ("s5", "s7"):
        arguments = ["--home", str(folder), "prune", "--session", session, "--yes"]
        with (
            contextlib.redirect_stdout(io.StringIO()),
            tracer.record_walk() as walks["mcp-sessions prune --yes"],
        ):
            assert main(arguments) == 0
    return walks


WALK_FUNCTIONS = (walk_library, walk_runtime, walk_server, walk_command)
