"""A transaction of routes belongs to one task. Other tasks of the thread are refused."""

from __future__ import annotations

import anyio
import pytest

from session_core import AsyncSessionStore, Busy, SessionStore
from tests.routing.chats import KEY, OTHER, chat, get_session_ids

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"]),
]


@pytest.mark.parametrize("chat_id", [42, 43])
async def test_transaction_refuses_second_task(any_store: SessionStore, chat_id: int) -> None:
    for number in (42, 43):
        any_store.get_or_create_session(chat(number))
    before = get_session_ids(any_store)
    opened, leave = anyio.Event(), anyio.Event()

    async def hold() -> None:
        with any_store.transaction(KEY):
            opened.set()
            await leave.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await opened.wait()
        key = KEY if chat_id == 42 else OTHER
        with pytest.raises(Busy, match=r"run\(step\)"):
            any_store.reset_session(key)
        with pytest.raises(Busy, match=r"run\(step\)"), any_store.transaction(key):
            pass
        assert any_store.peek_session_id(key) == before[key]
        leave.set()
    assert get_session_ids(any_store) == before
    assert any_store.reset_session(key) is not None


async def test_transaction_makes_threads_wait(store: SessionStore) -> None:
    store.get_or_create_session(chat())
    before = get_session_ids(store)
    opened, leave = anyio.Event(), anyio.Event()

    async def hold() -> None:
        with store.transaction(KEY):
            store.suspend_session(KEY)
            opened.set()
            await leave.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await opened.wait()
        group.start_soon(AsyncSessionStore(store).reset_session, KEY)
        await anyio.wait_all_tasks_blocked()
        assert get_session_ids(store) == before
        leave.set()
    assert get_session_ids(store) != before
