"""`AsyncSessionDB`: the same database for coroutines, each call in a worker thread.

It decides nothing: each name below is the method of that name, and when one who follows has an
answer is said in `following`. A cancelled caller gets control back at once, and a change that has
begun finishes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from anyio import CancelScope, sleep

from session_core.aio import AsyncFace, Kind, in_thread
from session_core.errors import InvalidInput
from session_core.state.polling import Following
from session_core.state.protocol import StateDatabase, Stop

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.types import Changes, HomeKind

P = ParamSpec("P")
R = TypeVar("R")


def _look(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[AsyncSessionDB, P], Awaitable[R]]:
    return in_thread(method, "looks")


def _change(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[AsyncSessionDB, P], Awaitable[R]]:
    return in_thread(method, "changes")


def check_no_transaction(db: StateDatabase) -> None:
    """Refuse a change in a worker thread that would wait for a transaction of its own caller.

    Raises:
        InvalidInput: this task has a transaction open.
    """
    if db.in_transaction:
        raise InvalidInput(
            "this task has a transaction open, which an awaited change would wait for; "
            "run a transaction as one function: await AsyncSessionDB(db).run(step)"
        )


class AsyncSessionDB(AsyncFace[StateDatabase]):
    """Wraps a database; what the methods do is said in `state/contract/`.

    A transaction of several calls belongs in one function, run in one worker thread:
    `await db.run(step)`. All wrappers of one database share its worker threads.
    """

    def __init__(self, db: StateDatabase) -> None:
        super().__init__(db)
        self.db = db

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

    async def run(self, step: Callable[[StateDatabase], R]) -> R:
        """Run a function of the database, in one worker thread."""
        return await self._run(partial(step, self.db), "changes")

    async def _run(self, function: Callable[[], R], kind: Kind) -> R:
        if kind == "changes":
            check_no_transaction(self.db)
        return await super()._run(function, kind)

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
        following = Following(cursor, timeout_s, stop)
        look = partial(self.db.changes, session=session, limit=limit)
        while True:
            found = await self._run(partial(following.look, look), "looks")
            if found is not None:
                return found
            await sleep(following.pause_s)

    async def kind(self) -> HomeKind:
        """Whose home this is."""
        return await self._run(lambda: self.db.kind, "looks")

    async def has_routing(self) -> bool:
        """Whether this database keeps routes."""
        return await self._run(lambda: self.db.has_routing, "looks")

    holders = _look(StateDatabase.holders)
    close = _look(StateDatabase.close)
    home_id = _look(StateDatabase.home_id)
    get_meta = _look(StateDatabase.get_meta)
    set_meta = _change(StateDatabase.set_meta)
    delete_meta = _change(StateDatabase.delete_meta)
    create_session = _change(StateDatabase.create_session)
    get_session = _look(StateDatabase.get_session)
    resolve_session_id = _look(StateDatabase.resolve_session_id)
    update_session = _change(StateDatabase.update_session)
    end_session = _change(StateDatabase.end_session)
    promote_to_session_reset = _change(StateDatabase.promote_to_session_reset)
    reopen_session = _change(StateDatabase.reopen_session)
    set_session_archived = _change(StateDatabase.set_session_archived)
    set_expiry_finalized = _change(StateDatabase.set_expiry_finalized)
    record_gateway_session_peer = _change(StateDatabase.record_gateway_session_peer)
    update_token_counts = _change(StateDatabase.update_token_counts)
    record_auxiliary_usage = _change(StateDatabase.record_auxiliary_usage)
    model_usage = _look(StateDatabase.model_usage)
    revision = _look(StateDatabase.revision)
    set_session_title = _change(StateDatabase.set_session_title)
    set_auto_title_if_empty = _change(StateDatabase.set_auto_title_if_empty)
    get_session_title = _look(StateDatabase.get_session_title)
    get_session_by_title = _look(StateDatabase.get_session_by_title)
    resolve_session_by_title = _look(StateDatabase.resolve_session_by_title)
    get_next_title_in_lineage = _look(StateDatabase.get_next_title_in_lineage)
    append_message = _change(StateDatabase.append_message)
    append_messages = _change(StateDatabase.append_messages)
    get_message = _look(StateDatabase.get_message)
    find_messages = _look(StateDatabase.find_messages)
    get_messages = _look(StateDatabase.get_messages)
    get_messages_as_conversation = _look(StateDatabase.get_messages_as_conversation)
    read_window = _look(StateDatabase.read_window)
    message_count = _look(StateDatabase.message_count)
    has_platform_message_id = _look(StateDatabase.has_platform_message_id)
    rewind_to_message = _change(StateDatabase.rewind_to_message)
    restore_rewound = _change(StateDatabase.restore_rewound)
    replace_messages = _change(StateDatabase.replace_messages)
    clear_messages = _change(StateDatabase.clear_messages)
    archive_and_compact = _change(StateDatabase.archive_and_compact)
    compact_messages = _change(StateDatabase.compact_messages)
    copy_messages = _change(StateDatabase.copy_messages)
    restore_compacted = _change(StateDatabase.restore_compacted)
    copy_session = _change(StateDatabase.copy_session)
    put_session_fields = _change(StateDatabase.put_session_fields)
    belongings = _look(StateDatabase.belongings)
    routing_rows = _look(StateDatabase.routing_rows)
    put_routing_row = _change(StateDatabase.put_routing_row)
    session_images = _look(StateDatabase.session_images)
    message_images = _look(StateDatabase.message_images)
    referring_images = _look(StateDatabase.referring_images)
    row_images = _look(StateDatabase.row_images)
    remove_messages = _change(StateDatabase.remove_messages)
    remove_rows = _change(StateDatabase.remove_rows)
    change_row = _change(StateDatabase.change_row)
    put_images = _change(StateDatabase.put_images)
    try_acquire_compression_lock = _change(StateDatabase.try_acquire_compression_lock)
    refresh_compression_lock = _change(StateDatabase.refresh_compression_lock)
    release_compression_lock = _change(StateDatabase.release_compression_lock)
    get_compression_lock_holder = _look(StateDatabase.get_compression_lock_holder)
    link_kind = _look(StateDatabase.link_kind)
    get_compression_tip = _look(StateDatabase.get_compression_tip)
    get_conversation_root = _look(StateDatabase.get_conversation_root)
    get_compression_lineage = _look(StateDatabase.get_compression_lineage)
    children = _look(StateDatabase.children)
    get_gateway_routing_entry = _look(StateDatabase.get_gateway_routing_entry)
    load_gateway_routing_entries = _look(StateDatabase.load_gateway_routing_entries)
    gateway_routing_scopes = _look(StateDatabase.gateway_routing_scopes)
    dump_gateway_routing_entries = _look(StateDatabase.dump_gateway_routing_entries)
    save_gateway_routing_entry = _change(StateDatabase.save_gateway_routing_entry)
    delete_gateway_routing_entries = _change(StateDatabase.delete_gateway_routing_entries)
    find_latest_session_for_peer = _look(StateDatabase.find_latest_session_for_peer)
    list_sessions = _look(StateDatabase.list_sessions)
    summarize = _look(StateDatabase.summarize)
    find_sessions = _look(StateDatabase.find_sessions)
    search = _look(StateDatabase.search)
    finalize_orphaned_compression_sessions = _change(
        StateDatabase.finalize_orphaned_compression_sessions
    )
    prune_empty_ghost_sessions = _change(StateDatabase.prune_empty_ghost_sessions)
    delete_session = _change(StateDatabase.delete_session)
    delete_sessions = _change(StateDatabase.delete_sessions)
    recount_session = _change(StateDatabase.recount_session)
    drifted_sessions = _look(StateDatabase.drifted_sessions)
    check_integrity = _look(StateDatabase.check_integrity)
    sizes = _look(StateDatabase.sizes)
    blocked_indexes = _look(StateDatabase.blocked_indexes)
    check_rows_writable = _look(StateDatabase.check_rows_writable)
    optimize_step = _change(StateDatabase.optimize_step)
    vacuum = _change(StateDatabase.vacuum)
    inventory = _look(StateDatabase.inventory)
    health_facts = _look(StateDatabase.health_facts)
    claims = _look(StateDatabase.claims)
