"""What the next step removes, and how much of it there is room for.

Work that is done beside: the next step is read and made durable while one is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from session_core.ledger.execute import PreparedStep, discard_step
from session_core.ledger.execute import prepare_step as prepare
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import TrashItem
from session_core.maintenance.members import RowChange, SessionGroup
from session_core.types import RawText, Revision, RowImages

IMAGES, OF = "images", "of"
"""Rows as they were; and of a session whose row stays for now, when it began."""

SESSION_BYTES = 1_000
"""What a session counts beside its messages."""

_ROW_BYTES = 200

SessionRole = Literal["whole", "detached"]


@dataclass(slots=True)
class StepItems:
    """What the next step removes."""

    room: int
    size: int
    before: StepItems | None = None
    """What the step before removes, which may still be there."""
    members: list[str] = field(default_factory=list)
    members_by_session: dict[str, str] = field(default_factory=dict)
    """By session, the member that it is of; also those that come later."""
    messages: dict[str, tuple[list[int], SessionGroup]] = field(default_factory=dict)
    message_rows: list[RowImages] = field(default_factory=list)
    rows: list[RowImages] = field(default_factory=list)
    dependent_rows: list[RowImages] = field(default_factory=list)
    """What other tables have of it or refers to it, which goes first."""
    partial_sessions: dict[str, Any] = field(default_factory=dict)
    """Sessions of which only messages go, and when they began."""
    whole: list[str] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    detached: set[str] = field(default_factory=set)
    """Sessions that lose their parent in it, so that their rows are not what they were."""
    prepared: PreparedStep | None = None
    """The step, where what would undo it is durable already."""
    after: dict[str, Revision] | None = None
    """At which revision it leaves what it has begun; None before."""

    def is_in_previous_step(self, kind: SessionRole, session_id: str) -> bool:
        """Whether the step before does something with a session that may not be seen yet."""
        return self.before is not None and session_id in getattr(self.before, kind)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken."""
        return self.room <= 0

    def exclude_dependent_rows(self, images: RowImages) -> RowImages:
        """Return rows but those that go already since they refer to others."""
        gone = {
            (each.table, row)
            for taken in (self, self.before)
            for each in (taken.dependent_rows if taken is not None else ())
            for row in each.rows
        }
        if not gone:
            return images
        left = tuple(row for row in images.rows if (images.table, row) not in gone)
        return replace(images, rows=left)

    def get_last_message_id(self, session_id: str) -> int | None:
        """Return up to which message it removes a session, None where at none."""
        ids, _ = self.messages.get(session_id, ([], None))
        return max(ids, default=None)


def estimate_size(images: RowImages) -> int:
    """Return what messages count, roughly as `message_images` counts them."""
    held = [len(value) for row in images.rows for value in row if type(value) in _SIZED_TYPES]
    return _ROW_BYTES * len(images.rows) + sum(held)


_SIZED_TYPES = frozenset({str, bytes, RawText})


class PrefetchedItems(Protocol):
    """What the next step takes."""

    prepared: PreparedStep | None


class StepPrefetch:
    """Does one thing at a time in a thread of its own; `close` waits for what is under way."""

    def __init__(self, ledger: Ledger, batch: str) -> None:
        self._ledger = ledger
        self._batch = batch
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[Any] | None = None

    def prepare_step(self, kept: Iterable[TrashItem], members: Sequence[str]) -> PreparedStep:
        """Make durable what would undo a step that is not its turn yet."""
        return prepare(self._ledger, self._batch, kept, members)

    def start(self, work: Callable[[], PrefetchedItems | None]) -> None:
        """Begin with something; what was begun before is waited for, and thrown away."""
        self.discard()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mcp-sessions-aside")
        self._under_way = self._pool.submit(work)

    def take_result(self) -> Any:
        """Return what the last thing has come to; None where nothing has, or it failed."""
        future, self._under_way = self._under_way, None
        if future is None or isinstance(future.exception(), Exception):
            return None
        return future.result()

    def discard(self, ahead: PrefetchedItems | None = None) -> None:
        """Throw away what was taken ahead, else what the last thing has come to."""
        found: PrefetchedItems | None = ahead or self.take_result()
        if found is not None and found.prepared is not None:
            discard_step(self._ledger, found.prepared)

    def close(self) -> None:
        """Wait for what is under way, throw it away, and end the thread."""
        pool, self._pool = self._pool, None
        try:
            self.discard()
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
