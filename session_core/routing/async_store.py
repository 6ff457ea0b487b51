"""`AsyncSessionStore`: the same store for coroutines, each call in a worker thread.

It holds no logic: each name below is the method of that name; what asks nobody is asked of `store`.
A call that was begun is finished even if its task is cancelled, and an async hook that it calls
runs on the loop of who awaits it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from anyio import CancelScope

from session_core.isolated import off_loop
from session_core.routing.store import SessionStore

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[SessionStore, P], R],
) -> Callable[Concatenate[AsyncSessionStore, P], Awaitable[R]]:
    @wraps(method)
    async def call(self: AsyncSessionStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await off_loop(partial(method, self.store, *args, **kwargs), to_its_end=True)

    return call


class AsyncSessionStore:
    """Wraps a store; what the methods do is said there.

    A step of several chats, `with store.together(…)`, belongs in one function, run in one worker
    thread: `await store.run(step)`.
    """

    def __init__(self, store: SessionStore) -> None:
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
        return await off_loop(partial(step, self.store), to_its_end=True)

    get = _in_thread(SessionStore.get)
    entries = _in_thread(SessionStore.entries)
    peek_session_id = _in_thread(SessionStore.peek_session_id)
    lookup_by_session_id = _in_thread(SessionStore.lookup_by_session_id)
    list_sessions = _in_thread(SessionStore.list_sessions)
    state_of = _in_thread(SessionStore.state_of)
    is_session_expired = _in_thread(SessionStore.is_session_expired)
    is_kept = _in_thread(SessionStore.is_kept)
    get_or_create_session = _in_thread(SessionStore.get_or_create_session)
    reset_session = _in_thread(SessionStore.reset_session)
    switch_session = _in_thread(SessionStore.switch_session)
    follow = _in_thread(SessionStore.follow)
    save = _in_thread(SessionStore.save)
    update_session = _in_thread(SessionStore.update_session)
    begin_turn = _in_thread(SessionStore.begin_turn)
    drop_turn = _in_thread(SessionStore.drop_turn)
    end_turn = _in_thread(SessionStore.end_turn)
    suspend_session = _in_thread(SessionStore.suspend_session)
    suspend_recently_active = _in_thread(SessionStore.suspend_recently_active)
    mark_resume_pending = _in_thread(SessionStore.mark_resume_pending)
    clear_resume_pending = _in_thread(SessionStore.clear_resume_pending)
    set_model_override = _in_thread(SessionStore.set_model_override)
    is_end_told = _in_thread(SessionStore.is_end_told)
    claim_end = _in_thread(SessionStore.claim_end)
    begin_end = _in_thread(SessionStore.begin_end)
    set_end_told = _in_thread(SessionStore.set_end_told)
    tell_untold = _in_thread(SessionStore.tell_untold)
    forget_marks = _in_thread(SessionStore.forget_marks)
    claim_expiry = _in_thread(SessionStore.claim_expiry)
    set_expiry_finalized = _in_thread(SessionStore.set_expiry_finalized)
    prune_old_entries = _in_thread(SessionStore.prune_old_entries)
    remove = _in_thread(SessionStore.remove)
    check_against_state = _in_thread(SessionStore.check_against_state)
    close = _in_thread(SessionStore.close)
