"""`AsyncSessionStore`: the methods of the store in worker threads, and cancellation."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import anyio
import pytest

from session_core import AsyncSessionStore, Conflict, Hooks, NotFound, SessionDB, SessionStore
from tests.routing.chats import KEY, OTHER, chat, file_entries, get_session_ids

pytestmark = pytest.mark.anyio

SYNC_ONLY_METHODS = {
    "has_active_turn", "is_session_finalizable", "get_session_key", "build_peer_fields",
    "build_session_fields", "transaction",
}  # fmt: skip
"""Methods that read nothing stored, or belong to one thread."""


def list_async_methods() -> list[str]:
    """Return the methods that read or change stored data."""
    members = inspect.getmembers(SessionStore, inspect.isfunction)
    return [name for name, _ in members if name[0] != "_" and name not in SYNC_ONLY_METHODS]


@pytest.mark.requirement("store:async")
@pytest.mark.parametrize("name", list_async_methods())
def test_async_store_mirrors_method_signatures(name: str) -> None:
    method, wrapped = getattr(SessionStore, name), getattr(AsyncSessionStore, name)
    assert inspect.signature(wrapped) == inspect.signature(method)
    assert inspect.iscoroutinefunction(wrapped)
    assert wrapped.__doc__ == method.__doc__


@pytest.mark.requirement("store:async")
async def test_async_store_creates_and_resets_session(any_store: SessionStore) -> None:
    store = AsyncSessionStore(any_store)
    first = await store.get_or_create_session(chat())
    assert await store.peek_session_id(KEY) == first.session_id
    second = await store.reset_session(KEY)
    assert second is not None
    assert {key: entry.session_id for key, entry in (await store.load_entries()).items()} == {
        KEY: second.session_id
    }
    with pytest.raises(NotFound):
        await store.move_to_continuation(OTHER, "s1", "s2")


@pytest.mark.requirement("store:async")
async def test_async_store_exit_updates_mirror(db: SessionDB, folder: Path) -> None:
    async with AsyncSessionStore(SessionStore(folder, db=db)) as store:
        await store.get_or_create_session(chat())
        await store.suspend_session(KEY)
    assert file_entries(folder)[KEY]["suspended"] is True


@pytest.mark.requirement("store:async")
async def test_async_transaction_rolls_back_several_chats(store: SessionStore) -> None:
    wrapped = AsyncSessionStore(store)
    for chat_id in (42, 43):
        await wrapped.get_or_create_session(chat(chat_id))
    before = get_session_ids(store)

    def fail(inner: SessionStore) -> None:
        with inner.transaction(KEY, OTHER):
            inner.reset_session(KEY)
            raise Conflict("not both")

    with pytest.raises(Conflict):
        await wrapped.run(fail)
    assert get_session_ids(store) == before


@pytest.mark.requirement("store:async")
async def test_cancelled_change_still_finishes(store: SessionStore) -> None:
    wrapped, begun, release = AsyncSessionStore(store), threading.Event(), threading.Event()

    def step(inner: SessionStore) -> None:
        begun.set()
        assert release.wait(10)
        inner.get_or_create_session(chat())

    async with anyio.create_task_group() as group:
        group.start_soon(wrapped.run, step)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert get_session_ids(store) == {}
    release.set()
    while not (session_ids := get_session_ids(store)):
        await anyio.lowlevel.checkpoint()
    assert list(session_ids) == [KEY]


@pytest.mark.requirement("store:async")
async def test_async_reset_hook_runs_on_caller_loop(
    store: SessionStore,
) -> None:
    loops = []

    async def on_session_reset() -> None:
        loops.append(asyncio.get_running_loop())

    store.hooks = Hooks(group=None)
    store.hooks.register(on_session_reset)
    wrapped = AsyncSessionStore(store)
    await wrapped.get_or_create_session(chat())
    await wrapped.reset_session(KEY)
    assert loops == [asyncio.get_running_loop()]
