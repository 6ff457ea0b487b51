"""The collaborators of a plan's application, and the executor of each part."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from session_core import activity
from session_core.activity import ActivitySnapshot
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.maintenance import health
from session_core.maintenance.apply import finalize, orphans, routes
from session_core.maintenance.apply.sessions import SessionRemover
from session_core.maintenance.apply.step_items import StepPrefetch
from session_core.maintenance.members import Part, PartExecutor, PlanProgress
from session_core.maintenance.planner import Planner
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase


@dataclass(frozen=True, slots=True)
class ApplyContext:
    """The collaborators with which a plan is applied."""

    db: StateDatabase
    ledger: Ledger
    store: SessionStore | None
    hooks: Hooks
    planner: Planner
    clock: Callable[[], float]
    settle: Callable[[], None]
    """Settles the steps that a crash has left."""

    @property
    def pins_reader(self) -> Callable[[], Collection[str]]:
        """The function that lists the sessions pinned in our own pin file."""
        return self.ledger.pins.list_pinned

    def gather_activity(self) -> ActivitySnapshot:
        """Return the current activity: holders, gateway, leases and routes."""
        return activity.gather_activity(self.db, self.store, self.clock(), self.pins_reader())

    def create_executor(
        self,
        part: Part,
        plan: StoredPlan,
        progress: PlanProgress,
        get_activity: Callable[[], ActivitySnapshot],
        prefetch: StepPrefetch,
    ) -> PartExecutor:
        """Return the executor of a part of a plan."""
        request, folder = plan.about["wanted"], health.get_session_folder(self.db, self.store)
        if part in ("sessions", "ghosts"):
            return SessionRemover(
                self.db, get_activity, progress, folder, prefetch, pinned=self.pins_reader
            )
        if part == "ended":
            return finalize.SessionFinalizer(
                self.db,
                get_activity,
                progress,
                self.store,
                self.hooks,
                what=request["what"],
                start_new=request["start_new"],
                clock=self.clock,
                pinned=self.pins_reader,
            )
        if part == "routes" and self.store is not None:
            return routes.LostRouteRemover(
                self.db, self.store, get_activity, self.planner.take_snapshot
            )
        if part == "links":
            return orphans.BrokenLinkRemover(self.db)
        if part == "files" and folder is not None:
            return orphans.OrphanedFileRemover(self.db, get_activity, folder)
        remover = orphans.OrphanedRowRemover if part == "rows" else orphans.DeadLockRemover
        return remover(self.db, get_activity)
