"""A home as it was at one moment, which every kind looks at, and which of it a filter is true of.

A filter is judged by the tip of a conversation, which is its line in a list, `started_*` by its
root. Of what belongs to a session that is not there nothing can be said: no filter is true of it.

What a message takes on the disk, for the figures on growth.

It is measured over the whole home. A deletion moves that average, and so does a merge, although no
message came or went faster. So the average is recorded with each plan, and the one of an applied
plan counts for four weeks from its measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.maintenance import disk
from session_core.maintenance.select.conversations import Conversation, ConversationIndex
from session_core.maintenance.types import PlanRequest
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import InventoryItem, SessionFilter, Sizes

NO_FILTER = SessionFilter()

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class MaintenanceSnapshot:
    """What every kind looks at: a home as it was at one moment."""

    db: StateDatabase
    conversations: ConversationIndex
    alive: ActivitySnapshot
    store: SessionStore | None = None

    @property
    def now(self) -> float:
        """The moment."""
        return self.alive.company.at

    @property
    def rows(self) -> int:
        """Return how many messages the home has."""
        return sum(each.rows for each in self.conversations.stocks.values())

    def get_cutoff(self, wanted: PlanRequest) -> float:
        """Return before which time something has to have been active last.

        Raises:
            InvalidInput: that is no age.
        """
        days = wanted.age_days
        if not 0 <= days < float("inf"):
            raise InvalidInput(f"older_than_days is {days}; 0 or more")
        return self.now - days * _DAY_S

    def estimate_bytes(self, rows: int, sizes: Sizes | None) -> int:
        """Return about what so many messages take, with all that the database keeps of them."""
        total = self.rows
        return disk.estimate_used(sizes) * rows // total if sizes is not None and total else 0

    def iter_matching(self, where: SessionFilter) -> Iterable[Conversation]:
        """Return the conversations that a filter is true of; without a status none in archive."""
        return iter_matching(self.db, self.conversations, where)

    def list_unmatched(self, ids: Iterable[str], where: SessionFilter) -> list[str]:
        """Return those of the named sessions of whose conversations a filter is not true."""
        if where == NO_FILTER:
            return []
        anywhere = replace(where, status=where.status or "all")
        matching = {each.id for found in self.iter_matching(anywhere) for each in found.sessions}
        return [each for each in ids if each in self.conversations.stocks and each not in matching]

    def build_session_filter(self, where: SessionFilter) -> Callable[[InventoryItem], bool]:
        """Return whether a filter is true of a session itself; without a status also in archive."""
        if where == NO_FILTER:
            return lambda _: True
        ids = set(self.db.find_sessions(replace(where, status=where.status or "all")))
        return lambda stock: stock.id in ids


def iter_matching(
    db: StateDatabase, conversations: ConversationIndex, where: SessionFilter
) -> Iterable[Conversation]:
    """Return the conversations that a filter is true of; without a status none in archive."""
    rest = replace(
        where, started_after=None, started_before=None, active_after=None, active_before=None
    )
    found: Iterable[Conversation] = conversations.all
    if rest == NO_FILTER:
        found = (each for each in found if not each.tip.archived)
    else:
        ids = set(db.find_sessions(rest))
        found = (each for each in found if each.tip.id in ids)
    return found if rest == where else (each for each in found if _is_within_times(each, where))


def _is_within_times(conversation: Conversation, where: SessionFilter) -> bool:
    started, active = conversation.root.started_at, conversation.last_active_at
    return (
        (where.started_after is None or started >= where.started_after)
        and (where.started_before is None or started < where.started_before)
        and (where.active_after is None or active is None or active >= where.active_after)
        and (where.active_before is None or active is None or active < where.active_before)
    )


MEASUREMENT_NAME = "message_bytes"
"""Under which name a plan records it."""

GROWTH_WEEKS = 4
_KEPT_S = GROWTH_WEEKS * 7 * 86_400.0


def measure_message_bytes(
    ledger: Ledger, scene: MaintenanceSnapshot, sizes: Sizes | None
) -> dict[str, Any]:
    """Return the bytes of an average message, and when they were measured."""
    recorded = ledger.find_recorded_value(MEASUREMENT_NAME)
    if recorded is not None and scene.now - recorded["at"] < _KEPT_S:
        return dict(recorded)
    rows = scene.rows
    return {"bytes": scene.estimate_bytes(rows, sizes) / rows if rows else 0.0, "at": scene.now}
