"""`Maintenance`: see what is wrong in a home, plan, apply exactly that, and take it back.

What maintains a home that can be opened: all its parts, with one session store.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from session_core.compression.types import UndoPlan, UndoResult
from session_core.errors import Corrupt, InvalidInput
from session_core.hooks import Hooks
from session_core.ledger.hook_deliveries import persist_marks
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import AuditEntry, Batch, Member
from session_core.maintenance import health, trash, vacuum
from session_core.maintenance.apply.runner import PlanRunner
from session_core.maintenance.compressions import CompressionRestorer
from session_core.maintenance.edits import EditPreview, EditRequest, EditResult, SessionEditor
from session_core.maintenance.members import get_name
from session_core.maintenance.planner import Planner
from session_core.maintenance.transfer.export import (
    Exporter,
    ExportForm,
    ExportRequest,
    ExportResult,
)
from session_core.maintenance.transfer.import_sessions import Importer
from session_core.maintenance.transfer.import_undo import ImportUndo
from session_core.maintenance.transfer.types import ImportPreview, ImportResult
from session_core.maintenance.trash import Trash
from session_core.maintenance.types import (
    MAX_ITEMS,
    ApplyResult,
    CountFn,
    HealthReport,
    PlanItem,
    PlanPreview,
    PlanRequest,
    ProgressFn,
    RestorePreview,
    RestoreProgressFn,
    RestoreResult,
    StopFn,
)
from session_core.maintenance.vacuum import SpaceReclaimer
from session_core.routing.store import SessionStore, check_database
from session_core.state.protocol import StateDatabase
from session_core.types import Page, SessionFilter

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


DEFAULT_FOR_S = 20.0
"""So long works one call, then it answers how far it is, and the same call goes on."""


class Maintenance:
    """Maintains one home: its health, what may go or end, the way back, edits and exports.

    Nothing is removed, ended or rewritten but by a plan that was applied or by an edit, and both
    are taken back by `restore`. Without a `store` the routes are those of the home's own session
    store, which is closed with this. Instances are safe to share between threads. Of a damaged
    home health, plans, batches and the log can be read; what would change it is refused until it
    is mended.

    Raises:
        InvalidInput: the ledger is that of another home.
    """

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        store: SessionStore | None = None,
        hooks: Hooks | None = None,
        client: str = "library",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._make = partial(MaintenanceParts, db, ledger, store, hooks, client=client, clock=clock)
        self._parts: MaintenanceParts | None = None
        self._lock = threading.Lock()
        with suppress(Corrupt):  # the report says so, and what changes something
            self._require_parts()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the session store that was made here, and nothing that was given."""
        if self._parts is not None:
            self._parts.close()

    def health(
        self,
        *,
        deep: bool = False,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> HealthReport:
        """Return the report on the home; `deep` counts every page, and checks it and the index.

        While it looks deep, `progress` is told twice a second how many of its parts are done, and
        `stop` is asked whether to end: the report then says what it has seen, and that it ended.
        """
        store = self._store if self._parts is None else self._parts.store
        look = partial(health.examine_home, self._db, self._ledger, store, self._clock())
        return look(deep=deep, progress=progress, stop=stop)

    def plan(self, wanted: PlanRequest) -> PlanPreview:
        """Record what would be changed, and say what and why, and what is protected.

        Raises:
            InvalidInput: there is no such kind of plan, or it makes no sense.
            NotFound: one of the sessions that are named is not there.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        parts = self._require_parts()
        if wanted.kind == trash.PLAN_KIND:
            return parts.trash.plan_emptying(wanted.older_than_days, wanted.ids)
        if wanted.kind == vacuum.PLAN_KIND:
            return parts.reclaim.make_plan()
        return parts.planner.make_plan(wanted)

    def get_plan(self, plan: str, items: int = MAX_ITEMS) -> PlanPreview:
        """Return once more what a plan said when it was made, with so many of its things.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out.
            InvalidInput: it is to say nothing of them.
        """
        if items < 1:
            raise InvalidInput(f"items is {items}; at least 1")
        found = self._ledger.get_plan(plan)
        said = PlanPreview.from_plan(found)
        if len(said.items) == MAX_ITEMS:
            more = (self._describe_member(each) for each in found.members[MAX_ITEMS:items])
            said = replace(said, items=(*said.items, *more))
        return replace(said, items=said.items[:items])

    def _describe_member(self, member: Member) -> PlanItem:
        """Return one of those that a plan has not said, as it is called now."""
        name = get_name(member)
        row = self._db.get_session(name)
        return PlanItem(name, None if row is None else row["title"], member.why)

    def close_plan(self, plan: str) -> None:
        """End a plan that is not wanted; what was done of it stays, and its batch takes it back.

        A conversation of which only a part was removed is put back whole.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
            Busy: somebody applies it at this moment, and takes long.
        """
        if "wanted" in self._ledger.get_plan(plan).about:
            runner = self._require_parts().runner
            runner.stop_plan(plan)
            runner.recover_from_crash()
        else:
            self._ledger.close_plan(plan)

    def apply(
        self,
        plan: str,
        for_s: float = DEFAULT_FOR_S,
        *,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> ApplyResult | UndoResult:
        """Do what was planned, or go on with it; what has changed since is left, and said.

        At least until the first step is done, at most for so many seconds and until `stop` says
        yes between two steps; the same call goes on. `progress` is told twice a second what was
        done so far. A plan that was applied answers what it came to, and changes nothing. What
        compression has done is taken back in one step, which neither is asked about.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out, was closed, or what it has done was taken back.
            Denied: a live gateway would overwrite the change of its routes; stop that first.
            InvalidInput: it is the plan of a compression, which its compressor applies.
            Busy: somebody else applies it, and takes long.
        """
        if for_s < 0:
            raise InvalidInput(f"for_s is {for_s}; 0 or more")
        parts = self._require_parts()
        planned = self._ledger.get_plan(plan)
        kind = planned.kind
        if "wanted" not in planned.about:  # the runner does so itself
            self.settle()
        if kind == CompressionRestorer.KIND:
            return parts.compressions.apply_plan(plan)
        if kind == ImportUndo.KIND:
            return parts.import_undo.apply_undo(plan, for_s, progress, stop)
        if kind == trash.PLAN_KIND:
            return parts.trash.apply_plan(plan, for_s=for_s, progress=progress, stop=stop)
        if kind == vacuum.PLAN_KIND:
            return parts.reclaim.apply_plan(plan, for_s=for_s, progress=progress, stop=stop)
        if "wanted" not in planned.about:
            raise InvalidInput(f"plan {plan} is one to {kind}; it is not applied here")
        return parts.runner.apply_plan(plan, for_s, progress, stop)

    def settle(self) -> None:
        """Decide the steps that a crash has left, and finish what was to follow them.

        Every change that is made here does so first; a compressor settles compressions alone.
        """
        self._require_parts().runner.recover_from_crash()

    def restore(
        self,
        batch: str,
        for_s: float = DEFAULT_FOR_S,
        *,
        progress: RestoreProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> RestoreResult | UndoResult | UndoPlan | PlanPreview:
        """Take back what a batch has done, or go on with that; where it would drop something, plan.

        An import is always planned: taking it back removes what came in, which is a batch itself.

        `stop` ends it between two steps. What does not fit is said and stays in the trash, and the
        same call tries that once more. Of a trash that is damaged in part the rest comes back.

        Raises:
            NotFound: there is no such batch.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: it has itself taken something back.
            Conflict: it was taken back already, or its trash is gone.
            Denied: a live gateway would overwrite the routes that come back; stop that first.
            Corrupt: nothing of its trash can be read, or the home is damaged.
            Busy: somebody applies its plan at this moment, and takes long.
        """
        parts = self._require_parts()
        if parts.compressions.is_compression(batch):
            return parts.compressions.undo_batch(batch)
        if parts.import_undo.is_import(batch):
            self._ledger.get_undoable_batch(batch)
            parts.import_undo.note_undone_steps(batch)  # of an undo that was cut short, or prunes
            return parts.import_undo.plan_undo(batch)
        found = self._ledger.get_batch(batch)
        parts.runner.log_progress(found)
        parts.runner.recover_from_crash(but=found.plan)
        return parts.runner.restoring.restore_batch(batch, for_s, progress, stop)

    def preview_restore(self, batch: str) -> RestorePreview | UndoPlan | PlanPreview:
        """Return what a restore of a batch would bring back; where it would drop something, a plan.

        Raises:
            NotFound: there is no such batch.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: it has itself taken something back.
            Conflict: it was taken back already, or its trash is gone.
            Corrupt: its trash cannot be read, or the home is damaged.
        """
        parts = self._require_parts()
        if parts.compressions.is_compression(batch):
            return parts.compressions.preview_undo(batch)
        if parts.import_undo.is_import(batch):
            return parts.import_undo.plan_undo(batch)
        parts.runner.recover_from_crash(but=self._ledger.get_batch(batch).plan)
        return parts.runner.restoring.preview_batch(batch)

    def edit(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        reopen: bool = False,
    ) -> EditResult:
        """Change a session at once: a title is its own, archive and pin are of its conversation.

        An empty title is none. One that went on after a compression is reopened at its tip.

        Raises:
            NotFound: there is no such session.
            InvalidInput: nothing is asked for, or the title is too long.
            TitleTaken: another conversation has it.
            Unsupported: this home has no column for it.
            Changed: somebody else changes it all the time.
        """
        return self._require_parts().edits.edit_session(
            session_id, EditRequest(title, archived, pinned, reopen)
        )

    def preview_edit(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        reopen: bool = False,
    ) -> tuple[EditPreview, ...]:
        """Return what `edit` would change, and change nothing; none where it is so already.

        Raises:
            NotFound: there is no such session.
            InvalidInput: nothing is asked for, or the title is too long.
            TitleTaken: another conversation has it.
            Unsupported: this home has no column for it.
        """
        return self._require_parts().edits.preview_edit(
            session_id, EditRequest(title, archived, pinned, reopen)
        )

    def export_sessions(
        self,
        to: str | os.PathLike[str] | Callable[[bytes], object],
        sessions: Sequence[str] | None = None,
        *,
        where: SessionFilter | None = None,
        form: ExportForm = "jsonl",
        whole: bool = True,
        progress: CountFn | None = None,
    ) -> ExportResult:
        """Write sessions, all where none are named; `whole` takes their conversations along.

        A filter applies to those that are named too; without a status nothing in the archive is
        true of it. A file is whole or not there, and its owner alone may read it. A folder that is
        there has a file for each conversation, and what it had stays. A function is given the bytes
        as they come.

        Raises:
            NotFound: one of them is not there.
            Conflict: there is a file of that name; it stays as it is.
        """
        exporting = self._require_parts().exporting
        wish = ExportRequest(sessions, where, form, whole, progress)
        if callable(to):
            return exporting.write_sessions(to, wish)
        path = Path(to)
        if path.is_dir():
            return exporting.write_folder(path, wish)
        return exporting.write_file(path, wish)

    def preview_import(
        self, path: str | os.PathLike[str], *, progress: CountFn | None = None
    ) -> ImportPreview:
        """Return what an import of a file would bring, and what it would leave out and why.

        `progress` is told how many bytes of how many are read.

        Raises:
            NotFound: there is no such file.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        return self._require_parts().importing.preview_file(Path(path), progress=progress)

    def import_sessions(
        self,
        path: str | os.PathLike[str],
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> ImportResult:
        """Import what was exported as JSON Lines, here or by Hermes; the same call goes on with it.

        A session that is there stays as it is, also where a line says that it is its parent, and a
        line that does not fit stops no other. Routes, chats and hand-offs of the file are dropped.
        The batch of the answer takes it back.

        Raises:
            NotFound: there is no such file.
            Unsupported: an index of the home needs an extension that is not loaded.
            Conflict: it was taken back meanwhile, or another process imports the same file.
        """
        self.settle()
        return self._require_parts().importing.import_file(Path(path), progress=progress, stop=stop)

    def batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List what can be taken back, and what was unless `undone` is false, newest first."""
        return self._ledger.list_batches(limit, cursor, undone=undone)

    def log(self, limit: int = 20, cursor: str | None = None) -> Page[AuditEntry]:
        """List who has changed what, newest first."""
        return self._ledger.list_audit_entries(limit, cursor)

    def _require_parts(self) -> MaintenanceParts:
        """Return its parts, which a damaged home has none of until it is mended.

        Raises:
            Corrupt: it is damaged.
        """
        with self._lock:
            self._parts = self._parts or self._make()
            return self._parts


class MaintenanceParts:
    """The parts of a maintenance; without a `store` that of the home itself, closed with them.

    Raises:
        InvalidInput: the ledger is that of another home, or the store is.
        Denied: the ledger would write into a Hermes home.
        Corrupt: the home is damaged.
    """

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks | None,
        *,
        client: str,
        clock: Callable[[], float],
    ) -> None:
        ledger.check_home(db)
        if store is not None:
            check_database(store, db)
        hooks = hooks or (store.hooks if store is not None else None) or Hooks()
        self._own_store = _open_store(db, hooks) if store is None else None
        self.store = store = store or self._own_store
        self.planner = Planner(db, ledger, store, clock=clock)
        self.runner = PlanRunner(db, ledger, store, hooks, self.planner, client=client, clock=clock)
        self.trash = Trash(ledger, client=client, clock=clock)
        self.reclaim = SpaceReclaimer(
            db, ledger, client=client, clock=clock, scene=self.planner.take_snapshot
        )
        self.compressions = CompressionRestorer(
            db, ledger, store, hooks, client=client, clock=clock
        )
        self.edits = SessionEditor(
            db, ledger, store, client=client, take_up=self.runner.recover_from_crash
        )
        self.exporting = Exporter(db, ledger, client=client)
        self.importing = Importer(db, ledger, client=client)
        self.import_undo = ImportUndo(db, ledger, self.planner, self.runner)

    def close(self) -> None:
        """Close the session store that was made here, and nothing that was given."""
        if self._own_store is not None:
            self._own_store.close()


def _open_store(db: StateDatabase, hooks: Hooks) -> SessionStore | None:
    if db.folder is None:
        return None
    store = SessionStore.open(db.folder, db, hooks=hooks)
    persist_marks(store, db)
    return store
