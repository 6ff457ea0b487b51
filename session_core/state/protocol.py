"""The database itself: whose it is, its transactions, its few values beside the sessions.

Session rows: created, filled, ended, reopened, and what a session is at one moment.

Messages: appended, taken back, brought back, replaced.

How messages are read: as rows, as a conversation, a window at a time.

Lists of conversations, one line each.

What sessions are to each other.

Full-text search over all messages of a home.

How messages are summarised away and brought back, and who may do it just now.

Titles: unique, and numbered along a lineage.

Tokens and costs, by session and by model.

Routes: which chat leads to which session.

Rows as they are stored, known columns or not: what copies a session and undoes a change.

What was committed since a cursor.

What keeps a home small and right.

What every engine of the state database promises.

`tests/contract/` proves it for each engine, and nothing above `state/` knows which one it has.
Content is decoded, cursors are opaque and made by the engine, times are UTC epoch seconds, the
order of messages is the order of their ids whatever their times say. An argument that makes no
sense is `InvalidInput` and changes nothing.

An id that is not there is answered in one of four ways. A look-up returns None, nothing or zero; a
change of a session says no, or that it changed none. `NotFound` is what changes messages or copies,
accounts to or recounts a session, names it as a parent, and asks what it is: `revision`,
`summarize`, `read_window`, and a search in it. The walks `get_compression_tip`,
`get_conversation_root` and `get_compression_lineage` return it itself, as one that is alone. And
`update_token_counts` makes it, as an append with `create` does; a lock and a cursor need none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from session_core.types import (
    AppendManyResult,
    AppendResult,
    BlockedIndex,
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
    SearchResult,
    SearchUnit,
    SessionFilter,
    SessionOrder,
    SessionRow,
    SessionSummary,
    Sizes,
    VacuumResult,
)


class DatabaseProtocol(Protocol):
    """The database itself."""

    @property
    def kind(self) -> HomeKind:
        """Whose home this is."""

    def get_home_id(self) -> str | None:
        """Return the name that a home of our own has had since it was made; others have none."""

    @property
    def folder(self) -> Path | None:
        """The folder of the home; None where the database is in no folder."""

    @property
    def path(self) -> Path | None:
        """The file of the database; None if it is in no file."""

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading alone."""

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """All that this task changes inside is one transaction, or nothing of it is.

        It belongs to one task and one thread. A change by another task of the thread is refused at
        once, one by another thread waits, and both read what is committed. A coroutine passes a
        function to `AsyncSessionDB.run` instead, which keeps the loop free.
        Where it is not `linked`, rows may refer to what is not there, as orphans that are put back.
        """

    @property
    def in_transaction(self) -> bool:
        """Whether this task has a transaction open in this thread."""

    def list_holders(self) -> list[Holder]:
        """Return the other processes that have it open, as far as this system tells."""

    def close(self) -> None:
        """Close it; what was returned before is durable."""

    def get_meta(self, key: str) -> str | None:
        """Return a value of `state_meta`."""

    def set_meta(self, key: str, value: str) -> None:
        """Store a value in `state_meta`."""

    def delete_meta(self, key: str) -> bool:
        """Forget a value of `state_meta`; return whether it was there."""


class SessionsProtocol(Protocol):
    """Session rows."""

    def create_session(
        self,
        /,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        **fields: Any,
    ) -> str:
        """Create a session, or fill what is empty in the one that is there; return its id.

        Raises:
            InvalidInput: a field makes no sense, or the parent is the session or came from it.
            NotFound: the parent is not there.
        """

    def get_session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""

    def resolve_session_id(self, session: str) -> str | None:
        """Return the id that `session` is, or is the only prefix of."""

    def update_session(self, /, session_id: str, **fields: Any) -> bool:
        """Overwrite columns of a session; return whether it is there.

        Raises:
            InvalidInput: a field makes no sense, or the parent is the session or came from it.
            NotFound: the parent is not there.
            Unsupported: this home has no such column.
        """

    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has ended already: the first reason wins."""

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, also one that was only closed by its agent."""

    def reopen_session(self, session_id: str) -> bool:
        """Forget that a session has ended."""

    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive a whole conversation or bring it back; return how many rows changed."""

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Note that the hooks of an expired session were called."""

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
        """Store which chat a session belongs to; the last two only where they are given."""

    def get_revision(self, session_id: str) -> Revision:
        """Return what the session is now, in one statement."""


class MessagesProtocol(Protocol):
    """Messages as they are stored."""

    def append_message(
        self,
        /,
        session_id: str,
        role: str,
        content: Any = None,
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
        **columns: Any,
    ) -> AppendResult:
        """Append a message and return its id, with the revision before and after.

        With `create`, the fields of `create_session`, a session that is not there yet is created
        in the same step. With `expect`, a session that was changed since is a `Conflict`.
        `columns` are those of `MessageRow`; a time that is not given is now.
        """

    def append_messages(
        self,
        session_id: str,
        messages: Iterable[Mapping[str, Any]],
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
    ) -> AppendManyResult:
        """Append messages in one step; each is a mapping of the columns of `MessageRow`."""

    def rewind_to_message(self, session_id: str, target_message_id: int) -> RewindResult:
        """Take back a user message and all that is live after it."""

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Bring back what was rewound since a message; compacted rows stay compacted."""

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> AppendManyResult:
        """Delete all rows, or the live ones, and store others. They are gone at once."""

    def clear_messages(self, session_id: str) -> int:
        """Delete all messages of a session at once; return how many."""


class WindowsProtocol(Protocol):
    """How messages are read."""

    def get_message(self, message_id: int) -> MessageRow | None:
        """Return one message."""

    def find_messages(self, message_ids: Sequence[int]) -> dict[int, MessageRow]:
        """Return messages of one moment by their ids; those that are not there are left out."""

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[MessageRow]:
        """Return the rows of a session in order."""

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        """Return what a model is sent: roles, content, tool calls and reasoning, all decoded.

        Memory that was recalled for one call, and reviews of the conversation, are left out.
        Ancestors are the earlier sessions of the same conversation; Hermes also takes those from
        which a branch or a delegate came.
        """

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
    ) -> MessageWindow:
        """Return the newest messages, or those before, after (exclusive) or around an id."""

    def message_count(self, session_id: str | None = None) -> int:
        """Return how many rows a session has, or all of them."""

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Whether a message of a platform was stored already."""


class ListsProtocol(Protocol):
    """Lists of conversations."""

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[SessionSummary]:
        """List conversations, one line each: no continuations, no delegates, the tips.

        Without a status archived ones are left out. `recent` is by the last message, newest
        first; `size` by the number of live messages.
        """

    def summarize_session(self, session_id: str) -> SessionSummary:
        """Return the line of one session as it would stand in a list."""

    def find_sessions(self, where: SessionFilter) -> list[str]:
        """Return the ids of all rows that match, of every kind, oldest start first."""


class LineageProtocol(Protocol):
    """What sessions are to each other."""

    def get_link_kind(self, session_id: str) -> LinkKind | None:
        """Return what the session is to its parent, None where it has none.

        A delegate is one by its mark, also if it has lost its parent.
        """

    def get_compression_tip(self, session_id: str) -> str:
        """Return the newest continuation of the conversation, itself where there is none."""

    def get_conversation_root(self, session_id: str) -> str:
        """Return the session in which the conversation began.

        A branch and a delegate begin one of their own, where Hermes goes on to their parents.
        """

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """Return the whole conversation from root to tip."""

    def list_children(self, session_id: str) -> list[SessionRow]:
        """Return the sessions whose parent this is, oldest first."""


class SearchProtocol(Protocol):
    """Full-text search."""

    def search(
        self,
        query: str,
        *,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        project: str | None = None,
        roles: Sequence[str] | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchResult:
        """Find messages by words, phrases, prefixes, AND, OR, NOT, or by a substring."""


class CompactionProtocol(Protocol):
    """Compaction, and the lock of whoever compacts."""

    def archive_and_compact(
        self, session_id: str, compacted_messages: Iterable[Mapping[str, Any]]
    ) -> AppendManyResult:
        """Flag all live rows as compacted and append others in their place."""

    def compact_messages(
        self,
        session_id: str,
        message_ids: Sequence[int],
        summary: Iterable[Mapping[str, Any]],
        *,
        carry: Sequence[int] = (),
    ) -> AppendManyResult:
        """Flag messages as compacted, append a summary and behind it copies of those to carry.

        Raises:
            Conflict: one of them is no live message of the session any more.
        """

    def copy_messages(
        self, session_id: str, message_ids: Sequence[int], to_session_id: str
    ) -> AppendManyResult:
        """Append copies of messages to another session, with every column but the id."""

    def restore_compacted(
        self,
        session_id: str,
        message_ids: Sequence[int],
        *,
        copies: Mapping[int, int] | None = None,
        flags: Mapping[int, Sequence[int | None]] | None = None,
        drop: Sequence[int] = (),
    ) -> AppendManyResult:
        """Bring compacted messages back, and delete for good what had been put in their place.

        What `copies` names becomes what its copy is by now, changed or rewound. `flags` are those
        of `active` and `compacted` that a message had which is live again.
        """

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Take the compression lock of a session, or one that has run out; say whether that was."""

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Keep a lock for longer; say no where it was lost."""

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Give a lock back; one that somebody else has taken over stays."""

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who compresses a session just now."""


class TitlesProtocol(Protocol):
    """Titles."""

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set or clear a title; it moves from an ancestor of the same conversation.

        Raises:
            TitleTaken: another conversation has it.
            InvalidInput: it is too long.
        """

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Set a title where there is none; return whether it was set."""

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session."""

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title."""

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the newest session of the lineage of this title, else the one that has it."""

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free title: "Trip", then "Trip #2"."""


class UsageProtocol(Protocol):
    """Tokens and costs."""

    def update_token_counts(
        self, /, session_id: str, *, absolute: bool = False, **counts: Any
    ) -> None:
        """Add to the token and cost columns and to the row of the model, or set them."""

    def record_auxiliary_usage(
        self, /, session_id: str, task: str, *, model: str | None = None, **counts: Any
    ) -> None:
        """Account a call beside the conversation (vision, titles, compression) to its task."""

    def get_model_usage(self, session_id: str) -> list[dict[str, Any]]:
        """Return what each model used in a session."""


class RoutesProtocol(Protocol):
    """Which chat leads to which session."""

    @property
    def has_routing(self) -> bool:
        """Whether this database keeps routes; older Hermes homes have them in a file alone."""

    def get_gateway_routing_entry(self, session_key: str, *, scope: str = "") -> str | None:
        """Return the entry of a key."""

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Return all entries of a scope by their keys."""

    def list_gateway_routing_scopes(self) -> dict[str, int]:
        """Return how many entries each scope has, the one that was written last first."""

    def dump_gateway_routing_entries(
        self,
        *,
        scope: str = "",
        without: Collection[str] = (),
        limit: int = 1000,
        cursor: str | None = None,
    ) -> Page[str]:
        """Return entries of a scope as members of a JSON object, broken ones left out."""

    def save_gateway_routing_entry(
        self, session_key: str, entry_json: str, *, scope: str = "", expect: str | None
    ) -> None:
        """Store one entry, in one row; `expect` is what was read before, None for a new one.

        Raises:
            Conflict: somebody else has changed it since.
        """

    def delete_gateway_routing_entries(
        self, entries: Mapping[str, str], *, scope: str = ""
    ) -> list[str]:
        """Delete entries that are still as they were read; return the keys of those."""

    def find_latest_session_for_peer(
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
        """Return the newest session of a chat: by its key, else by who and where exactly.

        One without messages is none, nor is one that the chat has left for another. With
        `ended_as` it lives or has ended so, with `older_than` it began before that session.
        """


class RowsProtocol(Protocol):
    """Rows as they are stored."""

    def copy_session(
        self,
        /,
        session_id: str,
        to_session_id: str,
        *,
        without: Collection[str] = (),
        **fields: Any,
    ) -> None:
        """Create a session with every column of another but these `fields`; it begins now.

        Columns that are left out get what a new session has there.
        """

    def put_session_fields(self, session_id: str, fields: Mapping[str, Any]) -> bool:
        """Set columns of a session, any that this home has, to what they were; for undo."""

    def read_belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]:
        """Return by table the rows that are deleted with a session, without its messages."""

    def list_routing_rows(self, *session_ids: str) -> list[dict[str, Any]]:
        """Return the routing rows that lead to one of these sessions, of every scope."""

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Put a routing row back as `routing_rows` returned it, in the place of the one there."""

    def read_session_images(self, session_id: str) -> list[RowImages]:
        """Return a session's row and all that belongs to it but its messages, as stored.

        What it refers to in other tables comes as `shared`. Of a session that is not there it is
        what was left behind.
        """

    def read_message_images(
        self, session_id: str, after: int | None, room: int
    ) -> tuple[RowImages, bool]:
        """Return the next messages by id up to `room` bytes, at least one; and if there are more.

        None is before all of them. A row counts 200 bytes more than it holds.
        """

    def read_referring_images(self, images: Iterable[RowImages]) -> list[RowImages]:
        """Return the rows of other tables whose foreign keys lead to these, as stored.

        Theirs too, each once. Who deletes the latter has them deleted or emptied, or is refused.
        """

    def read_row_images(self, table: str, where: Mapping[str, Any]) -> RowImages:
        """Return the rows of a table with these values; none where this home has no such table."""

    def remove_messages(
        self,
        removed: Mapping[str, tuple[Sequence[int], Revision]],
        imaged: Iterable[RowImages] = (),
    ) -> dict[str, Revision]:
        """Delete messages of sessions that are still at a revision; return the revisions after.

        All in one call, since a search index pays for each. The counters stay as they are.
        `imaged` is what they were: where anything was written since, they are compared.

        Raises:
            Changed: a session is at another revision, has not all of them, one is not as in its
                image, others refer to one, or a rule of this home refuses it.
        """

    def remove_rows(self, removed: Iterable[RowImages]) -> None:
        """Delete rows that are still as they were imaged, in any order; shared ones stay.

        Raises:
            Changed: one of them is not as in its image, others belong or refer to it, or a rule of
                this home refuses it.
        """

    def change_row(
        self,
        table: str,
        key: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Set columns of the row with a key which has `before` in some columns.

        Raises:
            Changed: it has not, there is no such row, or a rule of this home refuses it.
        """

    def put_images(
        self, images: Iterable[RowImages], *, of: Collection[str] | None = None
    ) -> PutResult:
        """Put rows back where they are not, in any order; say what was there and what did not fit.

        A row that is there and equal is present. One whose key somebody else has is refused, as is
        one that needs what is gone. A title that was taken, and a parent that is gone, are left out
        of their row, and so is what this home has no column for. In a transaction that is not
        linked nothing needs what is gone. With `of` rows that are of none of these sessions are
        refused: that is for what somebody else has written.
        """


class StopSignal(Protocol):
    """What tells a call that waits to stop: a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def wait(self, timeout: float) -> bool:
        """Wait for it, at most so many seconds."""


class FeedProtocol(Protocol):
    """What was committed since a cursor."""

    def read_changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: StopSignal | None = None,
    ) -> EventPage:
        """Return what was committed since `cursor`; without one, from now on.

        Where there is nothing yet it is waited for, until `stop` is set or the time is over.
        """


StepCallback = Callable[[], object]
"""Called every now and then by work that takes long; what it raises ends that without a trace."""


class UpkeepProtocol(Protocol):
    """What keeps a home small and right."""

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations that never ran; return how many. Acts at once."""

    def prune_empty_ghost_sessions(self) -> int:
        """Delete empty sessions of the terminal without children. Acts at once."""

    def delete_session(self, session_id: str) -> bool:
        """Delete a session, its delegates and all rows that belong to them. Acts at once."""

    def delete_sessions(self, session_ids: Sequence[str]) -> int:
        """Delete several sessions as `delete_session` does; return how many. Acts at once."""

    def recount_session(self, session_id: str) -> bool:
        """Set the counters to what the rows say; return whether they had drifted."""

    def find_drifted_sessions(self, limit: int = 1000) -> list[str]:
        """Return sessions whose counter is not what the rows say."""

    def check_integrity(
        self, *, deep: bool = False, step: StepCallback | None = None
    ) -> list[Finding]:
        """Return what is wrong with the file; `deep` also checks the search index, on a copy."""

    def list_blocked_indexes(self) -> list[BlockedIndex]:
        """Return the search indexes that this process cannot write."""

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Refuse a change that would insert or delete rows of these tables and fail.

        Raises:
            Unsupported: a blocked index is fed by one of them.
        """

    def measure_sizes(self, *, exact: bool = False, step: StepCallback | None = None) -> Sizes:
        """Return bytes by table: estimates at once, or counted in a child process."""

    def list_inventory(self) -> list[InventoryItem]:
        """Return every session, one light row each, all of one moment."""

    def read_health_facts(self) -> HomeFacts:
        """Return what is wrong and how much there is, beside the sessions themselves."""

    def list_claims(self) -> list[Claim]:
        """Return what others have noted in the database that they are at, also if long ago."""

    def optimize_step(self) -> bool:
        """Merge a part of the search indexes, for about 20 ms; return whether there is more to do.

        What is merged finds the same, faster, and takes less room.
        """

    def vacuum(self, *, step: StepCallback | None = None) -> VacuumResult:
        """Write the file anew without its free pages; who writes meanwhile loses nothing.

        Raises:
            Busy: another process has it open, or others keep writing to it.
            StorageFull: there is no room for the copies that it takes meanwhile.
            Denied: the folder of the database takes no copy of it.
        """


__all__ = ["StateDatabase", "StepCallback", "StopSignal"]


class StateDatabase(
    DatabaseProtocol,
    SessionsProtocol,
    UsageProtocol,
    TitlesProtocol,
    MessagesProtocol,
    WindowsProtocol,
    CompactionProtocol,
    RowsProtocol,
    LineageProtocol,
    ListsProtocol,
    SearchProtocol,
    RoutesProtocol,
    UpkeepProtocol,
    FeedProtocol,
    Protocol,
):
    """Sessions, messages, lineage, lists, search, upkeep and the change feed of one home."""
