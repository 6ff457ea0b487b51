"""`Maintenance`: report on a home, plan changes, apply exactly that, and restore.

`AsyncMaintenance` has the same methods for coroutines.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from session_core._typing import Self
from session_core.aio import AsyncWrapper, make_async
from session_core.errors import Changed, Conflict, Corrupt, InvalidInput
from session_core.hooks import Hooks
from session_core.ledger.hermes_delivery_marks import persist_marks
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import AuditEntry, Batch, Member, StoredPlan
from session_core.maintenance import edits, health, kinds
from session_core.maintenance.apply import crash_recovery
from session_core.maintenance.edits import EditPreview, EditRequest, EditResult
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import get_name, get_session_ids
from session_core.maintenance.planner import make_plan
from session_core.maintenance.restore import batch_restore
from session_core.maintenance.transfer import import_undo
from session_core.maintenance.transfer.exporter import (
    Exporter,
    ExportForm,
    ExportRequest,
    ExportResult,
)
from session_core.maintenance.transfer.import_results import ImportPreview, ImportResult
from session_core.maintenance.transfer.importer import Importer
from session_core.maintenance.types import (
    MAX_ITEMS,
    PROTECTION_REASONS,
    ApplyRequest,
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
from session_core.routing.session_store import SessionStore, check_database
from session_core.state.protocol import StateDatabase
from session_core.types import Page, Revision, SessionFilter

DEFAULT_FOR_S = 20.0
"""How long one call works before it returns its progress; the same call continues."""

DEFAULT_CLIENT = "library"
"""The client of a change in the audit log."""

_MAX_DELETE_ATTEMPTS = 3


class Maintenance:
    """Maintenance of one home: health, plans, restores, edits, exports and imports.

    A plan records a change before it is made, `apply` makes exactly this change, and `restore`
    undoes it. Instances may be shared between threads. Health, plans, batches and the log of a
    damaged home can be read, but changes are refused until it is repaired. The `client` of a change
    is its name in the audit log.

    Args:
        db: the database of the home.
        ledger: the ledger of the same home.
        store: the session store of the home. Without it, a store is opened for the routes and
            closed with this object.
        hooks: the hooks to call when sessions end; by default, the hooks of the store.
        clock: a function that returns the current time in seconds.

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._own_store: SessionStore | None = None
        self._hooks = hooks
        self._clock = clock
        self._home: HomeContext | None = None
        self._lock = threading.Lock()
        with suppress(Corrupt):  # the report includes it, and each change raises it
            self._require_home()

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
        """Close the session store if it was opened here.

        Objects of the caller stay open.
        """
        if self._own_store is not None:
            self._own_store.close()

    def health(
        self,
        *,
        deep: bool = False,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> HealthReport:
        """Return the report on the home: counts, sizes, growth and findings.

        Args:
            deep: count every page, and check the file and the index.
            progress: called twice a second during a deep check, with the number of finished parts
                and their total.
            stop: ends a deep check if it returns True. The report then has the results so far and a
                finding that the check was stopped.
        """
        # A damaged home has no store, and is reported on nevertheless.
        home = self._home or HomeContext(self._db, self._ledger, self._store, clock=self._clock)
        return health.examine_home(home, deep=deep, progress=progress, stop=stop)

    def plan(self, wanted: PlanRequest) -> PlanPreview:
        """Record a plan for a request, and return its items, their reasons and the protected items.

        A plan changes nothing. It can be applied for 24 hours. If there is nothing to change, the
        `plan` of the result is None.

        Raises:
            InvalidInput: the kind of plan is unknown, or the request is inconsistent.
            NotFound: a named session does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.

        Example:
            >>> from session_core import open_home
            >>> from session_core.maintenance import PlanRequest
            >>> with open_home(":memory:") as home:
            ...     new = {"source": "cli"}
            ...     _ = home.db.append_message("s1", "user", "hello", timestamp=0, create=new)
            ...     _ = home.db.end_session("s1", "user_exit")
            ...     preview = home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
            ...     result = home.maintenance.apply(preview.plan)
            ...     result.removed, home.maintenance.restore(result.batch).restored
            (1, 1)
        """
        home = self._require_home()
        kind = kinds.get_requested_kind(wanted.kind)
        if wanted.keep and not kind.can_keep:
            raise InvalidInput(f"{kind.name} does not accept keep; it is about no conversations")
        plan_kind = kinds.load_function(kind.plan)
        preview: PlanPreview = plan_kind(home, wanted)
        return preview

    def get_plan(
        self, plan: str | StoredPlan, items: int = MAX_ITEMS, start: int = 0
    ) -> PlanPreview:
        """Return the preview of a plan again, with at most `items` items from index `start` on.

        A plan that the caller has loaded from the ledger is not loaded again.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired.
            InvalidInput: `items` is less than 1.
        """
        if items < 1:
            raise InvalidInput(f"items must be >= 1, got {items}")
        stored = self._load_plan(plan)
        preview = PlanPreview.from_plan(stored)
        end = start + items
        items_shown = preview.items[start:end]
        if len(preview.items) == MAX_ITEMS:
            more = stored.members[max(start, MAX_ITEMS) : end]
            items_shown = (*items_shown, *map(self._describe_member, more))
        return replace(preview, items=items_shown)

    def _describe_member(self, member: Member) -> PlanItem:
        """Return an item that the stored preview leaves out, as it is now."""
        name = get_name(member)
        row = self._db.get_session(name)
        if row is None:
            return PlanItem(name, None, member.why)
        summaries = [
            self._db.summarize_session(session_id)
            for session_id in get_session_ids(member)
            if self._db.get_session(session_id) is not None
        ]
        return PlanItem(
            *(name, row["title"], member.why),
            messages=sum(summary.messages for summary in summaries),
            last_active_at=max((summary.last_active_at for summary in summaries), default=None),
        )

    def close_plan(self, plan: str) -> None:
        """End an unwanted plan.

        Its finished changes stay, and its batch can be restored. A conversation that was removed in
        part is restored.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended or expired.
            Busy: another process is applying it and takes long.
        """
        # Only these plans remove conversations in steps, and may have stopped half-way.
        if "wanted" in self._ledger.get_plan(plan).about:
            home = self._require_home()
            crash_recovery.stop_plan(home, plan)
            crash_recovery.recover_from_crash(home)
        else:
            self._ledger.close_plan(plan)

    def apply(
        self,
        plan: str | StoredPlan | None,
        for_s: float = DEFAULT_FOR_S,
        *,
        client: str = DEFAULT_CLIENT,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> ApplyResult:
        """Apply a plan, or continue it.

        Items that have changed since the plan are skipped and reported. If an applied plan is
        applied again, its result is returned and nothing is changed. The undo of a compression is
        one step, without `progress` and `stop`.

        Args:
            plan: the handle of the plan, or a `StoredPlan`, which is not loaded again.
            for_s: the number of seconds to work. At least one step is completed. If items remain,
                the outcome is `partial`, and the same call continues.
            client: the name of the caller in the audit log.
            progress: called twice a second with the result so far.
            stop: ends the call between two steps if it returns True.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has expired, was closed, or its batch was restored.
            Denied: a running gateway would overwrite route changes; stop it first.
            InvalidInput: the plan is a compression, which its compressor applies, or None, because
                nothing was planned.
            Busy: another process is applying it and takes long.
        """
        if for_s < 0:
            raise InvalidInput(f"for_s must be >= 0, got {for_s}")
        if plan is None:
            raise InvalidInput("plan is None, because its preview has nothing to change")
        home = self._require_home()
        stored = self._load_plan(plan)
        if "wanted" not in stored.about:  # plans with steps recover when they begin
            crash_recovery.recover_from_crash(home)
        kind = kinds.PLAN_KINDS.get(stored.kind)
        if kind is None or not kind.apply:
            raise InvalidInput(
                f"plan {stored.handle} has the kind {stored.kind!r}; apply it where it was made"
            )
        apply_plan = kinds.load_function(kind.apply)
        request = ApplyRequest(client, for_s, progress, stop)
        result: ApplyResult = apply_plan(home, stored, request)
        return result

    def delete_session(
        self, session_id: str, *, client: str = DEFAULT_CLIENT, expect: Revision | None = None
    ) -> ApplyResult:
        """Delete a conversation at once, for the application that owns it.

        The conversation and its delegates are moved to the trash, and `restore` undoes the batch.
        Neither its age nor another process that has the home open protects it; a pin, a route and a
        running compression do.

        Args:
            session_id: a session of the conversation.
            client: the name of the caller in the audit log.
            expect: the revision that the session must have.

        Raises:
            NotFound: the session does not exist.
            Conflict: it is protected, and nothing was deleted.
            Changed: another writer changes it meanwhile, or it does not have the revision `expect`.
        """
        home = self._require_home()
        request = PlanRequest("sessions", "delete", (session_id,))
        for _ in range(_MAX_DELETE_ATTEMPTS):
            preview = make_plan(home, request)
            if preview.plan is None:
                why = ", ".join(PROTECTION_REASONS[reason] for reason in preview.protected)
                raise Conflict(f"session {session_id} cannot be deleted: {why}")
            # Revisions only grow, so the plan has this revision too.
            if expect is not None and self._db.get_revision(session_id) != expect:
                raise Changed(f"session {session_id} was changed since it was read")
            result = self._apply_whole(preview.plan, client)
            if not result.skipped:
                return result
        raise Changed(f"session {session_id} is written to ({result.skipped[0].why}); try again")

    def _apply_whole(self, plan: str, client: str) -> ApplyResult:
        while True:
            result = self.apply(plan, client=client)
            if result.outcome == "applied":
                return result

    def settle(self) -> None:
        """Settle the steps that a crash has left, and run their follow-up work.

        Every change of this class settles first. A compressor settles only compressions.
        """
        crash_recovery.recover_from_crash(self._require_home())

    def restore(
        self,
        batch: str | None,
        for_s: float = DEFAULT_FOR_S,
        *,
        client: str = DEFAULT_CLIENT,
        progress: RestoreProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> RestoreResult:
        """Restore a batch, or continue its restore.

        Items that cannot be restored are reported and stay in the trash, and the same call tries
        them again. Readable items of a partly damaged trash are restored. If the restore would drop
        messages, it is only planned: the result has the outcome `planned` and a `plan` for `apply`.
        The restore of an import is always planned, because it removes the imported sessions, in a
        batch of its own.

        Args:
            batch: the batch.
            for_s: the number of seconds to work. If steps remain, the same call continues.
            client: the name of the caller in the audit log.
            progress: called at intervals with the result so far.
            stop: ends the restore between two steps if it returns True.

        Raises:
            NotFound: the batch does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            InvalidInput: the batch is itself a restore, or None, because the change has no undo.
            Conflict: the batch was restored already, or its trash is gone.
            Denied: a running gateway would overwrite the restored routes; stop it first.
            Corrupt: its trash is unreadable, or the home is damaged.
            Busy: another process is applying its plan and takes long.
        """
        if batch is None:
            raise InvalidInput("batch is None, because the change has no undo")
        home = self._require_home()
        if batch_restore.is_compression_batch(home, batch):
            return batch_restore.undo_compression(home, batch, client)
        if import_undo.is_import_batch(home, batch):
            self._ledger.get_undoable_batch(batch)
            # An interrupted undo, or a prune, may have removed the imported sessions.
            import_undo.mark_undone_steps(home, batch)
            return batch_restore.build_planned_result(batch, import_undo.plan_undo(home, batch))
        plan = self._ledger.get_batch(batch).plan
        crash_recovery.log_progress(home, plan)
        # Members of its own plan that are gone in part come back with the batch.
        crash_recovery.recover_from_crash(home, except_plan=plan)
        return batch_restore.restore_batch(
            home, batch, for_s, client=client, progress=progress, stop=stop
        )

    def preview_restore(self, batch: str) -> RestorePreview:
        """Return the items that a restore would bring back, with a plan if it would drop messages.

        The errors are the same as for `restore`, except `Denied` and `Busy`.
        """
        home = self._require_home()
        if batch_restore.is_compression_batch(home, batch):
            return batch_restore.preview_compression(home, batch)
        if import_undo.is_import_batch(home, batch):
            return batch_restore.preview_undo_plan(home, batch, import_undo.plan_undo(home, batch))
        crash_recovery.recover_from_crash(home, except_plan=self._ledger.get_batch(batch).plan)
        return batch_restore.preview_batch(home, batch)

    def edit(
        self,
        sessions: str | Sequence[str],
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        reopen: bool = False,
        client: str = DEFAULT_CLIENT,
    ) -> EditResult:
        """Edit sessions at once: the title of a session, or archive and pin of whole conversations.

        All changes are one batch, which `restore` undoes. An argument that is None changes nothing.

        Args:
            sessions: the id of a session, or several ids.
            title: the new title; an empty text removes the title.
            archived: archive the conversations, or unarchive them.
            pinned: protect the conversations from removal, or remove the protection.
            reopen: reopen ended sessions. If a compression continued a session, its tip is
                reopened.
            client: the name of the caller in the audit log.

        Raises:
            NotFound: a session does not exist.
            InvalidInput: the edit is empty, the title is too long, or it is for several sessions.
            TitleTaken: another conversation has the title.
            Unsupported: this home does not have the column.
            Changed: other processes keep changing the session.
        """
        request = EditRequest(title, archived, pinned, reopen)
        return edits.edit_sessions(self._require_home(), _list_ids(sessions), request, client)

    def preview_edit(
        self,
        sessions: str | Sequence[str],
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        reopen: bool = False,
    ) -> tuple[EditPreview, ...]:
        """Return the values that `edit` would change, and change nothing.

        The errors are the same as for `edit`, except `Changed`.
        """
        request = EditRequest(title, archived, pinned, reopen)
        return edits.preview_edit(self._require_home(), _list_ids(sessions), request)

    def export_sessions(
        self,
        to: str | os.PathLike[str] | Callable[[bytes], object],
        sessions: Sequence[str] | None = None,
        *,
        where: SessionFilter | None = None,
        form: ExportForm = "jsonl",
        whole: bool = True,
        client: str = DEFAULT_CLIENT,
        progress: CountFn | None = None,
    ) -> ExportResult:
        """Export sessions, all of them by default.

        A file is complete or absent, and readable only by its owner. An existing folder gets one
        file for each conversation, and its existing files stay.

        Args:
            to: a file, a folder, or a function that receives the bytes as they are produced.
            sessions: the ids of the sessions.
            where: a filter, which applies to `sessions` too. Without a status it excludes archived
                sessions.
            form: `jsonl`, which can be imported, or `markdown`.
            whole: include the whole conversations of the sessions.
            client: the name of the caller in the audit log.
            progress: called with the number of sessions so far and their total.

        Raises:
            NotFound: a named session does not exist.
            Conflict: a file of that name exists; it stays as it is.
        """
        exporter = Exporter(self._require_home(), client)
        return exporter.write(to, ExportRequest(sessions, where, form, whole, progress))

    def preview_import(
        self, path: str | os.PathLike[str], *, progress: CountFn | None = None
    ) -> ImportPreview:
        """Return the sessions that an import would add or leave out, with the reasons.

        `progress` is called with the number of bytes read and their total.

        Raises:
            NotFound: the file does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
        """
        importer = Importer(self._require_home(), DEFAULT_CLIENT)
        return importer.preview_file(Path(path), progress=progress)

    def import_sessions(
        self,
        path: str | os.PathLike[str],
        *,
        client: str = DEFAULT_CLIENT,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> ImportResult:
        """Import JSON Lines that were exported here or by Hermes, or continue an import.

        If a session exists, it is not changed, also if a line names it as its parent. An invalid
        line does not stop the import. Routes, chats and hand-offs in the file are dropped.
        `restore` undoes the returned batch.

        Raises:
            NotFound: the file does not exist.
            Unsupported: an index of the home needs an extension that is not loaded.
            Conflict: the import was restored meanwhile, or another process imports the same file.
        """
        self.settle()
        importer = Importer(self._require_home(), client)
        return importer.import_file(Path(path), progress=progress, stop=stop)

    def batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List batches that still have their trash, newest first.

        Restored batches are included unless `undone` is False.
        """
        return self._ledger.list_batches(limit, cursor, undone=undone)

    def log(self, limit: int = 20, cursor: str | None = None) -> Page[AuditEntry]:
        """List the audit log, newest first."""
        return self._ledger.list_audit_entries(limit, cursor)

    def _load_plan(self, plan: str | StoredPlan) -> StoredPlan:
        return plan if isinstance(plan, StoredPlan) else self._ledger.get_plan(plan)

    def _require_home(self) -> HomeContext:
        """Return the context of the home, which a damaged home has only after a repair.

        Raises:
            InvalidInput: the ledger or the store belongs to another home.
            Denied: the ledger would write into a Hermes home.
            Corrupt: the home is damaged.
        """
        # Two threads must not open two session stores.
        with self._lock:
            if self._home is None:
                self._home = self._make_home()
            return self._home

    def _make_home(self) -> HomeContext:
        self._ledger.check_home(self._db)
        store = self._store
        if store is not None:
            check_database(store, self._db)
        hooks = self._hooks or (store.hooks if store is not None else None) or Hooks()
        if store is None:
            store = self._own_store = _open_store(self._db, hooks)
        return HomeContext(self._db, self._ledger, store, hooks, self._clock)


def _open_store(db: StateDatabase, hooks: Hooks) -> SessionStore | None:
    if db.folder is None:
        return SessionStore(db=db, hooks=hooks) if db.routes.is_available else None
    store = SessionStore.open(db.folder, db, hooks=hooks)
    persist_marks(store, db)
    return store


def _list_ids(sessions: str | Sequence[str]) -> Sequence[str]:
    return (sessions,) if isinstance(sessions, str) else sessions


class AsyncMaintenance(AsyncWrapper[Maintenance]):
    """The methods of a `Maintenance` as coroutines, each in a worker thread.

    `Maintenance` documents them. A cancelled caller gets control back at once, and a method that
    has begun finishes; `stop` ends an `apply` or a `restore` between two steps. `stop` and
    `progress` are called in the worker thread.
    """

    def __init__(self, maintenance: Maintenance) -> None:
        super().__init__(maintenance)
        self.maintenance = maintenance

    health = make_async(Maintenance.health)
    plan = make_async(Maintenance.plan)
    get_plan = make_async(Maintenance.get_plan)
    close_plan = make_async(Maintenance.close_plan)
    apply = make_async(Maintenance.apply)
    delete_session = make_async(Maintenance.delete_session)
    settle = make_async(Maintenance.settle)
    restore = make_async(Maintenance.restore)
    preview_restore = make_async(Maintenance.preview_restore)
    edit = make_async(Maintenance.edit)
    preview_edit = make_async(Maintenance.preview_edit)
    export_sessions = make_async(Maintenance.export_sessions)
    preview_import = make_async(Maintenance.preview_import)
    import_sessions = make_async(Maintenance.import_sessions)
    batches = make_async(Maintenance.batches)
    log = make_async(Maintenance.log)
