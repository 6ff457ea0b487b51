"""`AsyncSessionDB`: every method of the protocol runs in worker threads until it is done."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import anyio
import pytest

from session_core import AsyncSessionDB, Busy, InvalidInput, NotFound, SessionDB, StateDatabase
from tests.public_names import find_member, list_public_names

pytestmark = pytest.mark.anyio


def list_methods() -> list[str]:
    """Return the methods of the protocol except those whose result belongs to one thread."""
    return sorted(
        name
        for name in list_public_names(StateDatabase)
        - {"transaction", "snapshot", "admin.open_search", "admin.get_ledger_tables"}
        if inspect.isfunction(find_member(StateDatabase, name))
    )


@pytest.fixture
async def db(home_path: Path) -> AsyncIterator[AsyncSessionDB]:
    async with AsyncSessionDB(SessionDB(home_path / "state.db")) as wrapped:
        yield wrapped


@pytest.mark.requirement("project:async")
@pytest.mark.parametrize("name", list_methods())
async def test_async_methods_match_protocol_signatures(db: AsyncSessionDB, name: str) -> None:
    promised = find_member(StateDatabase, name)
    wrapped = attrgetter(name)(db)
    parameters = list(inspect.signature(wrapped).parameters.values())
    assert parameters == list(inspect.signature(promised).parameters.values())[1:]
    assert inspect.iscoroutinefunction(wrapped)
    assert wrapped.__doc__ == promised.__doc__


async def test_async_conversation_is_written_and_read(db: AsyncSessionDB) -> None:
    await db.create_session("s", "cli", model="m")
    message_id = await db.append_message("s", role="user", content="hello")
    assert message_id.after == await db.get_revision("s")
    assert [row["content"] for row in await db.get_messages("s")] == ["hello"]
    assert [line.id for line in (await db.list_sessions()).items] == ["s"]


async def test_async_errors_match_contract(db: AsyncSessionDB) -> None:
    with pytest.raises(NotFound):
        await db.append_message("nobody", "user", "x")
    with pytest.raises(InvalidInput):
        await db.create_session("", "cli")
    with pytest.raises(TypeError):
        await db.get_session()  # type: ignore[call-arg]


async def test_concurrent_async_calls_succeed(db: AsyncSessionDB) -> None:
    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(append, db, str(number))
    texts = [row["content"] for row in await db.get_messages("s")]
    assert sorted(texts, key=int) == [str(number) for number in range(60)]


async def append(db: AsyncSessionDB, text: str) -> None:
    await db.append_message("s", "user", text, create={"source": "cli"})


@pytest.mark.requirement("project:async")
async def test_async_call_does_not_block_loop(db: AsyncSessionDB) -> None:
    await db.create_session("s", "cli")
    held, release = threading.Event(), threading.Event()

    def hold(inner: StateDatabase) -> None:
        with inner.transaction():
            held.set()
            assert release.wait(10)

    async with anyio.create_task_group() as group:
        group.start_soon(db.run, hold)
        while not held.is_set():
            await anyio.lowlevel.checkpoint()
        group.start_soon(append, db, "waits")
        assert await db.get_messages("s") == []
        release.set()
    assert len(await db.get_messages("s")) == 1


@pytest.mark.requirement("project:async")
async def test_cancelled_async_change_finishes(db: AsyncSessionDB) -> None:
    begun, release = threading.Event(), threading.Event()

    def step(inner: StateDatabase) -> None:
        begun.set()
        assert release.wait(10)
        inner.append_message("s", "user", "begun", create={"source": "cli"})

    async with anyio.create_task_group() as group:
        group.start_soon(db.run, step)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert await db.get_messages("s") == []
    release.set()
    while not (rows := await db.get_messages("s")):
        await anyio.lowlevel.checkpoint()
    assert [row["content"] for row in rows] == ["begun"]


async def test_async_step_runs_as_single_transaction(db: AsyncSessionDB) -> None:
    def step(inner: StateDatabase) -> int:
        with inner.transaction():
            inner.create_session("s", "cli")
            return inner.append_message("s", "user", "x")

    assert await db.run(step) == (await db.get_messages("s"))[0]["id"]

    def fail(inner: StateDatabase) -> None:
        with inner.transaction():
            inner.append_message("s", "user", "y")
            raise KeyError

    with pytest.raises(KeyError):
        await db.run(fail)
    assert len(await db.get_messages("s")) == 1


async def test_async_change_within_own_transaction_is_refused(db: AsyncSessionDB) -> None:
    """The call would wait for its own caller until the timeout."""
    with db.db.transaction():
        db.db.create_session("s", "cli")
        with pytest.raises(InvalidInput, match=r"run\(step\)"):
            await db.append_message("s", "user", "x")
        with pytest.raises(InvalidInput, match=r"run\(step\)"):
            await db.run(lambda inner: inner.append_message("s", "user", "y"))
    assert await db.get_messages("s") == []
    await db.append_message("s", "user", "after")


async def test_async_context_exit_closes_database(home_path: Path) -> None:
    async with AsyncSessionDB(SessionDB(home_path / "state.db")) as db:
        await db.create_session("s", "cli")
    with pytest.raises(InvalidInput, match="closed"):
        await db.get_session("s")


async def test_cancelled_async_context_closes_database(home_path: Path) -> None:
    db = SessionDB(home_path / "state.db")
    with anyio.CancelScope() as scope:
        async with AsyncSessionDB(db):
            scope.cancel()
            await anyio.sleep_forever()
    with pytest.raises(InvalidInput, match="closed"):
        db.get_session("s")


async def test_lock_waiters_block_no_readers(
    db: AsyncSessionDB,
) -> None:
    await db.create_session("s", "cli")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with db.db.transaction():
            held.set()
            assert release.wait(20)

    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(20)
    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(append, db, str(number))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(10):
            assert await db.get_messages("s") == []
            assert await anyio.to_thread.run_sync(lambda: "elsewhere") == "elsewhere"
        release.set()
    holding.join(20)
    assert await db.message_count("s") == 60


@contextmanager
def hold_lock(db: AsyncSessionDB) -> Iterator[threading.Event]:
    """Hold a transaction open in another thread until the event is set or the block ends."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with db.db.transaction():
            db.db.set_meta("held", "yes")
            held.set()
            assert release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    try:
        yield release
    finally:
        release.set()
        holder.join(60)


@pytest.mark.requirement("project:cancellation")
async def test_async_timeouts_keep_threads_bounded(db: AsyncSessionDB) -> None:
    await db.create_session("s", "cli")
    before = threading.active_count()
    with hold_lock(db):
        for number in range(60):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(append(db, str(number)), 0.001)
        assert threading.active_count() <= before + 1 + 16 + 8
    with anyio.fail_after(60):
        while await db.message_count("s") < 16:
            await anyio.lowlevel.checkpoint()
    assert await db.message_count("s") == 16


@pytest.mark.requirement("project:cancellation")
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_async_timeout_returns_before_lock_release(db: AsyncSessionDB) -> None:
    await db.create_session("s", "cli")
    with hold_lock(db):
        with anyio.move_on_after(0.05) as scope:
            await append(db, "begun")
        assert scope.cancelled_caught
        assert await db.get_messages("s") == []
    with anyio.fail_after(60):
        while not (rows := await db.get_messages("s")):
            await anyio.lowlevel.checkpoint()
    assert [row["content"] for row in rows] == ["begun"]


@pytest.mark.requirement("project:cancellation")
def test_event_loops_in_forty_threads_finish(home_path: Path) -> None:
    db = AsyncSessionDB(SessionDB(home_path / "state.db"))
    barrier, counts = threading.Barrier(40), []

    async def many() -> None:
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(append, db, str(number))
        counts.append(await db.message_count("s"))

    def loop(backend: str) -> None:
        barrier.wait(30)
        anyio.run(many, backend=backend)

    backends = ["asyncio", "trio"] * 20
    threads = [threading.Thread(target=loop, args=(name,), daemon=True) for name in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(counts) == 1600
    assert len(counts) == 40
    db.db.close()


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), "soon"])
async def test_async_changes_rejects_invalid_timeout(db: AsyncSessionDB, timeout_s: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout_s"):
        await db.read_changes(timeout_s=timeout_s)


async def test_async_changes_waits_while_database_is_locked(home_path: Path) -> None:
    db = LockedDatabase(home_path / "state.db")
    cursor = db.read_changes().cursor
    db.create_session("s", "cli")
    async with AsyncSessionDB(db) as wrapped:
        db.busy = 1
        with pytest.raises(Busy):
            await wrapped.read_changes(cursor)
        db.busy = 2
        with anyio.fail_after(20):
            page = await wrapped.read_changes(cursor, timeout_s=30)
        assert [event.session_id for event in page.events] == ["s"]


class LockedDatabase(SessionDB):
    """A database that is locked for the first reads."""

    busy = 0

    def _read_changes(self, *args: Any) -> Any:
        if self.busy:
            self.busy -= 1
            raise Busy("a writer keeps everybody out")
        return super()._read_changes(*args)
