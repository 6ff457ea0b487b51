"""`AsyncSessionDB`, the state database for coroutines.

Each call runs in a worker thread. Each name is the method of `StateDatabase` of that name. A
cancelled caller gets control back at once, and a change that has begun finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio import CancelScope, sleep

from session_core._typing import Self
from session_core.aio import AsyncWrapper, ThreadKind, make_async
from session_core.errors import InvalidInput
from session_core.state.polling import ChangePoller
from session_core.state.protocol import (
    MetaStorage,
    RouteStorage,
    RowStorage,
    StateAdmin,
    StateDatabase,
    StateStorage,
    StopSignal,
)
from session_core.state.sdk_storage import SdkStorage
from session_core.types import EventPage, HomeKind

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")


def _wrap_read(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    return make_async(method, "looks")


def _wrap_change(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    return make_async(method, "changes")


def check_no_transaction(db: StateDatabase) -> None:
    """Refuse a change in a worker thread while the caller has a transaction open.

    The change would wait for that transaction, and the transaction for the change.

    Raises:
        InvalidInput: this task has a transaction open.
    """
    if db.in_transaction:
        raise InvalidInput(
            "this task has a transaction open, which an awaited change would wait for; "
            "run a transaction as one function: await AsyncSessionDB(db).run(step)"
        )


class _AsyncDatabasePart(AsyncWrapper[W]):
    """Wraps a database or one of its parts.

    All wrappers of a database share its worker threads.
    """

    def __init__(self, wrapped: W, db: StateDatabase) -> None:
        super().__init__(wrapped, db)
        self.db = db

    async def _run_in_thread(self, function: Callable[[], R], kind: ThreadKind) -> R:
        if kind == "changes":
            check_no_transaction(self.db)
        return await super()._run_in_thread(function, kind)


class AsyncRowStorage(_AsyncDatabasePart[RowStorage]):
    """Wraps `db.rows`. `RowStorage` documents the methods."""

    list_columns = _wrap_read(RowStorage.list_columns)
    check_rows_writable = _wrap_read(RowStorage.check_rows_writable)
    read_session_images = _wrap_read(RowStorage.read_session_images)
    read_message_images = _wrap_read(RowStorage.read_message_images)
    read_referring_images = _wrap_read(RowStorage.read_referring_images)
    read_row_images = _wrap_read(RowStorage.read_row_images)
    read_belongings = _wrap_read(RowStorage.read_belongings)
    remove_messages = _wrap_change(RowStorage.remove_messages)
    remove_rows = _wrap_change(RowStorage.remove_rows)
    change_row = _wrap_change(RowStorage.change_row)
    put_images = _wrap_change(RowStorage.put_images)
    put_session_fields = _wrap_change(RowStorage.put_session_fields)
    list_routing_rows = _wrap_read(RowStorage.list_routing_rows)
    put_routing_row = _wrap_change(RowStorage.put_routing_row)
    copy_session = _wrap_change(RowStorage.copy_session)
    copy_messages = _wrap_change(RowStorage.copy_messages)
    compact_messages = _wrap_change(RowStorage.compact_messages)
    restore_compacted = _wrap_change(RowStorage.restore_compacted)


class AsyncRouteStorage(_AsyncDatabasePart[RouteStorage]):
    """Wraps `db.routes`. `RouteStorage` documents the methods."""

    async def is_available(self) -> bool:
        """Return True if the database stores routes."""
        return await self._run_in_thread(lambda: self._wrapped.is_available, "looks")

    get_entry = _wrap_read(RouteStorage.get_entry)
    load_entries = _wrap_read(RouteStorage.load_entries)
    list_scopes = _wrap_read(RouteStorage.list_scopes)
    dump_entries = _wrap_read(RouteStorage.dump_entries)
    save_entry = _wrap_change(RouteStorage.save_entry)
    delete_entries = _wrap_change(RouteStorage.delete_entries)
    find_latest_session = _wrap_read(RouteStorage.find_latest_session)


class AsyncStateAdmin(_AsyncDatabasePart[StateAdmin]):
    """Wraps `db.admin`. `StateAdmin` documents the methods."""

    check_integrity = _wrap_read(StateAdmin.check_integrity)
    find_drifted_sessions = _wrap_read(StateAdmin.find_drifted_sessions)
    get_capabilities = _wrap_read(StateAdmin.get_capabilities)
    get_clock_offset = _wrap_read(StateAdmin.get_clock_offset)
    get_home_id = _wrap_read(StateAdmin.get_home_id)
    get_model_usage = _wrap_read(StateAdmin.get_model_usage)
    list_blocked_indexes = _wrap_read(StateAdmin.list_blocked_indexes)
    list_claims = _wrap_read(StateAdmin.list_claims)
    list_folders = _wrap_read(StateAdmin.list_folders)
    list_holders = _wrap_read(StateAdmin.list_holders)
    list_inventory = _wrap_read(StateAdmin.list_inventory)
    list_sources = _wrap_read(StateAdmin.list_sources)
    measure_sizes = _wrap_read(StateAdmin.measure_sizes)
    optimize_step = _wrap_change(StateAdmin.optimize_step)
    read_health_facts = _wrap_read(StateAdmin.read_health_facts)
    recount_session = _wrap_change(StateAdmin.recount_session)
    vacuum = _wrap_change(StateAdmin.vacuum)


class AsyncMetaStorage(_AsyncDatabasePart[MetaStorage]):
    """Wraps `db.meta`. `MetaStorage` documents the methods."""

    get_value = _wrap_read(MetaStorage.get_value)
    set_value = _wrap_change(MetaStorage.set_value)
    delete_value = _wrap_change(MetaStorage.delete_value)
    compare_and_set = _wrap_change(MetaStorage.compare_and_set)
    list_values = _wrap_read(MetaStorage.list_values)


class AsyncStateStorage(_AsyncDatabasePart[StateStorage]):
    """Wraps `db.state`. `StateStorage` documents the methods."""

    read_session_state = _wrap_read(StateStorage.read_session_state)
    merge_session_state = _wrap_change(StateStorage.merge_session_state)
    read_user_state = _wrap_read(StateStorage.read_user_state)
    merge_user_state = _wrap_change(StateStorage.merge_user_state)
    read_app_state = _wrap_read(StateStorage.read_app_state)
    merge_app_state = _wrap_change(StateStorage.merge_app_state)


class AsyncSdkStorage(_AsyncDatabasePart[SdkStorage]):
    """Wraps `db.sdk`. `SdkStorage` documents the methods."""

    get_sessions = _wrap_read(SdkStorage.get_sessions)
    session_count = _wrap_read(SdkStorage.session_count)
    distinct_session_cwds = _wrap_read(SdkStorage.distinct_session_cwds)
    resolve_resume_session_id = _wrap_read(SdkStorage.resolve_resume_session_id)
    delete_session_if_empty = _wrap_change(SdkStorage.delete_session_if_empty)
    has_archived_messages = _wrap_read(SdkStorage.has_archived_messages)
    list_recent_user_messages = _wrap_read(SdkStorage.list_recent_user_messages)
    find_platform_sessions = _wrap_read(SdkStorage.find_platform_sessions)
    find_platform_messages = _wrap_read(SdkStorage.find_platform_messages)
    append_to_tip = _wrap_change(SdkStorage.append_to_tip)
    read_tip_payloads = _wrap_read(SdkStorage.read_tip_payloads)
    list_payloads = _wrap_read(SdkStorage.list_payloads)
    update_message = _wrap_change(SdkStorage.update_message)
    pop_message = _wrap_change(SdkStorage.pop_message)
    delete_messages = _wrap_change(SdkStorage.delete_messages)


class AsyncSessionDB(_AsyncDatabasePart[StateDatabase]):
    """Wraps a database for coroutines of asyncio and trio. `SessionDB` documents the methods.

    Each method runs in a worker thread. Run a transaction of several calls as one function in one
    worker thread: `await db.run(step)`. All wrappers of a database share its worker threads.

    Example:
        >>> import asyncio
        >>> from session_core import AsyncSessionDB, SessionDB
        >>> async def store(db: AsyncSessionDB) -> int:
        ...     await db.append_message("s1", "user", "hello", create={"source": "cli"})
        ...     return await db.message_count("s1")
        >>> with SessionDB(":memory:") as db:
        ...     asyncio.run(store(AsyncSessionDB(db)))
        1
    """

    def __init__(self, db: StateDatabase) -> None:
        super().__init__(db, db)
        self.rows = AsyncRowStorage(db.rows, db)
        self.routes = AsyncRouteStorage(db.routes, db)
        self.admin = AsyncStateAdmin(db.admin, db)
        self.meta = AsyncMetaStorage(db.meta, db)
        self.state = AsyncStateStorage(db.state, db)
        self.sdk = AsyncSdkStorage(db.sdk, db)

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
        """Call `step` with the database in one worker thread and return its result."""
        return await self._run_in_thread(partial(step, self.db), "changes")

    async def read_changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: StopSignal | None = None,
    ) -> EventPage:
        """Return the events committed after `cursor`, or a new cursor if it is None.

        If there are no events, wait until one is committed, `stop` is set or `timeout_s` has
        passed.
        """
        # Waiting takes no thread: many callers can wait, and a cancelled call ends at once.
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

    close = _wrap_read(StateDatabase.close)
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
    try_acquire_compression_lock = _wrap_change(StateDatabase.try_acquire_compression_lock)
    refresh_compression_lock = _wrap_change(StateDatabase.refresh_compression_lock)
    release_compression_lock = _wrap_change(StateDatabase.release_compression_lock)
    get_compression_lock_holder = _wrap_read(StateDatabase.get_compression_lock_holder)
    get_link_kind = _wrap_read(StateDatabase.get_link_kind)
    get_compression_tip = _wrap_read(StateDatabase.get_compression_tip)
    get_conversation_root = _wrap_read(StateDatabase.get_conversation_root)
    get_compression_lineage = _wrap_read(StateDatabase.get_compression_lineage)
    list_children = _wrap_read(StateDatabase.list_children)
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
