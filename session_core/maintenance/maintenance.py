"""`Maintenance`: report on a home, plan changes, apply exactly that, and restore."""

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
"""How long one call works before it returns its progress; the same call continues."""


class Maintenance:
    """Maintenance of one home: health, plans, restores, edits, exports and imports.

    Sessions are removed, ended or rewritten only by an applied plan or by an edit, and `restore`
    undoes both. Without a `store` the routes are those of the home's own session store, which is
    closed with this object. Instances may be shared between threads. In a damaged home health,
    plans, batches and the log can be read; changes are refused until it is repaired.

    Raises:
        InvalidInput: the ledger belongs to another home.
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
        with suppress(Corrupt):  # the report includes it, and each change raises it
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
        """Close the session store if it was opened here; leave objects of the caller open."""
        if self._parts is not None:
            self._parts.close()

    def health(
        self,
        *,
        deep: bool = False,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> HealthReport:
        """Return the report on the home; `deep` counts every page and checks file and index.

        During a deep check, `progress` is called twice a second with the number of finished parts,
        and `stop` may end it: the report then has the results so far and a finding that the check
        was stopped.
        """
        store = self._store if self._parts is None else self._parts.store
        examine = partial(health.examine_home, self._db, self._ledger, store, self._clock())
        return examine(deep=deep, progress=progress, stop=stop)

    def plan(self, wanted: PlanRequest) -> PlanPreview:
        """Record the changes of a request; return them with their reasons and the protected items.

        Raises:
            InvalidInput: the kind of plan is unknown, or the request is inconsistent.
            NotFound: a named session does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        parts = self._require_parts()
        if wanted.kind == trash.PLAN_KIND:
            return parts.trash.plan_emptying(wanted.older_than_days, wanted.ids)
        if wanted.kind == vacuum.PLAN_KIND:
            return parts.reclaim.make_plan()
        return parts.planner.make_plan(wanted)

    def get_plan(self, plan: str, items: int = MAX_ITEMS) -> PlanPreview:
        """Return the preview of a plan again, with at most `items` of its items.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired.
            InvalidInput: `items` is less than 1.
        """
        if items < 1:
            raise InvalidInput(f"items must be >= 1, got {items}")
        stored = self._ledger.get_plan(plan)
        preview = PlanPreview.from_plan(stored)
        if len(preview.items) == MAX_ITEMS:
            more = (self._describe_member(member) for member in stored.members[MAX_ITEMS:items])
            preview = replace(preview, items=(*preview.items, *more))
        return replace(preview, items=preview.items[:items])

    def _describe_member(self, member: Member) -> PlanItem:
        """Return an item that the stored preview leaves out, with its current title."""
        name = get_name(member)
        row = self._db.get_session(name)
        return PlanItem(name, None if row is None else row["title"], member.why)

    def close_plan(self, plan: str) -> None:
        """End an unwanted plan; its finished changes stay, and its batch can be restored.

        A conversation that was removed in part is restored.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended or expired.
            Busy: another process is applying it and takes long.
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
        """Apply a plan, or continue it; skip and report items that have changed since.

        Complete at least one step, and work for at most `for_s` seconds or until `stop` returns
        True between two steps; the same call continues. `progress` is called twice a second with
        the result so far. An applied plan returns its result again and changes nothing. The undo
        of a compression is one step, without `progress` and `stop`.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired, was closed, or its batch was restored.
            Denied: a running gateway would overwrite route changes; stop it first.
            InvalidInput: the plan is a compression, which its compressor applies.
            Busy: another process is applying it and takes long.
        """
        if for_s < 0:
            raise InvalidInput(f"for_s must be >= 0, got {for_s}")
        parts = self._require_parts()
        stored = self._ledger.get_plan(plan)
        kind = stored.kind
        if "wanted" not in stored.about:  # the runner settles steps itself
            self.settle()
        if kind == CompressionRestorer.KIND:
            return parts.compressions.apply_plan(plan)
        if kind == ImportUndo.KIND:
            return parts.import_undo.apply_undo(plan, for_s, progress, stop)
        if kind == trash.PLAN_KIND:
            return parts.trash.apply_plan(plan, for_s=for_s, progress=progress, stop=stop)
        if kind == vacuum.PLAN_KIND:
            return parts.reclaim.apply_plan(plan, for_s=for_s, progress=progress, stop=stop)
        if "wanted" not in stored.about:
            raise InvalidInput(f"plan {plan} has the kind {kind!r}; apply it where it was made")
        return parts.runner.apply_plan(plan, for_s, progress, stop)

    def settle(self) -> None:
        """Settle the steps that a crash has left, and run their follow-up work.

        Every change in this class does so first; a compressor settles only compressions.
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
        """Restore a batch, or continue that; if it would drop messages, return a plan instead.

        An import always returns a plan: restoring it removes the imported sessions, in a batch of
        its own.

        `stop` ends the restore between two steps. Items that do not fit are reported and stay in
        the trash, and the same call tries them again. Readable items of a partly damaged trash are
        restored.

        Raises:
            NotFound: the batch does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: the batch is itself a restore.
            Conflict: the batch was restored already, or its trash is gone.
            Denied: a running gateway would overwrite the restored routes; stop it first.
            Corrupt: its trash is unreadable, or the home is damaged.
            Busy: another process is applying its plan and takes long.
        """
        parts = self._require_parts()
        if parts.compressions.is_compression(batch):
            return parts.compressions.undo_batch(batch)
        if parts.import_undo.is_import(batch):
            self._ledger.get_undoable_batch(batch)
            # An interrupted undo, or a prune, may have removed the imported sessions.
            parts.import_undo.note_undone_steps(batch)
            return parts.import_undo.plan_undo(batch)
        stored = self._ledger.get_batch(batch)
        parts.runner.log_progress(stored)
        parts.runner.recover_from_crash(except_plan=stored.plan)
        return parts.runner.restoring.restore_batch(batch, for_s, progress, stop)

    def preview_restore(self, batch: str) -> RestorePreview | UndoPlan | PlanPreview:
        """Return what a restore of a batch would bring back, or a plan if it would drop messages.

        Raises:
            NotFound: the batch does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: the batch is itself a restore.
            Conflict: the batch was restored already, or its trash is gone.
            Corrupt: its trash is unreadable, or the home is damaged.
        """
        parts = self._require_parts()
        if parts.compressions.is_compression(batch):
            return parts.compressions.preview_undo(batch)
        if parts.import_undo.is_import(batch):
            return parts.import_undo.plan_undo(batch)
        parts.runner.recover_from_crash(except_plan=self._ledger.get_batch(batch).plan)
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
        """Edit a session at once: its own title, or the archive and pin of its whole conversation.

        An empty title removes the title. A session continued after a compression is reopened at its
        tip.

        Raises:
            NotFound: the session does not exist.
            InvalidInput: the edit is empty, or the title is too long.
            TitleTaken: another conversation has the title.
            Unsupported: this home does not have the column.
            Changed: other processes keep changing the session.
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
        """Return the values that `edit` would change, and change nothing; empty if there are none.

        Raises:
            NotFound: the session does not exist.
            InvalidInput: the edit is empty, or the title is too long.
            TitleTaken: another conversation has the title.
            Unsupported: this home does not have the column.
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
        """Export sessions, all of them by default; `whole` includes their whole conversations.

        A filter applies to named sessions too; without a status it excludes archived ones. A file
        is complete or absent, and readable only by its owner. An existing folder gets one file for
        each conversation, and its existing files stay. A function receives the bytes as they are
        produced.

        Raises:
            NotFound: a named session does not exist.
            Conflict: a file of that name exists; it stays as it is.
        """
        exporter = self._require_parts().exporter
        request = ExportRequest(sessions, where, form, whole, progress)
        if callable(to):
            return exporter.write_sessions(to, request)
        path = Path(to)
        if path.is_dir():
            return exporter.write_folder(path, request)
        return exporter.write_file(path, request)

    def preview_import(
        self, path: str | os.PathLike[str], *, progress: CountFn | None = None
    ) -> ImportPreview:
        """Return what an import of a file would add, and what it would leave out and why.

        `progress` is called with the number of bytes read and their total.

        Raises:
            NotFound: the file does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        return self._require_parts().importer.preview_file(Path(path), progress=progress)

    def import_sessions(
        self,
        path: str | os.PathLike[str],
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> ImportResult:
        """Import JSON Lines, exported here or by Hermes; the same call continues an import.

        A session that exists stays as it is, also if a line names it as its parent, and an invalid
        line does not stop the others. Routes, chats and hand-offs in the file are dropped.
        `restore` undoes the returned batch.

        Raises:
            NotFound: the file does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            Conflict: the import was restored meanwhile, or another process imports the same
                file.
        """
        self.settle()
        return self._require_parts().importer.import_file(Path(path), progress=progress, stop=stop)

    def batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List batches that can be restored, newest first; with `undone`, restored ones too."""
        return self._ledger.list_batches(limit, cursor, undone=undone)

    def log(self, limit: int = 20, cursor: str | None = None) -> Page[AuditEntry]:
        """List the audit log, newest first."""
        return self._ledger.list_audit_entries(limit, cursor)

    def _require_parts(self) -> MaintenanceParts:
        """Return the parts; a damaged home has them only after a repair.

        Raises:
            Corrupt: the home is damaged.
        """
        # Two threads must not open two session stores.
        with self._lock:
            self._parts = self._parts or self._make()
            return self._parts


class MaintenanceParts:
    """The parts of a maintenance; without a `store`, the home's own is opened and closed with them.

    Raises:
        InvalidInput: the ledger or the store belongs to another home.
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
            db, ledger, client=client, clock=clock, take_snapshot=self.planner.take_snapshot
        )
        self.compressions = CompressionRestorer(
            db, ledger, store, hooks, client=client, clock=clock
        )
        self.edits = SessionEditor(
            db, ledger, store, client=client, recover=self.runner.recover_from_crash
        )
        self.exporter = Exporter(db, ledger, client=client)
        self.importer = Importer(db, ledger, client=client)
        self.import_undo = ImportUndo(db, ledger, self.planner, self.runner)

    def close(self) -> None:
        """Close the session store if it was opened here; leave objects of the caller open."""
        if self._own_store is not None:
            self._own_store.close()


def _open_store(db: StateDatabase, hooks: Hooks) -> SessionStore | None:
    if db.folder is None:
        return None
    store = SessionStore.open(db.folder, db, hooks=hooks)
    persist_marks(store, db)
    return store
