"""What one restore has done so far, and what it answers.

Restore: the steps of a batch are taken back, the newest first.

A step of which something did not fit stays open: another restore of the batch tries that, and only
that, once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from session_core.errors import Conflict, Corrupt, InvalidInput, NotFound
from session_core.ledger.execute import (
    clear_marks,
    delete_content,
    suppress_note_errors,
    wait_for_steps,
)
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Member, Step, TrashItem
from session_core.maintenance import disk, members
from session_core.maintenance.apply.step_items import IMAGES
from session_core.maintenance.edits import PIN_KIND
from session_core.maintenance.members import CHANGE_KIND, RowChange
from session_core.maintenance.restore.remainder import Remainder, is_first_try
from session_core.maintenance.restore.rows import TrashContents
from session_core.maintenance.restore.step import StepUndoer
from session_core.maintenance.types import (
    Bytes,
    PlanItem,
    PlanPreview,
    RefusedItem,
    RestorePreview,
    RestoreProgressFn,
    RestoreResult,
    StopFn,
)
from session_core.state.protocol import StateDatabase
from session_core.types import RowImages


@dataclass(slots=True)
class RestoreTally:
    """What one restore has done so far."""

    batch: Batch
    planned: Mapping[str, Member]
    left: int
    rows: int = 0
    unfit: list[RefusedItem] = field(default_factory=list)
    back: set[str] = field(default_factory=set)
    """The members that are as they were."""
    out: set[str] = field(default_factory=set)
    """Those of which something is not."""

    any_back: bool = False
    """Whether any step was taken back at all."""

    def add_failed_step(self, step: Step, tried: Remainder | None, why: str) -> None:
        """Note a step of which nothing can be taken back."""
        names = ", ".join(map(members.get_name, step.members)) or f"a part of {step.id}"
        self.unfit.append(RefusedItem(names, why))
        self.left -= is_first_try(tried)
        self.out.update(step.members)

    def add_step(self, step: Step, tried: Remainder | None, result: dict[str, Any]) -> None:
        """Note what has become of a step."""
        self.any_back = True
        self.rows += result["rows"]
        self.unfit += [RefusedItem(*each) for each in result["unfit"]]
        self.left -= is_first_try(tried)
        left = Remainder.from_result(result)
        wanted = (
            None if tried is None else {*tried.list_names(), *(each for each, _ in tried.columns)}
        )
        own = [each for each in step.members if members.get_part(each) != "index"]
        for member in own if self.batch.plan is not None else [step.id]:
            if wanted is None or self._is_part_of_member(member, wanted):
                self.back.add(member)
            if left is not None and self._is_part_of_member(member, left.list_names()):
                self.out.add(member)

    def build_result(self) -> RestoreResult:
        """Return what was done."""
        back, outcome = len(self.back - self.out), "partial" if self.left else "applied"
        return RestoreResult(outcome, self.batch.id, back, self.rows, tuple(self.unfit), self.left)  # type: ignore[arg-type]

    def _is_part_of_member(self, member: str, names: set[str]) -> bool:
        """Whether something of a name is a part of a member."""
        if self.batch.plan is None:
            return bool(names)
        noted = self.planned[member].revision if member in self.planned else None
        of = {members.get_name(member)}
        if isinstance(noted, dict):
            of |= {*noted.get("sessions", ()), str(noted.get("session")), str(noted.get("key"))}
        return not of.isdisjoint(names)


BATCH_KIND = "restore"

_YES_OR_NO = {True: "yes", False: "no"}


class BatchRestorer:
    """Takes batches of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        undoing: StepUndoer,
        *,
        client: str,
        stop: Callable[[str], None],
        settle: Callable[[], None],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._undoing = undoing
        self._client = client
        self._stop = stop
        self._settle = settle

    def restore_batch(
        self, batch_id: str, for_s: float, progress: RestoreProgressFn | None, stop: StopFn | None
    ) -> RestoreResult:
        """Put back what a batch has changed, or go on with that."""
        until = time.monotonic() + for_s
        batch = self._ledger.get_undoable_batch(batch_id)
        self._check_writable(self._list_steps(batch))
        size, files = self._ledger.count_disk_bytes(), disk.measure_files(self._db)
        left = self._list_open_steps(batch)
        tally = RestoreTally(
            batch, self._load_members(batch), sum(is_first_try(tried) for _, tried in left)
        )
        undoing = self._ledger.add_batch(BATCH_KIND).id if left else ""
        damaged: Corrupt | None = None
        for step, tried in left:
            try:
                contents = self._undoing.read_contents(step, tried)
            except Corrupt as error:  # what the others have kept is as good as ever
                damaged = error
                tally.add_failed_step(step, tried, str(error))
            except Conflict:  # another process has just restored the batch and deleted its trash
                if self._ledger.get_batch(batch_id).undone_at is None:
                    raise
                tally.add_step(step, tried, {"rows": 0, "unfit": ()})
            else:
                tally.add_step(step, *self._undo_step(undoing, step, tried, contents))
            if time.monotonic() >= until or (stop is not None and stop()):
                break
            if progress is not None:
                progress(tally.build_result())
        clear_marks(self._db, self._ledger)
        if damaged is not None and not tally.any_back:
            raise damaged
        back = tally.build_result()
        if not back.remaining:
            self._ledger.finish_partials(batch_id)
        counts = {"restored": back.restored, "rows": back.rows}
        counts |= {"unfit": len(back.unfit), "remaining": back.remaining}
        with suppress_note_errors(f"the restore of {batch_id}"):
            self._ledger.add_audit_entry(self._client, f"restore {batch_id}", None, counts)
        delete_content(self._ledger)
        return replace(back, bytes=self._measure_bytes(batch_id, size, files))

    def _measure_bytes(self, batch_id: str, size: int, files: Mapping[str, int]) -> Bytes:
        """Return by how much the database grew, and what the trash has given back."""
        returned = max(size - self._ledger.count_disk_bytes(), 0)
        trash = self._ledger.get_batch(batch_id).bytes
        found = Bytes(returned_to_disk=returned, trash=trash)
        with suppress_note_errors("how much room there is"):
            grown = disk.measure_change(files, self._db.measure_sizes()).needed_now
            return replace(found, needed_now=grown)
        return found

    def preview_batch(self, batch_id: str) -> RestorePreview:
        """Return what a restore would put back."""
        batch = self._ledger.get_undoable_batch(batch_id)
        left = [step for step in self._list_steps(batch) if step.undone_at is None]
        self._check_writable(left)
        if batch.plan is None:
            kept = [one for step in left for one in self._ledger.read_trash(step.id)]
            edited = tuple(_iter_edited_items(kept))
            return RestorePreview(batch, len(edited), edited)
        names = {
            members.get_name(each): None
            for step in left
            for each in step.members
            if members.get_part(each) != "index"
        }
        items: tuple[PlanItem, ...] = ()
        with suppress(Conflict, NotFound):  # nobody remembers the plan
            items = PlanPreview.from_plan(self._ledger.get_plan(batch.plan)).items
        return RestorePreview(batch, len(names), tuple(each for each in items if each.id in names))

    def _undo_step(
        self, undoing: str, step: Step, tried: Remainder | None, contents: TrashContents
    ) -> tuple[Remainder | None, dict[str, Any]]:
        """Take a step back, or what whoever puts a part of it back just now leaves of it."""
        while True:
            try:
                return tried, self._undoing.undo_step(undoing, step, tried, contents)
            except Conflict:
                wait_for_steps(self._ledger, step.batch, self._settle)
                now = next(
                    each for each in self._ledger.list_steps(step.batch) if each.id == step.id
                )
                left = Remainder.from_result(self._ledger.get_last_attempt(step.id))
                if now.undone_at is not None:
                    return tried, {"rows": 0, "unfit": ()}
                if left == tried:
                    raise
                tried, contents = left, self._undoing.read_contents(step, left)

    def _list_open_steps(self, batch: Batch) -> list[tuple[Step, Remainder | None]]:
        """Return the steps that are not undone, and what of them did not fit; those come last.

        Nobody begins another step of the batch once its plan is stopped.
        """
        if batch.plan is not None:
            with suppress(Conflict):  # it has ended, or was never of a plan
                self._stop(batch.plan)
            wait_for_steps(self._ledger, batch.id, self._settle)
        left = [step for step in reversed(self._list_steps(batch)) if step.undone_at is None]
        found = [
            (step, Remainder.from_result(self._ledger.get_last_attempt(step.id))) for step in left
        ]
        return sorted(found, key=lambda each: not is_first_try(each[1]))

    def _check_writable(self, steps: Iterable[Step]) -> None:
        """Refuse before anything is put back if an index takes no rows of what comes back.

        Raises:
            Unsupported: it does not.
        """
        if not self._db.list_blocked_indexes():
            return  # the trash is read for nothing otherwise
        for step in steps:
            kept = self._ledger.read_trash(step.id) if step.undone_at is None else ()
            with suppress(Corrupt):  # the other steps may be whole
                for one in kept:
                    if one.what == IMAGES:
                        self._db.check_rows_writable([RowImages.unpack(one.value).table])

    def _list_steps(self, batch: Batch) -> list[Step]:
        """Return the steps of a batch, which may not have taken something back themselves."""
        steps = self._ledger.list_steps(batch.id)
        if any(step.undoes is not None for step in steps):
            raise InvalidInput(
                f"batch {batch.id} has itself taken something back; to have that gone again, make "
                "the change anew"
            )
        return steps

    def _load_members(self, batch: Batch) -> dict[str, Member]:
        if batch.plan is not None:
            with suppress(Conflict, NotFound):  # nobody remembers it
                return {each.id: each for each in self._ledger.get_plan(batch.plan).members}
        return {}


def _iter_edited_items(kept: Iterable[TrashItem]) -> Iterator[PlanItem]:
    """Yield what an edit has changed, which has no plan that says it, by session."""
    back: dict[str, list[str]] = {}
    for each in kept:
        if each.what == CHANGE_KIND:
            change = RowChange.from_trash(each.value)
            back.setdefault(change.name, []).extend(_describe_reversal(change.after, change.before))
        elif each.what == PIN_KIND:
            for name, was in each.value["before"].items():
                now = each.value["after"][name]
                back.setdefault(name, []).extend(
                    _describe_reversal({"pinned": now}, {"pinned": was})
                )
    yield from (PlanItem(name, None, "; ".join(words)) for name, words in back.items())


def _describe_reversal(now: Mapping[str, Any], was: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is, and what is again then."""
    for name, before in was.items():
        if name in ("archived", "pinned"):
            yield f"{name}: {_YES_OR_NO[bool(now.get(name))]} -> {_YES_OR_NO[bool(before)]}"
        elif name == "ended_at":
            yield f"status: open -> ended ({was.get('end_reason') or 'no reason'})"
        elif name != "end_reason":
            yield f"{name}: {now.get(name) or 'none'} -> {before or 'none'}"
