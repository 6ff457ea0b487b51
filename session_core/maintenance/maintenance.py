"""`Maintenance`: see what is wrong in a home, plan, apply exactly that, and take it back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from session_core.compression.applied import UNDO
from session_core.compression.compressor import Compressor
from session_core.compression.records import Undone, UndoPlanned
from session_core.errors import InvalidInput
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.marks import keep_marks
from session_core.ledger.records import Audited, Batch
from session_core.maintenance import health, reclaim, trash
from session_core.maintenance.answers import (
    Applied,
    BackFn,
    Preview,
    ProgressFn,
    Restored,
    StopFn,
)
from session_core.maintenance.edits import Edit, Edited, Edits
from session_core.maintenance.exporting import CountFn, Exported, Exporting, Form
from session_core.maintenance.imported import Imported
from session_core.maintenance.importing import Importing
from session_core.maintenance.planner import Planner
from session_core.maintenance.reclaim import Reclaim
from session_core.maintenance.records import Health, Wanted
from session_core.maintenance.restoring import Restoring
from session_core.maintenance.runner import Runner
from session_core.maintenance.trash import Trash
from session_core.models import Page
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

FOR_S = 20.0
"""So long works one call, then it answers how far it is, and the same call goes on."""


class Maintenance:
    """Maintains one home: its health, what may go or end, the way back, edits and exports.

    Nothing is removed, ended or rewritten but by a plan that was applied or by an edit, and both
    are taken back by `restore`. Without a `store` the routes are those of the home's own session
    store, which is closed with this. Instances are safe to share between threads.

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
        ledger.check_home(db)
        self._db = db
        self._ledger = ledger
        self._client = client
        self._clock = clock
        self._hooks = hooks or (store.hooks if store is not None else None) or Hooks()
        self._own_store = _store_of(db, self._hooks) if store is None else None
        self._store = store or self._own_store
        pinned = ledger.pins.all
        self._planner = Planner(db, ledger, self._store, clock=clock, pinned=pinned)
        self._runner = Runner(
            db,
            ledger,
            self._store,
            self._hooks,
            self._planner,
            client=client,
            clock=clock,
            pinned=pinned,
        )
        self._trash = Trash(ledger, client=client, clock=clock)
        self._reclaim = Reclaim(db, ledger, client=client, clock=clock)
        self._restoring = Restoring(
            db,
            ledger,
            self._store,
            self._hooks,
            client=client,
            take_up=self._runner.take_up,
            gather=self._runner.gather,
        )
        self._edits = Edits(db, ledger, client=client, take_up=self._runner.take_up)
        self._exporting = Exporting(db, ledger, client=client)
        self._importing = Importing(db, ledger, client=client)

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
        if self._own_store is not None:
            self._own_store.close()

    def health(self, *, deep: bool = False) -> Health:
        """Return the report on the home; `deep` counts every page, and checks it and the index."""
        return health.examine(self._db, self._ledger, self._store, self._clock(), deep=deep)

    def plan(self, wanted: Wanted) -> Preview:
        """Record what would be changed, and say what and why, and what is protected.

        Raises:
            InvalidInput: there is no such kind of plan, or it makes no sense.
            NotFound: one of the sessions that are named is not there.
        """
        if wanted.kind == trash.KIND:
            return self._trash.plan(wanted.older_than_days)
        if wanted.kind == reclaim.KIND:
            return self._reclaim.plan()
        return self._planner.plan(wanted)

    def planned(self, plan: str) -> Preview:
        """Return once more what a plan said when it was made.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out.
        """
        return Preview.of(self._ledger.plan(plan))

    def decline(self, plan: str) -> None:
        """End a plan that is not wanted; what was done of it stays, and its batch takes it back.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        self._ledger.close_plan(plan)

    def apply(
        self,
        plan: str,
        for_s: float = FOR_S,
        *,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> Applied | Undone:
        """Do what was planned, or go on with it; what has changed since is left, and said.

        At least until the first step is done, at most for so many seconds and until `stop` says
        yes between two steps. A plan that was applied answers what it came to, and changes nothing.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has run out, was closed, or what it has done was taken back.
            Denied: a live gateway would overwrite the change of its routes; stop that first.
            Busy: somebody else applies it, and takes long.
        """
        if for_s < 0:
            raise InvalidInput(f"for_s is {for_s}; 0 or more")
        kind = self._ledger.plan(plan).kind
        if kind == UNDO:
            with self._compressor() as compressor:
                return compressor.apply_undo(plan)
        if kind == trash.KIND:
            return self._trash.apply(plan, for_s=for_s, progress=progress, stop=stop)
        if kind == reclaim.KIND:
            return self._reclaim.apply(plan, for_s=for_s, progress=progress, stop=stop)
        return self._runner.apply(plan, for_s, progress, stop)

    def restore(
        self,
        batch: str,
        for_s: float = FOR_S,
        *,
        progress: BackFn | None = None,
        stop: StopFn | None = None,
    ) -> Restored | Undone | UndoPlanned:
        """Take back what a batch has done, or go on with that; where it would drop something, plan.

        `stop` ends it between two steps. What does not fit is said and stays in the trash, and the
        same call tries that once more.

        Raises:
            NotFound: there is no such batch.
            InvalidInput: it has itself taken something back.
            Conflict: it was taken back already, or its trash is gone.
            Denied: a live gateway would overwrite the routes that come back; stop that first.
            Corrupt: its trash is damaged.
            Busy: somebody applies its plan at this moment, and takes long.
        """
        if self._is_compression(batch):
            with self._compressor() as compressor:
                return compressor.undo(batch)
        self._runner.note(self._ledger.batch(batch))
        return self._restoring.restore(batch, for_s, progress, stop)

    def edit(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        pinned: bool | None = None,
        reopen: bool = False,
    ) -> Edited:
        """Change a session at once: a title is its own, archive and pin are of its conversation.

        An empty title is none. One that went on after a compression is reopened at its tip.

        Raises:
            NotFound: there is no such session.
            InvalidInput: nothing is asked for, or the title is too long.
            TitleTaken: another conversation has it.
            Unsupported: this home has no column for it.
            Changed: somebody else changes it all the time.
        """
        return self._edits.edit(session_id, Edit(title, archived, pinned, reopen))

    def export(
        self,
        to: Path | Callable[[bytes], object],
        sessions: Sequence[str] | None = None,
        *,
        form: Form = "jsonl",
        whole: bool = True,
        progress: CountFn | None = None,
    ) -> Exported:
        """Write sessions, all where none are named; `whole` takes their conversations along.

        A file is whole or not there, and its owner alone may read it. A function is given the bytes
        as they come.

        Raises:
            NotFound: one of them is not there.
            Conflict: there is a file of that name; it stays as it is.
        """
        write = (
            partial(self._exporting.write_file, to)
            if isinstance(to, Path)
            else partial(self._exporting.write, to)
        )
        return write(sessions, form=form, whole=whole, progress=progress)

    def import_(
        self,
        path: Path,
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> Imported:
        """Import what was exported as JSON Lines, here or by Hermes; the same call goes on with it.

        A session that is there stays as it is, also where a line says that it is its parent, and a
        line that does not fit stops no other. There is no batch to take it back: a plan to prune
        the `ids` of the answer removes what came in, and that has one.

        Raises:
            NotFound: there is no such file.
        """
        return self._importing.read_file(path, progress=progress, stop=stop)

    def batches(self, limit: int = 20, cursor: str | None = None) -> Page[Batch]:
        """List what can be taken back, and what was, newest first."""
        return self._trash.batches(limit, cursor)

    def log(self, limit: int = 20, cursor: str | None = None) -> Page[Audited]:
        """List who has changed what, newest first."""
        return self._ledger.audited(limit, cursor)

    def _is_compression(self, batch: str) -> bool:
        self._ledger.batch(batch)
        steps = self._ledger.steps(batch)
        return any(isinstance(s.result, dict) and "compressed" in s.result for s in steps)

    def _compressor(self) -> Compressor:
        return Compressor(
            self._db,
            self._ledger,
            store=self._store,
            hooks=self._hooks,
            client=self._client,
            clock=self._clock,
        )


def _store_of(db: StateDatabase, hooks: Hooks) -> SessionStore | None:
    if db.folder is None:
        return None
    store = SessionStore.open(db.folder, db, hooks=hooks)
    keep_marks(store, db)
    return store
