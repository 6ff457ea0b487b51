"""The batch of an import: a plan that names its sessions, and a step for each piece of one.

Another call goes on with an import that was stopped, in the same batch. What a step stores is noted
with it, so that an undo finds each session as the import has left it, or leaves it alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from session_core import processes
from session_core.errors import Conflict
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Member, Plan, Step
from session_core.ledger.steps import clear_marks, noting, run_step
from session_core.maintenance.arriving import Found
from session_core.models import Revision
from session_core.state.contract import StateDatabase

IMPORT = "import"
"""The kind of the plan, and the name of the batch."""

_JSON = (int, float, str, type(None))

_BROUGHT = "brought"
"""In the result of a step: the sessions that it has stored a part of, as it has left them."""


class ImportBatch:
    """The batch of one import that is under way."""

    def __init__(self, db: StateDatabase, ledger: Ledger, lines: Sequence[Found]) -> None:
        self._db = db
        self._ledger = ledger
        self._lines = lines
        self._plan: Plan | None = None
        self._open: set[str] = set()
        self.id: str | None = None
        """The batch that takes back what came in; None if nothing did."""

    def run(self, session_ids: Iterable[str], change: Callable[[StateDatabase], None]) -> None:
        """Run a change that stores these sessions or parts of them, as one step.

        Raises:
            Conflict: the import was taken back meanwhile, or another process imports the file.
        """
        batch = self.id or self._begin()
        ids = list(session_ids)
        claimed = [each for each in ids if each in self._open]

        def store(db: StateDatabase) -> dict[str, Any]:
            change(db)
            return {_BROUGHT: {each: _stored(db, each) for each in ids}}

        run_step(self._db, self._ledger, batch, before=lambda _: (), change=store, members=claimed)
        self._open.difference_update(claimed)

    def finish(self) -> None:
        """End the plan: all of the file was imported, skipped or refused."""
        if self._plan is not None:
            clear_marks(self._db, self._ledger)
            with noting(f"the import {self.id}"), suppress(Conflict):
                self._ledger.finish(self._plan.handle, None)

    def _begin(self) -> str:
        """Begin the batch of the file, or go on with the one that an earlier call has begun."""
        digest = _digest(self._lines)
        begun = self._ledger.applied(IMPORT)
        mine = (
            plan
            for plan in begun
            if plan.about["digest"] == digest and _is_free(self._ledger, plan)
        )
        self._plan = next(mine, None) or self._ledger.add_plan(
            IMPORT, [Member(line.id) for line in self._lines], {"digest": digest}
        )
        self._open = {member.id for member in self._plan.remaining}
        self.id = self._ledger.begin(self._plan.handle).id
        return self.id


def state_of(revision: Revision, title: Any, archived: Any) -> list[Any]:
    """Return what an undo compares: a session that is otherwise has been used since."""
    # What a foreign program has stored may be bytes.
    values = [*revision, title, bool(archived)]
    return [each if isinstance(each, _JSON) else str(each) for each in values]


def brought_by(steps: Iterable[Step]) -> dict[str, list[Any]]:
    """Return the sessions that steps of an import have stored, as the last of them left each."""
    brought: dict[str, list[Any]] = {}
    for step in steps:
        brought |= (step.result or {}).get(_BROUGHT, {})
    return brought


def _stored(db: StateDatabase, session_id: str) -> list[Any]:
    row = db.get_session(session_id) or {}
    return state_of(db.revision(session_id), row.get("title"), row.get("archived"))


def _digest(lines: Iterable[Found]) -> str:
    """Return what a file is known by: its lines, whatever its name."""
    return hashlib.sha256("".join(each.digest for each in lines).encode()).hexdigest()


def _is_free(ledger: Ledger, plan: Plan) -> bool:
    """Return whether a batch can be gone on with: nothing of it is undone, and nobody is at it."""
    steps = ledger.steps(plan.batch or "")
    if any(step.undone_at is not None for step in steps):
        return False
    owners = {step.owner for step in steps[-1:]}
    return not any(pid != os.getpid() and processes.alive(pid, at) for pid, at in owners)
