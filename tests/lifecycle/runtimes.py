"""Agents and runtimes for the tests of the lifecycle."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from session_core import ExpiryWatcher, Hooks, SessionDB, SessionRuntime, SessionStore
from session_core.config import GatewayConfig, SessionResetPolicy
from session_core.lifecycle.agent_turn import AgentTurn
from session_core.lifecycle.runtime import Reply
from tests.routing.chats import KEY, Clock, chat, file_entries

IDLE = GatewayConfig(
    default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60),
    session_store_max_age_days=90,
)
HOOKS = ("on_session_start", "on_session_end", "on_session_finalize", "on_session_reset")


def of(chat_id: int | str) -> str:
    """Return the session key of a chat."""
    return f"agent:main:telegram:dm:{chat_id}"


def echo(run: AgentTurn, message: Any) -> str:
    """Reply with the message, and store both."""
    run.append("user", message)
    run.append("assistant", f"echo {message}")
    return f"echo {message}"


async def aecho(run: AgentTurn, message: Any) -> str:
    """Reply with the message, and store both without blocking the loop."""
    await run.aappend("user", message)
    await run.aappend("assistant", f"echo {message}")
    return f"echo {message}"


class World:
    """A runtime with its database, store and hooks, which records hook calls and reports."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.folder = home / "sessions"
        self.db = SessionDB(home / "state.db")
        self.clock = Clock()
        self.reported: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.hooks = Hooks(group=None, timeout_s=5, report=lambda what, _: self._report(what))
        for hook in HOOKS:
            self.hooks.add(
                hook, lambda _hook=hook, **arguments: self.told.append((_hook, arguments))
            )
        self.store = SessionStore(
            self.folder, config=options.pop("config", None), db=self.db, now=self.clock
        )
        self.agent: Callable[[AgentTurn, Any], Any] = echo
        self.built: list[AgentTurn] = []
        self.runtime = SessionRuntime(
            self.store,
            options.pop("build", self.build),
            hooks=self.hooks,
            report=lambda what, _: self._report(what),
            **options,
        )

    def build(self, run: AgentTurn) -> Callable[[AgentTurn, Any], Any]:
        """Build an agent that calls the current `self.agent`."""
        self.built.append(run)
        return lambda run, message: self.agent(run, message)  # noqa: PLW0108 -- the value at that time

    def say(self, message: Any = "hello", chat_id: int | str = 42, **fields: Any) -> Reply:
        """Handle a message of a chat."""
        return self.runtime.handle(chat(chat_id, **fields), message)

    def names(self, *hooks: str) -> list[tuple[str, str]]:
        """Return the called hooks with their sessions, optionally of some hooks only."""
        return [
            (hook.removeprefix("on_session_"), arguments["session_id"])
            for hook, arguments in self.told
            if not hooks or hook.removeprefix("on_session_") in hooks
        ]

    @property
    def boundaries(self) -> list[tuple[str, str]]:
        """The calls of finalize and reset hooks."""
        return self.names("finalize", "reset")

    def ended(self, session_id: str) -> str | None:
        """Return the end reason of a session."""
        row = self.db.get_session(session_id)
        assert row is not None
        return row["end_reason"]

    def agree(self, key: str = KEY) -> str:
        """Check that entry, table, file and cache name the same session, and return it."""
        entry = self.store.get(key)
        assert entry is not None
        assert file_entries(self.folder)[key]["session_id"] == entry.session_id
        cached = dict(self.runtime.cache.items()).get(key)
        assert cached is None or cached[3] == entry.session_id
        return entry.session_id

    def close(self) -> None:
        """Close the store and the database."""
        self.store.close()
        self.db.close()

    def _report(self, what: str) -> None:
        self.reported.append(what)


def rotate(run: AgentTurn, child: str) -> str:
    """Continue in another session, as an agent that compresses does."""
    run._db.end_session(run.session_id, "compression")
    run._db.create_session(child, "telegram", parent_session_id=run.session_id)
    run._db.append_message(child, "user", "a summary")
    return child


class Gate:
    """An agent that waits until the test opens the gate."""

    def __init__(self, then: Callable[[AgentTurn, Any], Any] = echo) -> None:
        self.then = then
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, run: AgentTurn, message: Any) -> Any:
        """Wait, then call the inner agent."""
        self.entered.set()
        assert self.opened.wait(30)
        return self.then(run, message)


@contextmanager
def beside(*calls: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run calls in threads during the block. Results or errors are available after it."""
    results: list[Any] = [None] * len(calls)

    def work(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    try:
        yield results
    finally:
        for thread in threads:
            thread.join(60)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def becomes(condition: Callable[[], bool]) -> None:
    """Wait until a condition that a thread changes is true."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 -- no loop reports it
            await anyio.sleep(0.001)


def handled(world: World, how: str, message: Any = "hello", chat_id: int | str = 42) -> Reply:
    """Handle a message by `handle` or by `ahandle`."""
    if how == "handle":
        return world.say(message, chat_id)

    async def come_in() -> Reply:
        return await world.runtime.ahandle(chat(chat_id), message)

    return anyio.run(come_in)


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that runs a function without blocking the loop."""

    async def call(*args: Any) -> Any:
        result = await anyio.to_thread.run_sync(function, *args)
        return await result if inspect.isawaitable(result) else result

    return call


def watcher(world: World, **options: Any) -> ExpiryWatcher:
    """Return a watcher that reports to the world."""
    return ExpiryWatcher(
        world.runtime, report=lambda what, _: world.reported.append(what), **options
    )
