"""`AsyncSessionStore`: the session store for coroutines.

Each method wraps the method of `SessionStore` with the same name and runs it in a worker thread.
This module holds no logic. Methods that read no stored data are called on `store`.

A caller that is cancelled gets control back at once; a change that has begun is still finished.
Async hooks run on the event loop of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope

from session_core.aio import AsyncWrapper, make_async
from session_core.routing.session_store import SessionStore

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

R = TypeVar("R")


class AsyncSessionStore(AsyncWrapper[SessionStore]):
    """Wraps a `SessionStore`, which documents the methods.

    A transaction over several chats, `with store.transaction(…)`, runs inside one function in one
    worker thread: `await store.run(step)`.
    """

    def __init__(self, store: SessionStore) -> None:
        super().__init__(store)
        self.store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with CancelScope(shield=True):
            await self.close()

    async def run(self, step: Callable[[SessionStore], R]) -> R:
        """Call `step` with the wrapped store in one worker thread."""
        return await self._run_in_thread(partial(step, self.store), "calls")

    get = make_async(SessionStore.get)
    load_entries = make_async(SessionStore.load_entries)
    peek_session_id = make_async(SessionStore.peek_session_id)
    lookup_by_session_id = make_async(SessionStore.lookup_by_session_id)
    list_sessions = make_async(SessionStore.list_sessions)
    find_route_state = make_async(SessionStore.find_route_state)
    find_expiry_reason = make_async(SessionStore.find_expiry_reason)
    is_ended_elsewhere = make_async(SessionStore.is_ended_elsewhere)
    get_or_create_session = make_async(SessionStore.get_or_create_session)
    reset_session = make_async(SessionStore.reset_session)
    switch_session = make_async(SessionStore.switch_session)
    move_to_continuation = make_async(SessionStore.move_to_continuation)
    save = make_async(SessionStore.save)
    update_session = make_async(SessionStore.update_session)
    begin_turn = make_async(SessionStore.begin_turn)
    drop_turn = make_async(SessionStore.drop_turn)
    end_turn = make_async(SessionStore.end_turn)
    suspend_session = make_async(SessionStore.suspend_session)
    suspend_recently_active = make_async(SessionStore.suspend_recently_active)
    mark_resume_pending = make_async(SessionStore.mark_resume_pending)
    clear_resume_pending = make_async(SessionStore.clear_resume_pending)
    set_model_override = make_async(SessionStore.set_model_override)
    is_end_delivered = make_async(SessionStore.is_end_delivered)
    claim_end = make_async(SessionStore.claim_end)
    begin_end_delivery = make_async(SessionStore.begin_end_delivery)
    set_end_delivered = make_async(SessionStore.set_end_delivered)
    deliver_pending_hooks = make_async(SessionStore.deliver_pending_hooks)
    forget_stale_marks = make_async(SessionStore.forget_stale_marks)
    claim_expiry = make_async(SessionStore.claim_expiry)
    set_expiry_finalized = make_async(SessionStore.set_expiry_finalized)
    prune_old_entries = make_async(SessionStore.prune_old_entries)
    remove = make_async(SessionStore.remove)
    repair_routes = make_async(SessionStore.repair_routes)
    close = make_async(SessionStore.close)
