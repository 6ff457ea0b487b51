"""`AsyncSessionDB`: the state database for coroutines; each call runs in a worker thread.

Each name is the method of `StateDatabase` of that name. A cancelled caller gets control back at
once, and a change that has begun finishes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from anyio import CancelScope, sleep

from session_core.aio import AsyncWrapper, ThreadKind, make_async
from session_core.errors import InvalidInput
from session_core.state.polling import ChangePoller
from session_core.state.protocol import StateDatabase, StopSignal

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.types import EventPage, HomeKind

P = ParamSpec("P")
R = TypeVar("R")


def _wrap_read(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[AsyncSessionDB, P], Awaitable[R]]:
    return make_async(method, "looks")


def _wrap_change(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[AsyncSessionDB, P], Awaitable[R]]:
    return make_async(method, "changes")


def check_no_transaction(db: StateDatabase) -> None:
    """Refuse a change in a worker thread if it would wait for a transaction of its own caller.

    Raises:
        InvalidInput: this task has a transaction open.
    """
    if db.in_transaction:
        raise InvalidInput(
            "this task has a transaction open, which an awaited change would wait for; "
            "run a transaction as one function: await AsyncSessionDB(db).run(step)"
        )


class AsyncSessionDB(AsyncWrapper[StateDatabase]):
    """Wraps a database; `SessionDB` documents the methods.

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
        # A cancelled block must still close the database.
        with CancelScope(shield=True):
            await self.close()

    async def run(self, step: Callable[[StateDatabase], R]) -> R:
        """Run a function of the database in one worker thread."""
        return await self._run_in_thread(partial(step, self.db), "changes")

    async def _run_in_thread(self, function: Callable[[], R], kind: ThreadKind) -> R:
        if kind == "changes":
            check_no_transaction(self.db)
        return await super()._run_in_thread(function, kind)

    async def read_changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: StopSignal | None = None,
    ) -> EventPage:
        """Return the events committed after `cursor`, or from now on without one.

        If there are none yet, wait until `stop` is set or the time is over.
        """
        # Waiting takes no thread: many callers can wait, and a cancelled one ends at once.
        poller = ChangePoller(cursor, timeout_s, stop)
        read = partial(self.db.read_changes, session=session, limit=limit)
        while True:
            page = await self._run_in_thread(partial(poller.poll_once, read), "looks")
            if page is not None:
                return page
            await sleep(poller.pause_s)

    async def kind(self) -> HomeKind:
        """Return the kind of the home."""
        return await self._run_in_thread(lambda: self.db.kind, "looks")

    async def has_routing(self) -> bool:
        """Return True if the database stores routes."""
        return await self._run_in_thread(lambda: self.db.has_routing, "looks")

    list_holders = _wrap_read(StateDatabase.list_holders)
    close = _wrap_read(StateDatabase.close)
    get_home_id = _wrap_read(StateDatabase.get_home_id)
    get_meta = _wrap_read(StateDatabase.get_meta)
    set_meta = _wrap_change(StateDatabase.set_meta)
    delete_meta = _wrap_change(StateDatabase.delete_meta)
    create_session = _wrap_change(StateDatabase.create_session)
    get_session = _wrap_read(StateDatabase.get_session)
    resolve_session_id = _wrap_read(StateDatabase.resolve_session_id)
    update_session = _wrap_change(StateDatabase.update_session)
    end_session = _wrap_change(StateDatabase.end_session)
    promote_to_session_reset = _wrap_change(StateDatabase.promote_to_session_reset)
    reopen_session = _wrap_change(StateDatabase.reopen_session)
    set_session_archived = _wrap_change(StateDatabase.set_session_archived)
    set_expiry_finalized = _wrap_change(StateDatabase.set_expiry_finalized)
    record_gateway_session_peer = _wrap_change(StateDatabase.record_gateway_session_peer)
    update_token_counts = _wrap_change(StateDatabase.update_token_counts)
    record_auxiliary_usage = _wrap_change(StateDatabase.record_auxiliary_usage)
    get_model_usage = _wrap_read(StateDatabase.get_model_usage)
    get_revision = _wrap_read(StateDatabase.get_revision)
    set_session_title = _wrap_change(StateDatabase.set_session_title)
    set_auto_title_if_empty = _wrap_change(StateDatabase.set_auto_title_if_empty)
    get_session_title = _wrap_read(StateDatabase.get_session_title)
    get_session_by_title = _wrap_read(StateDatabase.get_session_by_title)
    resolve_session_by_title = _wrap_read(StateDatabase.resolve_session_by_title)
    get_next_title_in_lineage = _wrap_read(StateDatabase.get_next_title_in_lineage)
    append_message = _wrap_change(StateDatabase.append_message)
    append_messages = _wrap_change(StateDatabase.append_messages)
    get_message = _wrap_read(StateDatabase.get_message)
    find_messages = _wrap_read(StateDatabase.find_messages)
    get_messages = _wrap_read(StateDatabase.get_messages)
    get_messages_as_conversation = _wrap_read(StateDatabase.get_messages_as_conversation)
    read_window = _wrap_read(StateDatabase.read_window)
    message_count = _wrap_read(StateDatabase.message_count)
    has_platform_message_id = _wrap_read(StateDatabase.has_platform_message_id)
    rewind_to_message = _wrap_change(StateDatabase.rewind_to_message)
    restore_rewound = _wrap_change(StateDatabase.restore_rewound)
    replace_messages = _wrap_change(StateDatabase.replace_messages)
    clear_messages = _wrap_change(StateDatabase.clear_messages)
    archive_and_compact = _wrap_change(StateDatabase.archive_and_compact)
    compact_messages = _wrap_change(StateDatabase.compact_messages)
    copy_messages = _wrap_change(StateDatabase.copy_messages)
    restore_compacted = _wrap_change(StateDatabase.restore_compacted)
    copy_session = _wrap_change(StateDatabase.copy_session)
    put_session_fields = _wrap_change(StateDatabase.put_session_fields)
    read_belongings = _wrap_read(StateDatabase.read_belongings)
    list_routing_rows = _wrap_read(StateDatabase.list_routing_rows)
    put_routing_row = _wrap_change(StateDatabase.put_routing_row)
    read_session_images = _wrap_read(StateDatabase.read_session_images)
    read_message_images = _wrap_read(StateDatabase.read_message_images)
    read_referring_images = _wrap_read(StateDatabase.read_referring_images)
    read_row_images = _wrap_read(StateDatabase.read_row_images)
    remove_messages = _wrap_change(StateDatabase.remove_messages)
    remove_rows = _wrap_change(StateDatabase.remove_rows)
    change_row = _wrap_change(StateDatabase.change_row)
    put_images = _wrap_change(StateDatabase.put_images)
    try_acquire_compression_lock = _wrap_change(StateDatabase.try_acquire_compression_lock)
    refresh_compression_lock = _wrap_change(StateDatabase.refresh_compression_lock)
    release_compression_lock = _wrap_change(StateDatabase.release_compression_lock)
    get_compression_lock_holder = _wrap_read(StateDatabase.get_compression_lock_holder)
    get_link_kind = _wrap_read(StateDatabase.get_link_kind)
    get_compression_tip = _wrap_read(StateDatabase.get_compression_tip)
    get_conversation_root = _wrap_read(StateDatabase.get_conversation_root)
    get_compression_lineage = _wrap_read(StateDatabase.get_compression_lineage)
    list_children = _wrap_read(StateDatabase.list_children)
    get_gateway_routing_entry = _wrap_read(StateDatabase.get_gateway_routing_entry)
    load_gateway_routing_entries = _wrap_read(StateDatabase.load_gateway_routing_entries)
    list_gateway_routing_scopes = _wrap_read(StateDatabase.list_gateway_routing_scopes)
    dump_gateway_routing_entries = _wrap_read(StateDatabase.dump_gateway_routing_entries)
    save_gateway_routing_entry = _wrap_change(StateDatabase.save_gateway_routing_entry)
    delete_gateway_routing_entries = _wrap_change(StateDatabase.delete_gateway_routing_entries)
    find_latest_session_for_peer = _wrap_read(StateDatabase.find_latest_session_for_peer)
    list_sessions = _wrap_read(StateDatabase.list_sessions)
    summarize_session = _wrap_read(StateDatabase.summarize_session)
    find_sessions = _wrap_read(StateDatabase.find_sessions)
    search = _wrap_read(StateDatabase.search)
    finalize_orphaned_compression_sessions = _wrap_change(
        StateDatabase.finalize_orphaned_compression_sessions
    )
    prune_empty_ghost_sessions = _wrap_change(StateDatabase.prune_empty_ghost_sessions)
    delete_session = _wrap_change(StateDatabase.delete_session)
    delete_sessions = _wrap_change(StateDatabase.delete_sessions)
    recount_session = _wrap_change(StateDatabase.recount_session)
    find_drifted_sessions = _wrap_read(StateDatabase.find_drifted_sessions)
    check_integrity = _wrap_read(StateDatabase.check_integrity)
    measure_sizes = _wrap_read(StateDatabase.measure_sizes)
    list_blocked_indexes = _wrap_read(StateDatabase.list_blocked_indexes)
    check_rows_writable = _wrap_read(StateDatabase.check_rows_writable)
    optimize_step = _wrap_change(StateDatabase.optimize_step)
    vacuum = _wrap_change(StateDatabase.vacuum)
    list_inventory = _wrap_read(StateDatabase.list_inventory)
    read_health_facts = _wrap_read(StateDatabase.read_health_facts)
    list_claims = _wrap_read(StateDatabase.list_claims)
