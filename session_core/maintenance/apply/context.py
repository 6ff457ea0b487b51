"""What the plans of a home are applied with, and what does each part of one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from session_core import activity
from session_core.activity import Alive
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Plan
from session_core.maintenance import health
from session_core.maintenance.apply import finalize, orphans, routes
from session_core.maintenance.apply.sessions import Removal
from session_core.maintenance.apply.step_items import Aside
from session_core.maintenance.members import Doing, Part, Progress
from session_core.maintenance.planner import Planner
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase


@dataclass(frozen=True, slots=True)
class Means:
    """What a plan is applied with."""

    db: StateDatabase
    ledger: Ledger
    store: SessionStore | None
    hooks: Hooks
    planner: Planner
    clock: Callable[[], float]
    settle: Callable[[], None]
    """Decides the steps that a crash has left."""

    @property
    def pinned(self) -> Callable[[], Collection[str]]:
        """What says which sessions we have pinned."""
        return self.ledger.pins.all

    def gather(self) -> Alive:
        """Return who is alive now."""
        return activity.gather(self.db, self.store, self.clock(), self.pinned())

    def doing(
        self,
        part: Part,
        plan: Plan,
        progress: Progress,
        there: Callable[[], Alive],
        aside: Aside,
    ) -> Doing:
        """Return what does a part of a plan."""
        wanted, folder = plan.about["wanted"], health.folder_of(self.db, self.store)
        if part in ("sessions", "ghosts"):
            return Removal(self.db, there, progress, folder, aside, pinned=self.pinned)
        if part == "ended":
            return finalize.Finalize(
                self.db,
                there,
                progress,
                self.store,
                self.hooks,
                what=wanted["what"],
                start_new=wanted["start_new"],
                clock=self.clock,
                pinned=self.pinned,
            )
        if part == "routes" and self.store is not None:
            return routes.Rerouting(self.db, self.store, there, self.planner.scene)
        if part == "links":
            return orphans.Links(self.db)
        if part == "files" and folder is not None:
            return orphans.Files(self.db, there, folder)
        rows = orphans.Rows if part == "rows" else orphans.Locks
        return rows(self.db, there)
