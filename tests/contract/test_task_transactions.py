"""A transaction belongs to one task: changes of other tasks are never a part of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from session_core import AsyncSessionDB, Busy, StateDatabase
from tests.contract.engines import roll_back_at_end

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"]),
]


def list_texts(db: StateDatabase) -> list[Any]:
    return [row["content"] for row in db.get_messages("s")]


@asynccontextmanager
async def open_transaction_in_task(
    db: StateDatabase, *, fails: bool = False
) -> AsyncIterator[None]:
    """Let another task append within a transaction that it leaves after this block."""
    opened, leave = anyio.Event(), anyio.Event()

    async def hold() -> None:
        with roll_back_at_end(db) if fails else db.transaction():
            db.append_message("s", "user", "inside", create={"source": "cli"})
            opened.set()
            await leave.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await opened.wait()
        try:
            yield
        finally:
            leave.set()


@pytest.mark.requirement("transactions:tasks")
@pytest.mark.parametrize("fails", [False, True])
async def test_change_by_second_task_is_refused(db: StateDatabase, fails: bool) -> None:
    async with open_transaction_in_task(db, fails=fails):
        with pytest.raises(Busy, match=r"run\(step\)"):
            db.append_message("s", "user", "outside", create={"source": "cli"})
    assert list_texts(db) == ([] if fails else ["inside"])


@pytest.mark.requirement("transactions:tasks")
async def test_transaction_by_second_task_is_refused(db: StateDatabase) -> None:
    async with open_transaction_in_task(db):
        with pytest.raises(Busy, match=r"run\(step\)"), db.transaction():
            db.append_message("s", "user", "outside")
    assert list_texts(db) == ["inside"]


@pytest.mark.requirement("transactions:tasks")
async def test_second_task_reads_committed_rows(db: StateDatabase) -> None:
    async with open_transaction_in_task(db):
        assert list_texts(db) == []
        assert db.in_transaction is False
    assert list_texts(db) == ["inside"]


async def test_child_task_counts_as_separate_task(db: StateDatabase) -> None:
    refused: list[Exception] = []

    async def change() -> None:
        try:
            db.set_meta("key", "value")
        except Busy as error:
            refused.append(error)

    with db.transaction():
        db.create_session("s", "cli")
        async with anyio.create_task_group() as group:
            group.start_soon(change)
    assert len(refused) == 1
    assert db.get_session("s") is not None
    assert db.get_meta("key") is None


@pytest.mark.requirement("transactions:tasks")
async def test_change_in_second_thread_waits(db: StateDatabase) -> None:
    adb = AsyncSessionDB(db)
    async with anyio.create_task_group() as group, open_transaction_in_task(db, fails=True):
        group.start_soon(adb.create_session, "waits", "cli")
        await anyio.wait_all_tasks_blocked()
        assert await adb.get_session("waits") is None
    assert (list_texts(db), await adb.get_session("waits") is not None) == ([], True)


async def test_close_by_second_task_is_refused(db: StateDatabase) -> None:
    async with open_transaction_in_task(db):
        with pytest.raises(Busy, match="another task"):
            db.close()
    assert list_texts(db) == ["inside"]


async def test_transaction_of_own_task_joins_parts(db: StateDatabase) -> None:
    with db.transaction():
        db.create_session("s", "cli")
        await anyio.lowlevel.checkpoint()
        with db.transaction():
            db.append_message("s", "user", "inside")
        await anyio.lowlevel.checkpoint()
        assert list_texts(db) == ["inside"]
    assert list_texts(db) == ["inside"]
