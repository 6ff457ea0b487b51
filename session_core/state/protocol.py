"""The protocol of the state database, which every engine implements.

`tests/contract/` tests it for each engine, and no module above `state/` knows which engine it uses.
`SessionDB` documents the methods in full. A docstring here states a rule that an engine can miss.

Rules for all methods:

- Content is decoded. Cursors are opaque and made by the engine. Times are UTC epoch seconds.
- The messages of a session are in the order of their commits, not of their times, and their ids
  rise in that order. Only the change feed shows the order of commits of different sessions.
- An invalid argument raises `InvalidInput` and changes nothing. A change of a column or table that
  the home lacks raises `Unsupported`.
- A read is one snapshot. A method that changes rows is one transaction, and is durable when it
  returns. Deletions act at once: they have no plan and no undo.
- An unknown id has one of four results. Look-ups return None, an empty result or 0. Changes of a
  session return False or 0. Methods that modify or copy messages, record usage, recount, set a
  parent or describe a session (`get_revision`, `summarize_session`, `read_window`, a search in a
  session) raise `NotFound`. `get_compression_tip`, `get_conversation_root` and
  `get_compression_lineage` return the id itself, as a conversation of one session.
- `update_token_counts` creates an unknown session. A lock and a cursor need no session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from session_core._typing import Unpack
from session_core.state import columns as keywords
from session_core.state.ledger_tables import LedgerTables
from session_core.state.sdk_storage import SdkStorage
from session_core.state.store_search import StoreSearch
from session_core.types import (
    AppendManyResult,
    AppendResult,
    BlockedIndex,
    Capabilities,
    Claim,
    EventPage,
    Finding,
    Holder,
    HomeFacts,
    HomeKind,
    InventoryItem,
    LinkKind,
    MessageRow,
    MessageView,
    MessageWindow,
    Page,
    PutResult,
    Revision,
    RewindResult,
    RowImages,
    SearchMode,
    SearchOrder,
    SearchResult,
    SearchUnit,
    SessionFilter,
    SessionOrder,
    SessionRow,
    SessionSummary,
    Sizes,
    VacuumResult,
)

__all__ = [
    "MetaStorage",
    "RouteStorage",
    "RowStorage",
    "StateAdmin",
    "StateDatabase",
    "StateStorage",
    "StepCallback",
    "StopSignal",
]

Row = Mapping[str, Any]
Ids = Sequence[int]

StepCallback = Callable[[], object]
"""Called at intervals during long work. An exception from it rolls the work back."""


class StopSignal(Protocol):
    """Asks a waiting call to stop, for example a `threading.Event`."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> bool: ...


class StateDatabase(Protocol):
    """Sessions, messages, lineage, lists, search and the change feed of one home.

    Its parts use the same connections and transactions.
    """

    @property
    def rows(self) -> RowStorage: ...
    @property
    def routes(self) -> RouteStorage: ...
    @property
    def admin(self) -> StateAdmin: ...
    @property
    def meta(self) -> MetaStorage: ...
    @property
    def state(self) -> StateStorage: ...
    @property
    def sdk(self) -> SdkStorage: ...

    @property
    def kind(self) -> HomeKind: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def in_transaction(self) -> bool:
        """True if this task has a transaction open in this thread."""

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """Run the `with` block as one transaction, which is rolled back if the block raises.

        The transaction belongs to one task and one thread. A change by another task of the thread
        is refused, a change by another thread waits, and both read committed rows. A coroutine
        passes a function to `AsyncSessionDB.run` instead. With `linked=False`, rows may refer to
        missing rows.
        """

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this task in the block see one moment of the database.

        Inside another snapshot or a transaction, it joins the outer block. A change is refused.
        """

    def close(self) -> None: ...
    def get_meta(self, key: str) -> str | None: ...
    def set_meta(self, key: str, value: str) -> None: ...
    def delete_meta(self, key: str) -> bool: ...

    # Sessions.

    def create_session(
        self,
        /,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        **fields: Unpack[keywords.NewSessionColumns],
    ) -> str:
        """Create a session, or fill the empty columns of an existing session, and return its id."""

    def get_session(self, session_id: str) -> SessionRow | None: ...
    def resolve_session_id(self, session: str) -> str | None: ...
    def update_session(
        self, /, session_id: str, **fields: Unpack[keywords.SessionColumnUpdates]
    ) -> bool: ...
    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has ended. The first reason wins."""

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, even if its agent has closed it already."""

    def reopen_session(self, session_id: str) -> bool: ...
    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive or unarchive a whole conversation and return the number of changed rows."""

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool: ...
    def record_gateway_session_peer(
        self,
        session_id: str,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        display_name: str | None = None,
        origin_json: str | None = None,
    ) -> bool:
        """Store the chat of a session, and the last two fields only if they are given."""

    def get_revision(self, session_id: str) -> Revision: ...

    # Messages.

    def append_message(
        self,
        /,
        session_id: str,
        role: str,
        content: Any = None,
        *,
        create: Row | None = None,
        expect: Revision | None = None,
        **columns: Unpack[keywords.NewMessageColumns],
    ) -> AppendResult:
        """Append a message and return its id, with the revision before and after.

        With `create`, the arguments of `create_session`, a missing session is created in the same
        transaction. With `expect`, another revision raises `Conflict`. `payload_json` is stored
        exactly.
        """

    def append_messages(
        self,
        session_id: str,
        messages: Iterable[Row],
        *,
        create: Row | None = None,
        expect: Revision | None = None,
    ) -> AppendManyResult: ...
    def rewind_to_message(self, session_id: str, target_message_id: int) -> RewindResult: ...
    def restore_rewound(self, session_id: str, since_message_id: int) -> int: ...
    def replace_messages(
        self, session_id: str, messages: Iterable[Row], active_only: bool = False
    ) -> AppendManyResult: ...
    def clear_messages(self, session_id: str) -> int: ...
    def get_message(self, message_id: int) -> MessageRow | None: ...
    def find_messages(self, message_ids: Ids) -> dict[int, MessageRow]: ...
    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[MessageRow]: ...
    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages for a model. Ancestors belong to the same conversation."""

    def read_window(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 50,
        roles: Sequence[str] | None = None,
        view: MessageView = "live",
    ) -> MessageWindow: ...
    def message_count(self, session_id: str | None = None) -> int: ...
    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool: ...

    # Compaction of a whole session, and its lock.

    def archive_and_compact(
        self, session_id: str, compacted_messages: Iterable[Row]
    ) -> AppendManyResult: ...
    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool: ...
    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool: ...
    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Release a lock, unless another holder has taken it over."""

    def get_compression_lock_holder(self, session_id: str) -> str | None: ...

    # Titles: unique, and numbered along a lineage.

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set, clear or move a title from an ancestor, or raise `TitleTaken`."""

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool: ...
    def get_session_title(self, session_id: str) -> str | None: ...
    def get_session_by_title(self, title: str) -> SessionRow | None: ...
    def resolve_session_by_title(self, title: str) -> str | None: ...
    def get_next_title_in_lineage(self, base_title: str) -> str: ...

    # Tokens and costs.

    def update_token_counts(
        self,
        /,
        session_id: str,
        *,
        absolute: bool = False,
        **counts: Unpack[keywords.TokenColumns],
    ) -> None: ...
    def record_auxiliary_usage(
        self,
        /,
        session_id: str,
        task: str,
        *,
        model: str | None = None,
        **counts: Unpack[keywords.UsageColumns],
    ) -> None: ...

    # Lineage.

    def get_link_kind(self, session_id: str) -> LinkKind | None:
        """Return the kind of link to the parent. A delegate by its mark needs no parent."""

    def get_compression_tip(self, session_id: str) -> str: ...
    def get_conversation_root(self, session_id: str) -> str:
        """Return the first session of the conversation. A branch begins its own conversation."""

    def get_compression_lineage(self, session_id: str) -> list[str]: ...
    def list_children(self, session_id: str) -> list[SessionRow]: ...

    # Lists and search.

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        cursor: str | None = None,
        below: tuple[float, str] | None = None,
    ) -> Page[SessionSummary]:
        """List conversations by their tips, without archived ones unless `where` has a status."""

    def summarize_session(self, session_id: str) -> SessionSummary: ...
    def find_sessions(self, where: SessionFilter) -> list[str]: ...

    def search(
        self,
        query: str,
        *,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        exclude_source: Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
        limit: int = 20,
        cursor: str | None = None,
        moment: float | None = None,
    ) -> SearchResult: ...

    # Deletion and cleanup, at once.

    def finalize_orphaned_compression_sessions(self) -> int: ...
    def prune_empty_ghost_sessions(self) -> int: ...
    def delete_session(self, session_id: str) -> bool: ...
    def delete_sessions(self, session_ids: Sequence[str]) -> int: ...

    # The change feed.

    def read_changes(
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


class RowStorage(Protocol):
    """Stored rows, for compression, copies, undo, the trash and imports."""

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the stored columns of a table, or none if the home lacks the table."""

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Raise `Unsupported` if a table in `tables` feeds a blocked index."""

    def compact_messages(
        self, session_id: str, message_ids: Ids, summary: Iterable[Row], *, carry: Ids = ()
    ) -> AppendManyResult:
        """Flag messages as compacted, then append a summary and copies of the carried messages."""

    def copy_messages(
        self, session_id: str, message_ids: Ids, to_session_id: str
    ) -> AppendManyResult: ...
    def restore_compacted(
        self,
        session_id: str,
        message_ids: Ids,
        *,
        copies: Mapping[int, int] | None = None,
        flags: Mapping[int, Sequence[int | None]] | None = None,
        drop: Ids = (),
    ) -> AppendManyResult:
        """Restore compacted messages as their copies are now, and delete the replacements."""

    def copy_session(
        self,
        /,
        session_id: str,
        to_session_id: str,
        *,
        without: Collection[str] = (),
        **fields: Any,
    ) -> None:
        """Create a session with the columns and state of another session.

        `fields` replaces columns, and columns in `without` get the values of a new session.
        """

    def put_session_fields(self, session_id: str, fields: Row) -> bool: ...
    def read_belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]: ...
    def list_routing_rows(self, *session_ids: str) -> list[dict[str, Any]]: ...
    def put_routing_row(self, row: Row) -> None: ...
    def read_session_images(self, session_id: str) -> list[RowImages]:
        """Return the row of a session and all rows that belong to it, except messages."""

    def read_message_images(
        self, session_id: str, after: int | None, room: int
    ) -> tuple[RowImages, bool]:
        """Return messages of up to `room` bytes, with 200 more for each, and if more follow."""

    def read_referring_images(self, images: Iterable[RowImages]) -> list[RowImages]: ...
    def read_row_images(self, table: str, where: Row) -> RowImages: ...
    def remove_messages(
        self, removed: Mapping[str, tuple[Ids, Revision]], imaged: Iterable[RowImages] = ()
    ) -> dict[str, Revision]:
        """Delete messages of sessions, or raise `Changed` unless each is at its revision."""

    def remove_rows(self, removed: Iterable[RowImages]) -> None:
        """Delete rows in any order, except shared rows, or raise `Changed` if a row differs."""

    def change_row(self, table: str, key: Row, before: Row, after: Row) -> None:
        """Set columns of the row with a key, or raise `Changed` unless it has `before`."""

    def put_images(
        self, images: Iterable[RowImages], *, of: Collection[str] | None = None
    ) -> PutResult:
        """Insert missing rows in any order, and report rows that exist and rows that do not fit.

        An equal row is present. A row is refused if another row has its key, or if it refers to a
        missing row (not with `linked=False`). A taken title, a missing parent and unknown columns
        are left out. With `of`, rows of other sessions are refused.
        """


class RouteStorage(Protocol):
    """The routing entries, which map chats to sessions."""

    @property
    def is_available(self) -> bool: ...
    def get_entry(self, session_key: str, *, scope: str = "") -> str | None: ...
    def load_entries(self, *, scope: str = "") -> dict[str, str]: ...
    def list_scopes(self) -> dict[str, int]: ...
    def dump_entries(
        self,
        *,
        scope: str = "",
        without: Collection[str] = (),
        limit: int = 1000,
        cursor: str | None = None,
    ) -> Page[str]: ...
    def save_entry(
        self, session_key: str, entry_json: str, *, scope: str = "", expect: str | None
    ) -> None:
        """Store one entry, or raise `Conflict` unless the stored entry is `expect`."""

    def delete_entries(self, entries: Mapping[str, str], *, scope: str = "") -> list[str]: ...
    def find_latest_session(
        self,
        *,
        source: str,
        session_key: str | None = None,
        user_id: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        ended_as: Collection[str] | None = None,
        older_than: str | None = None,
    ) -> SessionRow | None:
        """Return the newest session of a chat that has messages and that the chat has not left."""


class StateAdmin(Protocol):
    """Upkeep and reports of a home."""

    def get_home_id(self) -> str | None: ...
    def get_clock_offset(self) -> float:
        """Return the seconds by which the server's clock is ahead, 0 without a server."""

    def get_capabilities(self) -> Capabilities: ...
    def get_ledger_tables(self) -> LedgerTables | None: ...
    def list_holders(self) -> list[Holder]: ...
    def get_model_usage(self, session_id: str) -> list[dict[str, Any]]: ...
    def recount_session(self, session_id: str) -> bool: ...
    def find_drifted_sessions(self, limit: int = 1000) -> list[str]: ...
    def check_integrity(
        self, *, deep: bool = False, step: StepCallback | None = None
    ) -> list[Finding]: ...
    def list_blocked_indexes(self) -> list[BlockedIndex]: ...
    def measure_sizes(
        self, *, exact: bool = False, tables: bool = True, step: StepCallback | None = None
    ) -> Sizes: ...
    def list_inventory(self) -> list[InventoryItem]: ...
    def list_sources(self) -> list[str]: ...
    def list_folders(self) -> list[str]:
        """Return the working folders and git roots of all sessions, each once."""

    def open_search(
        self,
        query: str,
        *,
        moment: float,
        newest_ms: int | None = None,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        exclude_source: Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
    ) -> StoreSearch:
        """Open a search for `MergedSearch`, to be used in an open snapshot."""

    def read_health_facts(self) -> HomeFacts: ...
    def list_claims(self) -> list[Claim]:
        """Return the claims that other programs have stored in the database, old or new."""

    def optimize_step(self) -> bool:
        """Merge a part of the search indexes for about 20 ms and return True if more is left."""

    def vacuum(self, *, step: StepCallback | None = None) -> VacuumResult:
        """Rewrite the file without its free pages. Commits of other processes are kept."""


class MetaStorage(Protocol):
    """Key-value pairs of applications, separate from the keys of Hermes and of this library."""

    def get_value(self, key: str) -> str | None: ...
    def set_value(self, key: str, value: str) -> None: ...
    def delete_value(self, key: str) -> bool: ...
    def compare_and_set(self, key: str, value: str | None, *, expect: str | None) -> bool:
        """Store a value if the present value is `expect`. None stands for a missing key."""

    def list_values(
        self, prefix: str = "", *, after: str | None = None, limit: int = 1000
    ) -> dict[str, str]:
        """Return the values whose keys begin with `prefix`, in the order of code points."""


class StateStorage(Protocol):
    """State of sessions, users and applications as JSON values by key.

    A change sets or removes some keys and reads none. The state of a session is deleted, restored,
    exported and copied with it. The state of users and applications outlives all sessions.
    """

    def read_session_state(self, session_id: str) -> dict[str, Any]: ...
    def merge_session_state(
        self, session_id: str, changes: Row, *, remove: Collection[str] = ()
    ) -> None: ...
    def read_user_state(self, app: str, user_id: str) -> dict[str, Any]: ...
    def merge_user_state(
        self, app: str, user_id: str, changes: Row, *, remove: Collection[str] = ()
    ) -> None: ...
    def read_app_state(self, app: str) -> dict[str, Any]: ...
    def merge_app_state(self, app: str, changes: Row, *, remove: Collection[str] = ()) -> None: ...
