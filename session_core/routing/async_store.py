"""`AsyncSessionStore`: the same store for coroutines, each call in a worker thread.

It holds no logic: each name below is the method of that name; what asks nobody is asked of `store`.
A cancelled caller gets control back at once, and a change that has begun finishes. An async hook
that a call tells runs on the loop of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope

from session_core.aio import AsyncFace, in_thread
from session_core.routing.store import SessionStore

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

R = TypeVar("R")


class AsyncSessionStore(AsyncFace[SessionStore]):
    """Wraps a store; what the methods do is said there.

    A step of several chats, `with store.together(…)`, belongs in one function, run in one worker
    thread: `await store.run(step)`.
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
        """Run a function of the store, in one worker thread."""
        return await self._run(partial(step, self.store), "calls")

    get = in_thread(SessionStore.get)
    entries = in_thread(SessionStore.entries)
    peek_session_id = in_thread(SessionStore.peek_session_id)
    lookup_by_session_id = in_thread(SessionStore.lookup_by_session_id)
    list_sessions = in_thread(SessionStore.list_sessions)
    state_of = in_thread(SessionStore.state_of)
    is_session_expired = in_thread(SessionStore.is_session_expired)
    is_kept = in_thread(SessionStore.is_kept)
    get_or_create_session = in_thread(SessionStore.get_or_create_session)
    reset_session = in_thread(SessionStore.reset_session)
    switch_session = in_thread(SessionStore.switch_session)
    follow = in_thread(SessionStore.follow)
    save = in_thread(SessionStore.save)
    update_session = in_thread(SessionStore.update_session)
    begin_turn = in_thread(SessionStore.begin_turn)
    drop_turn = in_thread(SessionStore.drop_turn)
    end_turn = in_thread(SessionStore.end_turn)
    suspend_session = in_thread(SessionStore.suspend_session)
    suspend_recently_active = in_thread(SessionStore.suspend_recently_active)
    mark_resume_pending = in_thread(SessionStore.mark_resume_pending)
    clear_resume_pending = in_thread(SessionStore.clear_resume_pending)
    set_model_override = in_thread(SessionStore.set_model_override)
    is_end_told = in_thread(SessionStore.is_end_told)
    claim_end = in_thread(SessionStore.claim_end)
    begin_end = in_thread(SessionStore.begin_end)
    set_end_told = in_thread(SessionStore.set_end_told)
    tell_untold = in_thread(SessionStore.tell_untold)
    forget_marks = in_thread(SessionStore.forget_marks)
    claim_expiry = in_thread(SessionStore.claim_expiry)
    set_expiry_finalized = in_thread(SessionStore.set_expiry_finalized)
    prune_old_entries = in_thread(SessionStore.prune_old_entries)
    remove = in_thread(SessionStore.remove)
    check_against_state = in_thread(SessionStore.check_against_state)
    close = in_thread(SessionStore.close)
