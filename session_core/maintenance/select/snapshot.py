"""A snapshot of a home, its conversations that match a filter, and the average size of a message.

A filter applies to the tip of a conversation, as in a list, and `started_*` to its root. Data of a
missing session matches no filter.

The average message size is measured over the whole home. A deletion or a merge changes it without
any message coming or going faster, so it is recorded with each plan, and the value of an applied
plan is used for four weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.maintenance import disk
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.select.conversations import Conversation, ConversationIndex
from session_core.maintenance.types import PlanRequest
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import InventoryItem, SessionFilter, Sizes

NO_FILTER = SessionFilter()

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class MaintenanceSnapshot:
    """A home at one moment, as every kind of plan sees it."""

    db: StateDatabase
    conversations: ConversationIndex
    activity: ActivitySnapshot
    store: SessionStore | None = None
    kept: Collection[str] = ()
    """The sessions that the request keeps."""

    @property
    def now(self) -> float:
        """The time of the snapshot."""
        return self.activity.company.at

    @property
    def rows(self) -> int:
        """The number of messages in the home."""
        return sum(session.rows for session in self.conversations.sessions.values())

    def get_cutoff(self, request: PlanRequest) -> float:
        """Return the latest time that the last activity may have.

        Raises:
            InvalidInput: the age is negative or not finite.
        """
        days = request.age_days
        if not 0 <= days < float("inf"):
            raise InvalidInput(f"older_than_days must be >= 0, got {days}")
        return self.now - days * _DAY_S

    def estimate_bytes(self, rows: int, sizes: Sizes | None) -> int:
        """Return about how many bytes this many messages take, with their indexes."""
        total = self.rows
        return disk.estimate_used_bytes(sizes) * rows // total if sizes is not None and total else 0

    def iter_matching(self, where: SessionFilter) -> Iterable[Conversation]:
        """Return the conversations that match a filter.

        A filter without a status excludes archived conversations.
        """
        return iter_matching(self.db, self.conversations, where)

    def list_unmatched(self, ids: Iterable[str], where: SessionFilter) -> list[str]:
        """Return the named sessions with conversations that do not match a filter."""
        if where == NO_FILTER:
            return []
        # A named session matches also if it is archived.
        anywhere = replace(where, status=where.status or "all")
        matching = {
            session.id
            for conversation in self.iter_matching(anywhere)
            for session in conversation.sessions
        }
        sessions = self.conversations.sessions
        return [id_ for id_ in ids if id_ in sessions and id_ not in matching]

    def build_session_filter(self, where: SessionFilter) -> Callable[[InventoryItem], bool]:
        """Return a function that matches a session against a filter.

        A filter without a status includes archived sessions.
        """
        if where == NO_FILTER:
            return lambda _: True
        ids = set(self.db.find_sessions(replace(where, status=where.status or "all")))
        return lambda session: session.id in ids


def take_snapshot(home: HomeContext) -> MaintenanceSnapshot:
    """Return a snapshot of the home."""
    activity = home.gather_activity()
    return MaintenanceSnapshot(
        home.db, ConversationIndex(home.db.admin.list_inventory()), activity, home.store
    )


def iter_matching(
    db: StateDatabase, conversations: ConversationIndex, where: SessionFilter
) -> Iterable[Conversation]:
    """Return the conversations that match a filter.

    A filter without a status excludes archived conversations.
    """
    rest = replace(
        where, started_after=None, started_before=None, active_after=None, active_before=None
    )
    matching: Iterable[Conversation] = conversations.all
    # Avoid a query of the whole list if there is nothing to filter by.
    if rest == NO_FILTER:
        matching = (conversation for conversation in matching if not conversation.tip.archived)
    else:
        ids = set(db.find_sessions(rest))
        matching = (conversation for conversation in matching if conversation.tip.id in ids)
    return (
        matching
        if rest == where
        else (conversation for conversation in matching if _is_within_times(conversation, where))
    )


def _is_within_times(conversation: Conversation, where: SessionFilter) -> bool:
    started, active = conversation.root.started_at, conversation.last_active_at
    return (
        (where.started_after is None or started >= where.started_after)
        and (where.started_before is None or started < where.started_before)
        and (where.active_after is None or active is None or active >= where.active_after)
        and (where.active_before is None or active is None or active < where.active_before)
    )


MEASUREMENT_NAME = "message_bytes"
"""The key of the measurement in the record of a plan."""

GROWTH_WEEKS = 4
_KEPT_S = GROWTH_WEEKS * 7 * 86_400.0


def measure_message_bytes(
    ledger: Ledger, snapshot: MaintenanceSnapshot, measure_sizes: Callable[[], Sizes | None]
) -> dict[str, Any]:
    """Return the bytes of an average message, and the time of the measurement."""
    # A prune moves the average, so a new measurement after it would look like growth.
    recorded = ledger.find_recorded_value(MEASUREMENT_NAME)
    if recorded is not None and snapshot.now - recorded["at"] < _KEPT_S:
        return dict(recorded)
    rows = snapshot.rows
    return {
        "bytes": snapshot.estimate_bytes(rows, measure_sizes()) / rows if rows else 0.0,
        "at": snapshot.now,
    }
