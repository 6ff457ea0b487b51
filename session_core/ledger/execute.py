"""Run one step of a change after the data that undoes it is durable.

The step and its mark in `state_meta` are one transaction of the home, so the mark alone decides
whether a step that a crash interrupted was done. If the mark is missing, `resume_steps` writes
a mark that forbids the step: a process that was only suspended cannot run it later, after its
trash is gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from session_core import processes
from session_core.errors import (
    Busy,
    Changed,
    Conflict,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
)
from session_core.hooks.foreign_calls import log_fault
from session_core.ledger.ledger import Ledger
from session_core.ledger.storage import encode_json, make_step_id
from session_core.ledger.types import Step, TrashItem
from session_core.state.protocol import StateDatabase

R = TypeVar("R")

MARK_PREFIX = "mcp_sessions:done:"
"""Prefix of the keys of marks."""

_ABORTED_MARK = "never"


class PreparedStep:
    """A step whose trash is durable.

    While the object lives, the step belongs to this process. Later, `resume_steps` decides it.
    """

    def __init__(self, step_id: str) -> None:
        self.id = step_id
        self.cleared: Sequence[str] = ()
        """Ids of other steps whose marks are deleted in the same transaction."""


_running_steps: WeakValueDictionary[str, PreparedStep] = WeakValueDictionary()
"""Steps that this process is running."""


def prepare_step(
    ledger: Ledger,
    batch: str,
    trash_items: Iterable[TrashItem],
    members: Sequence[str] = (),
    undoes: str | None = None,
) -> PreparedStep:
    """Store the trash of a step, possibly while the step before it is still running.

    Raises:
        Conflict: another process has one of the members, or undoes the same step.
    """
    step = PreparedStep(make_step_id())
    # Before it is stored, so that another thread does not take it for the step of a dead one.
    _running_steps[step.id] = step
    try:
        step.cleared = ledger.prepare_step(
            step.id, batch, trash_items, members=members, undoes=undoes
        )
    except BaseException:
        _running_steps.pop(step.id, None)
        raise
    return step


def discard_step(ledger: Ledger, step: PreparedStep) -> None:
    """Abort a prepared step that has not begun."""
    with suppress(SessionError):  # otherwise `resume_steps` does
        ledger.abort_step(step.id)
    _running_steps.pop(step.id, None)


def run_step(
    db: StateDatabase,
    ledger: Ledger,
    batch: str,
    *,
    before: Callable[[StateDatabase], Iterable[TrashItem] | PreparedStep],
    change: Callable[[StateDatabase], R],
    members: Sequence[str] = (),
    undoes: str | None = None,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> R:
    """Store the trash from `before`, run `change` in one transaction and return its result.

    `change` raises `Changed` if the rows differ from the stored rows, and returns JSON.
    `members` are members of the batch's plan: no other step can have them, and if the step fails
    with `Changed` they are skipped for good. `within` opens a transaction around the transaction
    of the home, such as a transaction of a session store for some chats. Errors after the commit
    are logged, not raised, and a result that cannot be recorded in the ledger is left to
    `resume_steps`.

    Raises:
        Changed: nothing was changed, and the trash was deleted.
        Conflict: another process has one of the members, or undoes the same step.
        InvalidInput: the ledger belongs to another home, or a transaction is open.
        Unsupported: the home has no `state_meta`.
    """
    ledger.check_home(db)
    # An outer transaction could roll back a change that the ledger records as done.
    if db.in_transaction:
        raise InvalidInput("a step needs its own transaction; end the open one first")
    if ledger.shares_transactions:
        home_step = _HomeStep(db, ledger, batch, members, undoes)
        return home_step.run(lambda: _require_items(before(db)), change, within)
    try:
        prepared = before(db)
        step = (
            prepared
            if isinstance(prepared, PreparedStep)
            else prepare_step(ledger, batch, prepared, members, undoes)
        )
    except Exception as error:
        describe = partial(_describe_step, ledger, "that stores its trash", batch, members)
        _log_failure(describe, error, "failed before it changed the home")
        raise
    step_id = step.id
    try:
        committing = False
        try:
            with within(), db.transaction():
                # In the transaction: the mark that forbids the step is written under the same lock.
                _require_not_aborted(db, step_id)
                result = change(db)
                # The mark commits with the change: after a crash it proves that the step was done.
                db.set_meta(MARK_PREFIX + step_id, encode_json([result]))
                # In this transaction, so that they need no commit of their own.
                _delete_marks(db, step.cleared)
                # From here on a failure may be that of the commit, whose effect is unknown.
                committing = True
        except BaseException as error:
            is_done = _settle_failed_step(db, ledger, step_id, error, committing=committing)
            if not is_done:
                describe = partial(_describe_step, ledger, step_id, batch, members)
                _log_failure(describe, error, _describe_failure(committing=committing))
            if not is_done or not isinstance(error, Exception):
                raise
            log_fault(f"step {step_id} was done, but an error followed", error)
        else:
            with suppress_note_errors(f"step {step_id}"):
                ledger.finish_step(step_id, result, cleared=step.cleared)
    finally:
        _running_steps.pop(step_id, None)
    return result


class _HomeStep:
    """A step whose trash and outcome are stored in the transaction that changes the home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        batch: str,
        members: Sequence[str],
        undoes: str | None,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._batch = batch
        self._members = members
        self._undoes = undoes
        self._id = make_step_id()

    def run(
        self,
        collect: Callable[[], Iterable[TrashItem]],
        change: Callable[[StateDatabase], R],
        within: Callable[[], AbstractContextManager[object]],
    ) -> R:
        """Run the step by the rules of `run_step`."""
        committing = False
        try:
            with within(), self._db.transaction():
                self._ledger.prepare_step(
                    self._id, self._batch, collect(), members=self._members, undoes=self._undoes
                )
                result = change(self._db)
                self._ledger.finish_step(self._id, result)
                # From here on a failure may be that of the commit, whose effect is unknown.
                committing = True
        except BaseException as error:
            is_done = committing and self._is_done()
            if not is_done:
                self._handle_failure(error, committing=committing)
            if not is_done or not isinstance(error, Exception):
                raise
            log_fault(f"step {self._id} was done, but an error followed", error)
        return result

    def _is_done(self) -> bool:
        """Return True if the step was committed, after waiting for a commit that still runs."""
        # If this fails too, the caller gets the error of the commit: the outcome is unknown.
        with suppress(SessionError), self._db.transaction():
            return self._ledger.get_step(self._id).state == "done"
        return False

    def _handle_failure(self, error: BaseException, *, committing: bool) -> None:
        """Log a step that failed, or skip its members if they have changed."""
        if isinstance(error, Changed) and self._members:
            with suppress(SessionError):
                plan = self._ledger.get_batch(self._batch).plan
                if plan is not None:
                    self._ledger.skip_members(plan, self._members, str(error))
        describe = partial(_describe_step, self._ledger, self._id, self._batch, self._members)
        _log_failure(describe, error, _describe_failure(committing=committing))


def _require_items(items: Iterable[TrashItem] | PreparedStep) -> Iterable[TrashItem]:
    if isinstance(items, PreparedStep):
        raise InvalidInput(f"step {items.id} was prepared outside the transaction of its home")
    return items


def resume_steps(
    db: StateDatabase, ledger: Ledger, kinds: Collection[str] | None = None
) -> list[Step]:
    """Decide the steps that a crash interrupted, and delete marks that are no longer needed.

    Return the steps that turn out to be done; the caller performs the work that follows them, and
    names the `kinds` of batches for which it can. Steps of a living process are left alone.

    Raises:
        InvalidInput: the ledger belongs to another home.
    """
    ledger.check_home(db)
    finished = []
    for step in ledger.list_unsettled_steps():
        if _is_step_running(step) or not (
            kinds is None or ledger.get_batch(step.batch).what in kinds
        ):
            continue
        if step.state != "prepared":
            # Its trash is incomplete, so the home cannot have been changed.
            ledger.abort_step(step.id)
            continue
        mark = _settle_mark(db, step.id)
        _record_mark(ledger, step.id, mark)
        if mark != _ABORTED_MARK:
            finished.append(ledger.get_step(step.id))
    delete_step_marks(db, ledger)
    delete_undone_trash(ledger)
    return finished


def delete_step_marks(db: StateDatabase, ledger: Ledger) -> None:
    """Delete the marks of finished steps, after the last step of a change.

    Marks that cannot be deleted now are deleted with a later step.
    """
    with suppress_note_errors("the deletion of marks"):
        cleared = ledger.list_obsolete_step_marks()
        if cleared:
            with db.transaction():
                _delete_marks(db, cleared)
            # In this order: after a crash in between, missing marks are deleted again.
            ledger.forget_step_marks(cleared)


def delete_undone_trash(ledger: Ledger) -> int:
    """Delete the trash of undone batches and return its size in bytes.

    Trash that cannot be deleted now is deleted with a later step.
    """
    with suppress_note_errors("the deletion of undone trash"):
        return ledger.delete_content()
    return 0


@contextmanager
def suppress_note_errors(what: str) -> Iterator[None]:
    """Log, and do not raise, a failure to record finished work."""
    try:
        yield
    except SessionError as error:
        log_fault(f"{what} could not be recorded; the change itself is done", error)


def _require_not_aborted(db: StateDatabase, step_id: str) -> None:
    if db.get_meta(MARK_PREFIX + step_id) is not None:
        raise Conflict(f"step {step_id} was aborted by another process; plan it again")


def _settle_failed_step(
    db: StateDatabase, ledger: Ledger, step_id: str, error: BaseException, *, committing: bool
) -> bool:
    """Abort a step that was rolled back, or return True if its failed commit took effect."""
    # If this fails as well, the step stays as it is for `resume_steps`.
    with suppress(SessionError):
        if committing:
            mark = _settle_mark(db, step_id)
            with suppress_note_errors(f"step {step_id}"):
                _record_mark(ledger, step_id, mark)
            return mark != _ABORTED_MARK
        ledger.abort_step(step_id, skipped=str(error) if isinstance(error, Changed) else None)
    return False


def _log_failure(describe: Callable[[], str], error: BaseException, outcome: str) -> None:
    """Log a step that failed for another reason than its data, such as an I/O error."""
    is_refusal = isinstance(error, SessionError) and not isinstance(error, (StorageError, Denied))
    if isinstance(error, Exception) and not is_refusal:
        # Without the traceback, which the caller of `run_step` gets with the error.
        log_fault(f"{describe()} {outcome}: {type(error).__name__}: {error}", None)


def _describe_failure(*, committing: bool) -> str:
    return "failed at its commit" if committing else "failed and was rolled back"


def _describe_step(ledger: Ledger, step_id: str, batch_id: str, members: Sequence[str]) -> str:
    """Describe a step for the log by its kind of change, its plan and its members."""
    kind, details = "", [f"batch {batch_id}"]
    with suppress(SessionError):  # the disk that failed may be that of the ledger
        batch = ledger.get_batch(batch_id)
        kind = f"{batch.what}: "
        if batch.plan is not None:
            details.insert(0, f"plan {batch.plan}")
    if members:
        count = "1 member" if len(members) == 1 else f"{len(members):,} members"
        details += [count, f"first {members[0]!r}"]
    return f"{kind}step {step_id} ({', '.join(details)})"


def _settle_mark(db: StateDatabase, step_id: str) -> str:
    """Return the mark of a step, after writing the mark that forbids the step if it has none."""
    key = MARK_PREFIX + step_id
    # After a failed sync, a commit may reappear from the log until another commit overwrites it.
    # The mark that forbids the step is that other commit.
    with db.transaction():
        mark = db.get_meta(key)
        if mark is None:
            db.set_meta(key, _ABORTED_MARK)
    return mark or _ABORTED_MARK


def _record_mark(ledger: Ledger, step_id: str, mark: str) -> None:
    if mark == _ABORTED_MARK:
        ledger.abort_step(step_id, marked=True)
    else:
        ledger.finish_step(step_id, json.loads(mark)[0])


def _delete_marks(db: StateDatabase, steps: Sequence[str]) -> None:
    for step in steps:
        db.delete_meta(MARK_PREFIX + step)


def _is_step_running(step: Step) -> bool:
    pid, started_at = step.owner
    # A step of this process may have been left by a thread that failed to abort it.
    if pid == os.getpid():
        return step.id in _running_steps
    # The start time distinguishes the process from a later process with the same number.
    return processes.is_alive(pid, started_at)


POLL_PAUSE_S = 0.01
_STEP_TIMEOUT_S = 30.0
"""Maximum time to wait for a step of another process."""


def wait_for_steps(ledger: Ledger, batch: str, settle: Callable[[], None]) -> None:
    """Wait for the steps of a batch that are running or being undone at this moment.

    Later steps are not awaited, because a process prepares its next step before it finishes one.

    Raises:
        Busy: the steps take too long.
    """
    deadline = time.monotonic() + _STEP_TIMEOUT_S
    waiting_for = list_running_steps(ledger, batch, settle)
    while waiting_for:
        if time.monotonic() >= deadline:
            raise Busy(f"another process is still working on batch {batch}; try again")
        time.sleep(POLL_PAUSE_S)
        waiting_for &= list_running_steps(ledger, batch, settle)


def list_running_steps(ledger: Ledger, batch: str, settle: Callable[[], None]) -> set[str]:
    """Return the steps of a batch that other processes run, and the steps that undo them."""
    settle()
    steps = {step.id for step in ledger.list_steps(batch)}
    return {
        step.id
        for step in ledger.list_unsettled_steps()
        if (step.batch == batch or step.undoes in steps) and step.state in ("writing", "prepared")
    }
