"""The items that the next step removes, and their prefetch in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from session_core.activity import ActivitySnapshot
from session_core.ledger.execute import PreparedStep, discard_step
from session_core.ledger.execute import prepare_step as prepare
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan, TrashItem
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import PlanProgress, RowChange, SessionGroup
from session_core.types import RawText, Revision, RowImages

IMAGES, OF = "images", "of"
"""The kinds of trash items: row images; and the start time of a session whose row stays for now."""

SESSION_BYTES = 1_000
"""The estimated size of a session without its messages."""

_ROW_BYTES = 200

SessionRole = Literal["whole", "detached"]


@dataclass(slots=True)
class StepItems:
    """The items that the next step removes."""

    remaining_bytes: int
    size: int
    before: StepItems | None = None
    """The items of the step before, which may not be removed yet."""
    members: list[str] = field(default_factory=list)
    members_by_session: dict[str, str] = field(default_factory=dict)
    """The member of each session, also of sessions that a later step removes."""
    messages: dict[str, tuple[list[int], SessionGroup]] = field(default_factory=dict)
    message_rows: list[RowImages] = field(default_factory=list)
    rows: list[RowImages] = field(default_factory=list)
    dependent_rows: list[RowImages] = field(default_factory=list)
    """Rows of other tables that belong or refer to the sessions; they are removed first."""
    partial_sessions: dict[str, Any] = field(default_factory=dict)
    """Sessions of which only messages are removed, with their start times."""
    whole: list[str] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    detached: set[str] = field(default_factory=set)
    """Sessions that lose their parent in this step, so that their rows change."""
    prepared: PreparedStep | None = None
    """The prepared step, if its undo is durable already."""
    after: dict[str, Revision] | None = None
    """The revisions of partly removed sessions after the step; None before it has run."""

    def is_in_previous_step(self, kind: SessionRole, session_id: str) -> bool:
        """Return True if the previous step, which may not be visible yet, affects a session."""
        return self.before is not None and session_id in getattr(self.before, kind)

    @property
    def is_full(self) -> bool:
        """Return True if no more items fit in the step."""
        return self.remaining_bytes <= 0

    def exclude_dependent_rows(self, images: RowImages) -> RowImages:
        """Return images without the rows that are removed as dependent rows already."""
        removed = {
            (dependent.table, row)
            for items in (self, self.before)
            for dependent in (items.dependent_rows if items is not None else ())
            for row in dependent.rows
        }
        if not removed:
            return images
        remaining = tuple(row for row in images.rows if (images.table, row) not in removed)
        return replace(images, rows=remaining)

    def get_last_message_id(self, session_id: str) -> int | None:
        """Return the highest message id that the step removes of a session, or None."""
        ids, _ = self.messages.get(session_id, ([], None))
        return max(ids, default=None)


def estimate_size(images: RowImages) -> int:
    """Return the size of messages, roughly as `read_message_images` counts it."""
    sizes = [len(value) for row in images.rows for value in row if type(value) in _SIZED_TYPES]
    return _ROW_BYTES * len(images.rows) + sum(sizes)


_SIZED_TYPES = frozenset({str, bytes, RawText})


class PrefetchedItems(Protocol):
    """Prefetched items of the next step."""

    prepared: PreparedStep | None


class StepPrefetch:
    """Runs one job at a time in a thread of its own.

    `close` waits for the job and ends the thread.
    """

    def __init__(self, ledger: Ledger, batch: str) -> None:
        self._ledger = ledger
        self._batch = batch
        self._pool: ThreadPoolExecutor | None = None
        self._future: Future[Any] | None = None

    def prepare_step(
        self, trash_items: Iterable[TrashItem], members: Sequence[str]
    ) -> PreparedStep | None:
        """Make the undo of a later step durable, unless the ledger stores it with the step."""
        if self._ledger.shares_transactions:
            return None
        return prepare(self._ledger, self._batch, trash_items, members)

    def start_job(self, work: Callable[[], PrefetchedItems | None]) -> None:
        """Start a job, after waiting for the previous one and discarding its result."""
        self.discard_items()
        if self._pool is None:
            # The thread starts with the first job: most plans fit into one step.
            self._pool = ThreadPoolExecutor(1, "mcp-sessions-aside")
        self._future = self._pool.submit(work)

    def take_result(self) -> Any:
        """Return the result of the last job, or None if there is none or it failed."""
        future, self._future = self._future, None
        # A failed prefetch is only lost work: the step is drafted again and raises in its turn.
        if future is None or isinstance(future.exception(), Exception):
            return None
        return future.result()

    def discard_items(self, items: PrefetchedItems | None = None) -> None:
        """Discard prefetched items, or the result of the last job."""
        discarded: PrefetchedItems | None = items or self.take_result()
        if discarded is not None and discarded.prepared is not None:
            discard_step(self._ledger, discarded.prepared)

    def close(self) -> None:
        """Wait for the current job, discard its result and end the thread."""
        pool, self._pool = self._pool, None
        try:
            self.discard_items()
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class PartRun:
    """One call that applies a plan, as the executor of a part sees it."""

    home: HomeContext
    plan: StoredPlan
    progress: PlanProgress
    get_activity: Callable[[], ActivitySnapshot]
    """Return the activity of the home, gathered a moment ago."""
    prefetch: StepPrefetch
