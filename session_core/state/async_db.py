"""`AsyncSessionDB`: the same database for coroutines, each call in a worker thread.

It holds no logic: each name below is the method of that name. A call that was begun is finished
even if its task is cancelled, since a commit cannot be called off half-way; only waiting for a
change ends at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from session_core.state.contract import StateDatabase, Stop

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.models import Changes, HomeKind

P = ParamSpec("P")
R = TypeVar("R")

_POLL_S = 0.05


def _in_thread(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[AsyncSessionDB, P], Awaitable[R]]:
    @wraps(method)
    async def call(self: AsyncSessionDB, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(self.db, method.__name__)
        return await to_thread.run_sync(partial(bound, *args, **kwargs))

    return call


class AsyncSessionDB:
    """Wraps a database; what the methods do is said in `state/contract.py`.

    A transaction of several calls belongs in one function, run in one worker thread:
    `await db.run(step)`.
    """

    def __init__(self, db: StateDatabase) -> None:
        self.db = db

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, step: Callable[[StateDatabase], R]) -> R:
        """Run a function of the database, in one worker thread."""
        return await to_thread.run_sync(step, self.db)

    async def changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: Stop | None = None,
    ) -> Changes:
        """Return what was committed since `cursor`; without one, from now on.

        Where there is nothing yet it is waited for, until `stop` is set or the time is over.
        """
        # Waiting takes no thread, so that many may wait, and one that is cancelled ends at once.
        deadline = anyio.current_time() + timeout_s
        while True:
            look = partial(self.db.changes, cursor, session=session, limit=limit)
            found = await to_thread.run_sync(look)
            left = deadline - anyio.current_time()
            if found.events or found.gap or not left > 0 or (stop is not None and stop.is_set()):
                return found
            cursor = found.cursor
            await anyio.sleep(min(_POLL_S, left))

    async def kind(self) -> HomeKind:
        """Whose home this is."""
        return await to_thread.run_sync(lambda: self.db.kind)

    async def has_routing(self) -> bool:
        """Whether this database keeps routes."""
        return await to_thread.run_sync(lambda: self.db.has_routing)

    close = _in_thread(StateDatabase.close)
    get_meta = _in_thread(StateDatabase.get_meta)
    set_meta = _in_thread(StateDatabase.set_meta)
    create_session = _in_thread(StateDatabase.create_session)
    get_session = _in_thread(StateDatabase.get_session)
    resolve_session_id = _in_thread(StateDatabase.resolve_session_id)
    update_session = _in_thread(StateDatabase.update_session)
    end_session = _in_thread(StateDatabase.end_session)
    promote_to_session_reset = _in_thread(StateDatabase.promote_to_session_reset)
    reopen_session = _in_thread(StateDatabase.reopen_session)
    set_session_archived = _in_thread(StateDatabase.set_session_archived)
    set_expiry_finalized = _in_thread(StateDatabase.set_expiry_finalized)
    record_gateway_session_peer = _in_thread(StateDatabase.record_gateway_session_peer)
    update_token_counts = _in_thread(StateDatabase.update_token_counts)
    record_auxiliary_usage = _in_thread(StateDatabase.record_auxiliary_usage)
    model_usage = _in_thread(StateDatabase.model_usage)
    revision = _in_thread(StateDatabase.revision)
    set_session_title = _in_thread(StateDatabase.set_session_title)
    set_auto_title_if_empty = _in_thread(StateDatabase.set_auto_title_if_empty)
    get_session_title = _in_thread(StateDatabase.get_session_title)
    get_session_by_title = _in_thread(StateDatabase.get_session_by_title)
    resolve_session_by_title = _in_thread(StateDatabase.resolve_session_by_title)
    get_next_title_in_lineage = _in_thread(StateDatabase.get_next_title_in_lineage)
    append_message = _in_thread(StateDatabase.append_message)
    append_messages = _in_thread(StateDatabase.append_messages)
    get_message = _in_thread(StateDatabase.get_message)
    get_messages = _in_thread(StateDatabase.get_messages)
    get_messages_as_conversation = _in_thread(StateDatabase.get_messages_as_conversation)
    read_window = _in_thread(StateDatabase.read_window)
    message_count = _in_thread(StateDatabase.message_count)
    has_platform_message_id = _in_thread(StateDatabase.has_platform_message_id)
    rewind_to_message = _in_thread(StateDatabase.rewind_to_message)
    restore_rewound = _in_thread(StateDatabase.restore_rewound)
    replace_messages = _in_thread(StateDatabase.replace_messages)
    archive_and_compact = _in_thread(StateDatabase.archive_and_compact)
    clear_messages = _in_thread(StateDatabase.clear_messages)
    link_kind = _in_thread(StateDatabase.link_kind)
    get_compression_tip = _in_thread(StateDatabase.get_compression_tip)
    get_conversation_root = _in_thread(StateDatabase.get_conversation_root)
    get_compression_lineage = _in_thread(StateDatabase.get_compression_lineage)
    children = _in_thread(StateDatabase.children)
    get_gateway_routing_entry = _in_thread(StateDatabase.get_gateway_routing_entry)
    load_gateway_routing_entries = _in_thread(StateDatabase.load_gateway_routing_entries)
    gateway_routing_scopes = _in_thread(StateDatabase.gateway_routing_scopes)
    dump_gateway_routing_entries = _in_thread(StateDatabase.dump_gateway_routing_entries)
    save_gateway_routing_entry = _in_thread(StateDatabase.save_gateway_routing_entry)
    delete_gateway_routing_entries = _in_thread(StateDatabase.delete_gateway_routing_entries)
    find_latest_session_for_peer = _in_thread(StateDatabase.find_latest_session_for_peer)
    list_sessions = _in_thread(StateDatabase.list_sessions)
    summarize = _in_thread(StateDatabase.summarize)
    find_sessions = _in_thread(StateDatabase.find_sessions)
    search = _in_thread(StateDatabase.search)
    finalize_orphaned_compression_sessions = _in_thread(
        StateDatabase.finalize_orphaned_compression_sessions
    )
    prune_empty_ghost_sessions = _in_thread(StateDatabase.prune_empty_ghost_sessions)
    delete_session = _in_thread(StateDatabase.delete_session)
    delete_sessions = _in_thread(StateDatabase.delete_sessions)
    recount_session = _in_thread(StateDatabase.recount_session)
    drifted_sessions = _in_thread(StateDatabase.drifted_sessions)
    check_integrity = _in_thread(StateDatabase.check_integrity)
    sizes = _in_thread(StateDatabase.sizes)
