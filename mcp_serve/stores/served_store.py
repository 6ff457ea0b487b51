"""The methods of a store that tools call, for homes and for transcripts of other agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from session_core.transcripts import TranscriptSummary
from session_core.types import (
    MessageRow,
    MessageWindow,
    Page,
    SearchHit,
    SessionFilter,
    SessionOrder,
    SessionSummary,
)

if TYPE_CHECKING:
    from mcp_serve.stores.home_feed import StoreFeed
    from session_core.ledger import AuditEntry, Batch
    from session_core.state import StoreSearch

Summary = SessionSummary | TranscriptSummary

Position = tuple[float, str, str]
"""A place in a merged list: the value of the order (negative, so that the greatest is first), the
store, and the id in the order."""


@dataclass(frozen=True, slots=True)
class ResolvedSession:
    """A session, and the kind of its reference: 0 id, 1 session key, 2 title, 3 prefix."""

    id: str
    way: int
    transcript_of: str | None = None
    """The store of another agent that has it; None in a home."""


class EditValues(TypedDict, total=False):
    """The values that an edit sets.

    None keeps a value.
    """

    title: str | None
    archived: bool | None
    pinned: bool | None
    reopen: bool


@dataclass(frozen=True, slots=True)
class EditedSessions:
    """Edited sessions as a list shows them, and the batch of the edit.

    The batch is None if nothing changed.
    """

    sessions: Sequence[Summary]
    batch: str | None


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One value of a session that an edit would change."""

    session_id: str
    what: str
    before: Any
    after: Any


class ServedStore(Protocol):
    """A store, or several stores that are read as one.

    `store_name` is shown in answers; it is None if only one store is served. `names` are the stores
    that it has.
    """

    name: str
    store_name: str | None
    names: Sequence[str]
    redacts: bool
    has_long_previews: bool
    """Whether a preview may contain a secret that only its message shows as one."""
    redact: Callable[[str], str]

    @property
    def feed(self) -> StoreFeed:
        """The change feed."""

    def open_snapshot(self) -> AbstractContextManager[object]:
        """Let all reads of this thread in the block see one state."""

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        after: Position | None = None,
    ) -> Page[Summary]:
        """List sessions after a position of a merged list."""

    def summarize_session(self, session_id: str) -> Summary:
        """Return the row of a session.

        Raises:
            NotFound: the session does not exist.
        """

    def list_sources(self) -> Collection[str]:
        """Return the sources of the sessions."""

    def list_folders(self) -> Collection[str]:
        """Return the folders of the sessions."""

    def build_resume_command(self, summary: Summary) -> Sequence[str] | None:
        """Return the command that continues a session in its agent, or None."""

    def find_shown_store(self, source: str) -> str | None:
        """Return the store to show with a session, or None if only one store is served."""

    def list_own_pins(self) -> Collection[str]:
        """Return the sessions that are pinned in our state folder."""

    def match_session(
        self, reference: str, *, exact: bool = False, titles: bool = True
    ) -> ResolvedSession | None:
        """Return the session for a reference, or None.

        With `exact`, the reference is an id or a session key, without `titles` no title.

        Raises:
            InvalidInput: several sessions of a transcript store match.
        """

    def list_nearest_ids(self, reference: str) -> Sequence[str] | None:
        """Return the ids that resemble an unknown id, or None if it exists."""

    def list_lineage(self, session_id: str) -> Sequence[str]:
        """Return the sessions that continue each other, the oldest first."""

    def find_parent(self, session_id: str) -> str | None:
        """Return the session that a session continues, or None."""

    def describe_relatives(self, session_id: str) -> str | None:
        """Return a note on the subagents and forks of a session, and on its parent."""

    def read_window(self, session_id: str, **options: Any) -> MessageWindow:
        """Return the messages next to a message id, or the newest messages."""

    def get_message(self, session_id: str, message_id: int) -> MessageRow | None:
        """Return a message by its id.

        In a home it may belong to another session.
        """

    def read_preview_messages(self, summaries: Iterable[Summary]) -> Mapping[str, MessageRow]:
        """Return the messages that previews were cut from, by session, without missing messages."""

    def open_search(self, query: str, **options: Any) -> AbstractContextManager[StoreSearch]:
        """Open one search, for the reads of a block in an open snapshot."""

    def measure_share(self) -> float:
        """Return the share of the messages that a search sees, which is 1 in a home."""

    def edit_sessions(
        self, session_ids: Sequence[str], values: EditValues, client: str
    ) -> EditedSessions:
        """Edit sessions in one batch.

        Raises:
            InvalidInput: nothing is set, or a title on several sessions.
            Unsupported: the store cannot do that.
        """

    def preview_edit(self, session_ids: Sequence[str], values: EditValues) -> Sequence[ValueChange]:
        """Return the values that an edit would change."""

    def list_batches(self, limit: int, cursor: str | None) -> Page[Batch]:
        """List the batches that can be undone, newest first."""

    def list_audit_entries(self, limit: int, cursor: str | None) -> Page[AuditEntry]:
        """List the recorded changes, newest first."""

    def find_messages(self, hits: Iterable[SearchHit]) -> Mapping[tuple[str, int], MessageRow]:
        """Return the messages of hits, and the replies to them, by session and message id."""


def list_hit_places(hits: Iterable[SearchHit]) -> Iterator[tuple[str, int]]:
    """Yield the session and the id of each hit and of the reply to it."""
    for hit in hits:
        yield hit.session_id, hit.message_id
        if hit.reply_id is not None:
            yield hit.session_id, hit.reply_id
