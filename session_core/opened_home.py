"""`open_home`: the parts of one home, opened together and closed in the right order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from anyio import CancelScope

from session_core._typing import Self
from session_core.aio import get_worker_threads
from session_core.compression.compressor import AsyncCompressor, Compressor
from session_core.config import GatewayConfig
from session_core.errors import InvalidInput, Unsupported
from session_core.home import (
    find_scheme,
    get_database_path,
    is_hermes_folder,
    make_absolute,
)
from session_core.hooks import Hooks
from session_core.ledger.database_location import find_database_location
from session_core.ledger.hermes_delivery_marks import persist_marks
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.agent_turn import Agent, AgentFactory
from session_core.lifecycle.runtime import SessionRuntime
from session_core.maintenance.maintenance import AsyncMaintenance, Maintenance
from session_core.routing.async_store import AsyncSessionStore
from session_core.routing.session_store import SessionStore
from session_core.state import engines
from session_core.state.async_db import AsyncSessionDB
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.memory_database import MEMORY_NAME
from session_core.state.sqlite.session_db import SessionDB

T = TypeVar("T")

_NO_PATH = "without a path"


def open_home(
    path_or_url: str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | None = None,
    config: GatewayConfig | None = None,
    hooks: Hooks | None = None,
) -> OpenedHome:
    """Open the home in a folder, a file that ends in `.db`, `:memory:`, or a PostgreSQL database.

    A home that does not exist is created by its first write. Plans, trash and audit log are in
    `.mcp-sessions/NAME/` next to the database file NAME. For a Hermes home they are in the state
    folder of the platform. A home in memory has all its parts in memory.

    `postgresql://user@host/database?home=NAME` is a home that many machines share. `schema=NAME`
    sets the schema of its tables, and `migrate=yes` lets this call apply pending migrations.
    Passwords are read as PostgreSQL does: from `PGPASSFILE`, a service file or the environment.

    Args:
        path_or_url: a folder, a database file, `:memory:`, or an address.
        state: another folder for plans, trash and audit log.
        config: the settings of the session store. By default they are read from `config.yaml` and
            `gateway.json` of the home.
        hooks: the hooks of all parts of the home.

    Raises:
        Busy: the server does not answer.
        Corrupt: the file is not a database.
        Denied: the file may not be read, the server refuses the connection, or `state` is in a
            Hermes home.
        InvalidInput: `path_or_url` is not valid, or `state` is given for a home without a file.
        StorageError: the schema of the database lacks migrations.
        Unsupported: no engine opens this address, or its driver is not installed.

    Example:
        >>> from session_core import open_home
        >>> with open_home(":memory:") as home:
        ...     _ = home.db.append_message("s1", "user", "hello", create={"source": "cli"})
        ...     [hit.session_id for hit in home.db.search("hello").hits]
        ['s1']
    """
    db = _open_database(path_or_url)
    try:
        return OpenedHome(db, state=state, config=config, hooks=hooks)
    except BaseException:
        db.close()
        raise


async def aopen_home(
    path_or_url: str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | None = None,
    config: GatewayConfig | None = None,
    hooks: Hooks | None = None,
) -> AsyncOpenedHome:
    """Open a home for coroutines of asyncio or trio.

    The arguments and errors are the same as for `open_home`. Every part is opened in a worker
    thread. The methods of the parts are coroutines, except those of `ledger`, which block.

    Example:
        >>> import asyncio
        >>> from session_core import aopen_home
        >>> async def count_sessions() -> int:
        ...     async with await aopen_home(":memory:") as home:
        ...         return len((await home.db.list_sessions()).items)
        >>> asyncio.run(count_sessions())
        0
    """
    call = partial(open_home, path_or_url, state=state, config=config, hooks=hooks)
    threads = get_worker_threads(aopen_home, "calls")
    return await threads.run(lambda: _open_parts(call()))


class OpenedHome:
    """An open home with all its parts: database, session store, ledger, maintenance, compressor.

    `open_home` returns it. Each part is opened on first use, and all parts use the same database.
    `close`, or the end of a `with` block, ends the runtimes first and closes the database last.

    Instances are thread-safe and must not be used across a fork.
    """

    def __init__(
        self,
        db: StateDatabase,
        *,
        state: str | os.PathLike[str] | None = None,
        config: GatewayConfig | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.db = db
        """The state database: sessions, messages and search."""
        self.hooks = Hooks() if hooks is None else hooks
        """The hooks of all parts."""
        self._state = None if state is None else Path(state)
        self._config = config
        # Reentrant, since a part opens the parts that it needs.
        self._lock = threading.RLock()
        self._parts: dict[str, Any] = {}
        self._runtimes: list[SessionRuntime] = []
        self._is_closed = False
        self._open = ExitStack()
        # Parts are closed in the reverse order: the database, which comes first here, is closed
        # last.
        self._open.callback(db.close)
        if state is not None:
            # Refused at once, since the first plan would be too late.
            self.state_folder.check_place()

    @property
    def path(self) -> Path | None:
        """The database file, which need not exist yet, or None in memory."""
        return self.db.path

    @property
    def state_folder(self) -> StateFolder:
        """The folder with plans, trash and audit log.

        `state_folder.place` is its path.
        """
        return self._get_part("state_folder", self._make_state_folder)

    @property
    def store(self) -> SessionStore:
        """The session store, which routes each chat to a session."""
        return self._get_part("store", self._open_store)

    @property
    def ledger(self) -> Ledger:
        """The plans, the trash and the audit log."""
        return self._get_part("ledger", self._open_ledger)

    @property
    def maintenance(self) -> Maintenance:
        """Plans and their undo: prune, finalize, edit, export and import."""
        return self._get_part("maintenance", self._open_maintenance)

    @property
    def compressor(self) -> Compressor:
        """Compression of long sessions, and its undo."""
        return self._get_part("compressor", self._open_compressor)

    def runtime(
        self, build: AgentFactory, *, cache: AgentCache[Agent] | None = None
    ) -> SessionRuntime:
        """Return a runtime for the agents that `build` makes.

        Closing the home shuts the runtime down.

        Args:
            build: a function that receives an `AgentTurn` and returns the agent of its session.
            cache: the cache of agents; by default, a new `AgentCache`.

        Example:
            >>> from session_core import SessionSource, open_home
            >>> def build(run):
            ...     return lambda run, message: f"you said {message}"
            >>> with open_home(":memory:") as home:
            ...     runtime = home.runtime(build)
            ...     runtime.handle(SessionSource("telegram", "42"), "hello").text
            'you said hello'
        """
        with self._lock:
            runtime = SessionRuntime(self.store, build, cache=cache, hooks=self.hooks)
            self._runtimes.append(runtime)
        return runtime

    def close(self) -> None:
        """Shut down the runtimes without waiting for active turns, and close every part.

        Raises:
            InvalidInput: an event loop runs in this thread, and a runtime could not end its agents.
        """
        while self._runtimes:
            # Removed after it has ended, so that a close after an error tries it again.
            self._runtimes[-1].shutdown()
            self._runtimes.pop()
        self._is_closed = True
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _get_part(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if self._is_closed:
                raise InvalidInput(f"the home {self.path or _NO_PATH} is closed; open it again")
            if name not in self._parts:
                self._parts[name] = make()
            part: T = self._parts[name]
            return part

    def _make_state_folder(self) -> StateFolder:
        if self.path is not None:
            return StateFolder(self.path, root=self._state)
        if self._state is not None:
            raise InvalidInput("this home keeps its plans and trash in its database; omit state")
        return find_database_location(self.db)

    def _open_store(self) -> SessionStore:
        config, folder = self._config, self.db.folder
        if config is None and folder is not None:
            config = GatewayConfig.load(folder)
        sessions_dir = None if config is None else config.sessions_dir
        if sessions_dir is None and folder is not None:
            sessions_dir = folder / "sessions"
        store = SessionStore(sessions_dir, config, db=self.db, hooks=self.hooks)
        self._open.callback(store.close)
        if self.db.admin.get_capabilities().foreign_gateway:
            persist_marks(store, self.db, folder=self.state_folder)
        return store

    def _open_ledger(self) -> Ledger:
        ledger = Ledger(self.state_folder)
        # Before the check, so that a refused ledger is closed too.
        self._open.callback(ledger.close)
        ledger.check_home(self.db)
        return ledger

    def _open_maintenance(self) -> Maintenance:
        return Maintenance(self.db, self.ledger, store=self.store, hooks=self.hooks)

    def _open_compressor(self) -> Compressor:
        return Compressor(self.db, self.ledger, store=self.store, hooks=self.hooks)


class AsyncOpenedHome:
    """A home for coroutines.

    `home` is the same home with blocking methods. The methods of `ledger` block too.
    """

    def __init__(self, home: OpenedHome) -> None:
        self.home = home
        self.hooks = home.hooks
        self.ledger = home.ledger
        self.db = AsyncSessionDB(home.db)
        self.store = AsyncSessionStore(home.store)
        self.maintenance = AsyncMaintenance(home.maintenance)
        self.compressor = AsyncCompressor(home.compressor)

    async def runtime(
        self, build: AgentFactory, *, cache: AgentCache[Agent] | None = None
    ) -> SessionRuntime:
        """Return a runtime for the agents that `build` makes.

        Closing the home shuts the runtime down.
        """
        return await self._run(partial(self.home.runtime, build, cache=cache))

    async def aclose(self) -> None:
        """Shut down the runtimes without waiting for active turns, and close every part.

        It finishes even if the caller is cancelled.
        """
        with CancelScope(shield=True):
            await self._run(self.home.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _run(self, function: Callable[[], T]) -> T:
        return await get_worker_threads(self, "calls").run(function)


def _open_parts(home: OpenedHome) -> AsyncOpenedHome:
    try:
        return AsyncOpenedHome(home)
    except BaseException:
        home.close()
        raise


def _open_database(path_or_url: str | os.PathLike[str]) -> StateDatabase:
    if isinstance(path_or_url, str) and path_or_url.startswith(MEMORY_NAME):
        return SessionDB(path_or_url)
    if engines.is_postgres_address(path_or_url):
        return engines.open_postgres(str(path_or_url))
    path = _find_database(path_or_url)
    return SessionDB(path, in_hermes_home=is_hermes_folder(path.parent))


def _find_database(path_or_url: str | os.PathLike[str]) -> Path:
    """Return the database file of a folder or of a file that ends in `.db`."""
    text = path_or_url if isinstance(path_or_url, str) else _get_path_text(path_or_url)
    # Bytes of a path that are not text are lone low surrogates, which the file system takes back.
    if "\0" in text or any("\ud800" <= char <= "\udbff" for char in text):
        raise InvalidInput("path_or_url must be text without NUL and lone surrogates")
    if not text:
        raise InvalidInput("path_or_url is empty; pass a folder or a file that ends in .db")
    scheme = find_scheme(text)
    if scheme is not None:
        # The address itself may hold a password.
        raise Unsupported(
            f"addresses that begin with {scheme}:// cannot be opened; "
            "pass a folder, a file that ends in .db, or a postgresql:// address"
        )
    path = get_database_path(make_absolute(path_or_url))
    if os.path.isfile(path.parent):  # noqa: PTH113 -- Path.is_file can raise
        raise InvalidInput(f"{path.parent} is a file; pass a folder or a file that ends in .db")
    return path


def _get_path_text(path: object) -> str:
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidInput(f"path_or_url must be a path or an address, got {path!r:.40}")
    return text
