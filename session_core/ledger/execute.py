"""Runs one step of a change: what would undo it is durable before it begins.

The step and its mark in `state_meta` are one transaction of the home, so the mark alone says
whether a step that a crash has left was done. Where it is missing, a mark that forbids the step
takes its place: a process that was only asleep cannot do it afterwards, without its trash.

Waits for what somebody else is about to do to the same batch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TypeVar
from weakref import WeakValueDictionary

from session_core import processes
from session_core.errors import Busy, Changed, Conflict, InvalidInput, SessionError
from session_core.hooks.calls import log_fault
from session_core.ledger.batches import encode_json, make_step_id
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Step, TrashItem
from session_core.state.protocol import StateDatabase

R = TypeVar("R")

MARK_PREFIX = "mcp_sessions:done:"
"""How the keys of marks begin."""

_ABORTED_MARK = "never"


class PreparedStep:
    """A step whose trash is durable, for as long as somebody has it in hand; then `resume` does."""

    def __init__(self, step_id: str) -> None:
        self.id = step_id
        self.cleared: Sequence[str] = ()
        """The steps whose marks in the home go with it."""


_running_steps: WeakValueDictionary[str, PreparedStep] = WeakValueDictionary()
"""The steps of this process that are under way."""


def prepare_step(
    ledger: Ledger,
    batch: str,
    kept: Iterable[TrashItem],
    members: Sequence[str] = (),
    undoes: str | None = None,
) -> PreparedStep:
    """Keep what would undo a step; that may be before the step ahead of it is done.

    Raises:
        Conflict: somebody else has one of the members, or undoes the same step.
    """
    step = PreparedStep(make_step_id())
    _running_steps[step.id] = step
    try:
        step.cleared = ledger.prepare_step(step.id, batch, kept, members=members, undoes=undoes)
    except BaseException:
        _running_steps.pop(step.id, None)
        raise
    return step


def discard_step(ledger: Ledger, step: PreparedStep) -> None:
    """Give up a step that was prepared and has not begun."""
    with suppress(SessionError):  # then `resume` does
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
    """Keep what `before` returns, then run `change` in one transaction; return its result.

    `change` raises `Changed` where it does not find what was kept. The result is JSON. `members` of
    the plan of the batch are then skipped for good, and are those that no other step may have.
    `within` is a transaction of the caller's, such as that of a session store for some chats. Once
    that is committed the result is returned: what fails afterwards is reported to the log, and what
    could not be noted in the ledger is left to `resume`.

    Raises:
        Changed: nothing was changed, and what was kept is thrown away.
        Conflict: somebody else has one of the members, or undoes the same step.
        InvalidInput: the ledger is that of another home, or a transaction is open.
        Unsupported: the home has no `state_meta`.
    """
    ledger.check_home(db)
    if db.in_transaction:
        raise InvalidInput("a step is a transaction of its own; end the one that is open")
    kept = before(db)
    step = (
        kept
        if isinstance(kept, PreparedStep)
        else prepare_step(ledger, batch, kept, members, undoes)
    )
    step_id = step.id
    try:
        committing = False
        try:
            with within(), db.transaction():
                _require_not_aborted(db, step_id)
                result = change(db)
                db.set_meta(MARK_PREFIX + step_id, encode_json([result]))
                _delete_marks(db, step.cleared)
                committing = True
        except BaseException as error:
            done = _settle_failed_step(db, ledger, step_id, error, committing=committing)
            if not done or not isinstance(error, Exception):
                raise
            log_fault(f"step {step_id} was done, and then something failed", error)
        else:
            with suppress_note_errors(f"step {step_id}"):
                ledger.finish_step(step_id, result, cleared=step.cleared)
    finally:
        _running_steps.pop(step_id, None)
    return result


def resume_steps(
    db: StateDatabase, ledger: Ledger, kinds: Collection[str] | None = None
) -> list[Step]:
    """Decide the steps that a crash has left, and delete the marks that nobody needs any more.

    Return those that turned out to be done: what was to follow them is the caller's to do, who
    names the `kinds` of batches of which that is known. Steps that a living process runs are left
    to it.

    Raises:
        InvalidInput: the ledger is that of another home.
    """
    ledger.check_home(db)
    done = []
    for step in ledger.list_unsettled_steps():
        if _is_step_running(step) or not (
            kinds is None or ledger.get_batch(step.batch).what in kinds
        ):
            continue
        if step.state != "prepared":
            ledger.abort_step(step.id)
            continue
        mark = _settle_mark(db, step.id)
        _record_mark(ledger, step.id, mark)
        if mark != _ABORTED_MARK:
            done.append(ledger.get_step(step.id))
    clear_marks(db, ledger)
    delete_content(ledger)
    return done


def clear_marks(db: StateDatabase, ledger: Ledger) -> None:
    """Delete the marks of steps that the ledger knows to be done: what follows the last step.

    Those that cannot be deleted now are deleted with a later step.
    """
    with suppress_note_errors("that marks are deleted"):
        cleared = ledger.list_stale_marks()
        if cleared:
            with db.transaction():
                _delete_marks(db, cleared)
            ledger.forget_marks(cleared)


def delete_content(ledger: Ledger) -> int:
    """Delete the trash of batches that were undone, once that is noted; return its bytes.

    What cannot be deleted now is deleted with a later step.
    """
    with suppress_note_errors("that the trash of what was undone is deleted"):
        return ledger.delete_content()
    return 0


@contextmanager
def suppress_note_errors(what: str) -> Iterator[None]:
    """Report, and do not raise, where something that was done cannot be noted."""
    try:
        yield
    except SessionError as error:
        log_fault(f"{what} could not be noted; what was done stays done", error)


def _require_not_aborted(db: StateDatabase, step_id: str) -> None:
    if db.get_meta(MARK_PREFIX + step_id) is not None:
        raise Conflict(f"step {step_id} was given up meanwhile; plan it again")


def _settle_failed_step(
    db: StateDatabase, ledger: Ledger, step_id: str, error: BaseException, *, committing: bool
) -> bool:
    """Throw away what was rolled back; say of a commit that failed whether it was one after all."""
    # Where this fails too, the step stays as it is, for `resume`.
    with suppress(SessionError):
        if committing:
            mark = _settle_mark(db, step_id)
            with suppress_note_errors(f"step {step_id}"):
                _record_mark(ledger, step_id, mark)
            return mark != _ABORTED_MARK
        ledger.abort_step(step_id, skipped=str(error) if isinstance(error, Changed) else None)
    return False


def _settle_mark(db: StateDatabase, step_id: str) -> str:
    """Return the mark of a step, or that which forbids it from now on.

    A commit whose sync has failed may come back from the log until another commit is written over
    it; forbidding the step is one.
    """
    key = MARK_PREFIX + step_id
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
    if pid == os.getpid():
        return step.id in _running_steps
    return processes.is_alive(pid, started_at)


POLL_PAUSE_S = 0.01
_STEP_TIMEOUT_S = 30.0
"""So long somebody else's step may take."""


def wait_for_steps(ledger: Ledger, batch: str, settle: Callable[[], None]) -> None:
    """Wait until the steps of a batch are over that somebody runs or takes back just now.

    Those that come later are not waited for: who is at it has the next one ready before.

    Raises:
        Busy: that takes long.
    """
    until = time.monotonic() + _STEP_TIMEOUT_S
    left = list_running_steps(ledger, batch, settle)
    while left:
        if time.monotonic() >= until:
            raise Busy(f"somebody else is at work on batch {batch} and takes long; try again")
        time.sleep(POLL_PAUSE_S)
        left &= list_running_steps(ledger, batch, settle)


def list_running_steps(ledger: Ledger, batch: str, settle: Callable[[], None]) -> set[str]:
    """Return the steps of a batch that somebody else runs, and those that take them back."""
    settle()
    steps = {step.id for step in ledger.list_steps(batch)}
    return {
        step.id
        for step in ledger.list_unsettled_steps()
        if (step.batch == batch or step.undoes in steps) and step.state in ("writing", "prepared")
    }
