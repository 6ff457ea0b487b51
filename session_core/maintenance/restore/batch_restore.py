"""Restore batches: undo their steps, the newest first.

A step with an item that does not fit stays open: the next restore of the batch tries that item, and
only that, again. A compression is restored by a compressor, through the same methods.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from session_core.compression.compressor import Compressor
from session_core.compression.types import CompressionResult, UndoPlan
from session_core.errors import Conflict, Corrupt, InvalidInput, NotFound
from session_core.ledger.execute import (
    delete_step_marks,
    delete_undone_trash,
    suppress_note_errors,
    wait_for_steps,
)
from session_core.ledger.types import Batch, Member, Step, StoredPlan, TrashItem
from session_core.maintenance import disk, members
from session_core.maintenance.apply import crash_recovery
from session_core.maintenance.apply.step_items import IMAGES
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import CHANGE_KIND, PIN_KIND, RowChange
from session_core.maintenance.restore import step_undo
from session_core.maintenance.restore.rows import TrashContents
from session_core.maintenance.restore.unrestored_items import UnrestoredItems, is_first_try
from session_core.maintenance.types import (
    ApplyRequest,
    ApplyResult,
    Bytes,
    PlanItem,
    PlanPreview,
    RefusedItem,
    RestorePreview,
    RestoreProgressFn,
    RestoreResult,
    StopFn,
)
from session_core.types import RowImages


@dataclass(slots=True)
class RestoreTally:
    """The counts of one restore so far."""

    batch: Batch
    planned: Mapping[str, Member]
    left: int
    rows: int = 0
    unfit: list[RefusedItem] = field(default_factory=list)
    back: set[str] = field(default_factory=set)
    """The members that are as they were before."""
    out: set[str] = field(default_factory=set)
    """Members with an item that could not be restored."""

    any_back: bool = False
    """True if a step was undone."""

    def add_failed_step(self, step: Step, tried: UnrestoredItems | None, reason: str) -> None:
        """Add a step that cannot be undone."""
        names = ", ".join(map(members.get_name, step.members)) or f"a part of {step.id}"
        self.unfit.append(RefusedItem(names, reason))
        self.left -= is_first_try(tried)
        self.out.update(step.members)

    def add_step(self, step: Step, tried: UnrestoredItems | None, result: dict[str, Any]) -> None:
        """Add the result of an undone step."""
        self.any_back = True
        self.rows += result["rows"]
        self.unfit += [RefusedItem(*refused) for refused in result["unfit"]]
        self.left -= is_first_try(tried)
        unrestored = UnrestoredItems.from_result(result)
        tried_names = (
            None if tried is None else {*tried.list_names(), *(id_ for id_, _ in tried.columns)}
        )
        step_members = [id_ for id_ in step.members if members.get_part(id_) != "index"]
        for member in step_members if self.batch.plan is not None else [step.id]:
            if tried_names is None or self._is_part_of_member(member, tried_names):
                self.back.add(member)
            if unrestored is not None and self._is_part_of_member(member, unrestored.list_names()):
                self.out.add(member)

    def build_result(self) -> RestoreResult:
        """Return the result of the restore."""
        outcome: Literal["applied", "partial"] = "partial" if self.left else "applied"
        restored = len(self.back - self.out)
        return RestoreResult(
            outcome, self.batch.id, restored, self.rows, tuple(self.unfit), self.left
        )

    def _is_part_of_member(self, member: str, names: set[str]) -> bool:
        """Return True if one of the names belongs to a member."""
        if self.batch.plan is None:
            return bool(names)
        record = self.planned[member].revision if member in self.planned else None
        own_names = {members.get_name(member)}
        if isinstance(record, dict):
            own_names |= {
                *record.get("sessions", ()),
                str(record.get("session")),
                str(record.get("key")),
            }
        return not own_names.isdisjoint(names)


_YES_OR_NO = {True: "yes", False: "no"}


def restore_batch(
    home: HomeContext,
    batch_id: str,
    for_s: float,
    *,
    client: str,
    progress: RestoreProgressFn | None,
    stop: StopFn | None,
) -> RestoreResult:
    """Restore a batch, or continue its restore."""
    deadline = time.monotonic() + for_s
    batch = home.ledger.get_undoable_batch(batch_id)
    _check_writable(home, _list_undoable_steps(home, batch))
    # Measured first, since the end of the restore deletes the trash.
    trash_bytes, files = home.ledger.count_disk_bytes(), disk.measure_files(home.db)
    open_steps = _list_open_steps(home, batch)
    tally = RestoreTally(
        batch, _load_members(home, batch), sum(is_first_try(tried) for _, tried in open_steps)
    )
    undo_batch = home.ledger.add_batch(step_undo.RESTORE_KIND).id if open_steps else ""
    damaged: Corrupt | None = None
    for step, tried in open_steps:
        try:
            contents = step_undo.read_contents(home, step, tried)
        except Corrupt as error:  # the trash of other steps may be intact
            damaged = error
            tally.add_failed_step(step, tried, str(error))
        except Conflict:  # another process has just restored the batch and deleted its trash
            if home.ledger.get_batch(batch_id).undone_at is None:
                raise
            tally.add_step(step, tried, {"rows": 0, "unfit": ()})
        else:
            tally.add_step(step, *_undo_step(home, undo_batch, step, tried, contents))
        if time.monotonic() >= deadline or (stop is not None and stop()):
            break
        if progress is not None:
            progress(tally.build_result())
    delete_step_marks(home.db, home.ledger)
    if damaged is not None and not tally.any_back:
        raise damaged
    result = tally.build_result()
    if not result.remaining:
        home.ledger.finish_partials(batch_id)
    counts = {"restored": result.restored, "rows": result.rows}
    counts |= {"unfit": len(result.unfit), "remaining": result.remaining}
    with suppress_note_errors(f"the restore of {batch_id}"):
        home.ledger.add_audit_entry(client, f"restore {batch_id}", None, counts)
    delete_undone_trash(home.ledger)
    return replace(result, bytes=_measure_bytes(home, batch_id, trash_bytes, files))


def _measure_bytes(home: HomeContext, batch_id: str, size: int, files: Mapping[str, int]) -> Bytes:
    """Return the growth of the database and the bytes freed in the trash."""
    returned = max(size - home.ledger.count_disk_bytes(), 0)
    trash = home.ledger.get_batch(batch_id).bytes
    freed = Bytes(returned_to_disk=returned, trash=trash)
    with suppress_note_errors("the measured disk space"):
        grown = disk.measure_size_change(
            files, home.db.admin.measure_sizes(tables=False)
        ).needed_now
        return replace(freed, needed_now=grown)
    return freed


def preview_batch(home: HomeContext, batch_id: str) -> RestorePreview:
    """Return the items that a restore would bring back."""
    batch = home.ledger.get_undoable_batch(batch_id)
    open_steps = [step for step in _list_undoable_steps(home, batch) if step.undone_at is None]
    _check_writable(home, open_steps)
    if batch.plan is None:
        trash_items = [item for step in open_steps for item in home.ledger.read_trash(step.id)]
        edited = tuple(_iter_edited_items(trash_items))
        return RestorePreview(batch, len(edited), edited)
    names = {
        members.get_name(member): None
        for step in open_steps
        for member in step.members
        if members.get_part(member) != "index"
    }
    items: tuple[PlanItem, ...] = ()
    with suppress(Conflict, NotFound):  # the plan was deleted
        items = PlanPreview.from_plan(home.ledger.get_plan(batch.plan)).items
    return RestorePreview(
        batch, len(names), tuple(member for member in items if member.id in names)
    )


def _undo_step(
    home: HomeContext,
    undo_batch: str,
    step: Step,
    tried: UnrestoredItems | None,
    contents: TrashContents,
) -> tuple[UnrestoredItems | None, dict[str, Any]]:
    """Undo a step, or the rest of it if another process has restored a part."""
    while True:
        try:
            return tried, step_undo.undo_step(home, undo_batch, step, tried, contents)
        except Conflict:
            wait_for_steps(home.ledger, step.batch, partial(crash_recovery.settle_steps, home))
            current = next(
                candidate
                for candidate in home.ledger.list_steps(step.batch)
                if candidate.id == step.id
            )
            unrestored = UnrestoredItems.from_result(home.ledger.get_last_attempt(step.id))
            if current.undone_at is not None:
                return tried, {"rows": 0, "unfit": ()}
            # The conflict has another cause: raising it ends the loop.
            if unrestored == tried:
                raise
            tried, contents = unrestored, step_undo.read_contents(home, step, unrestored)


def _list_open_steps(home: HomeContext, batch: Batch) -> list[tuple[Step, UnrestoredItems | None]]:
    """Return the steps that are not undone, with the items that remain of each.

    Partly undone steps come last.

    No process begins another step of the batch once its plan is stopped.
    """
    if batch.plan is not None:
        with suppress(Conflict):  # the plan has ended, or the runner did not apply it
            crash_recovery.stop_plan(home, batch.plan)
        wait_for_steps(home.ledger, batch.id, partial(crash_recovery.settle_steps, home))
    open_steps = [
        step for step in reversed(_list_undoable_steps(home, batch)) if step.undone_at is None
    ]
    attempts = [
        (step, UnrestoredItems.from_result(home.ledger.get_last_attempt(step.id)))
        for step in open_steps
    ]
    return sorted(attempts, key=lambda attempt: not is_first_try(attempt[1]))


def _check_writable(home: HomeContext, steps: Iterable[Step]) -> None:
    """Refuse a restore before any change if an index cannot be updated for its rows.

    Raises:
        Unsupported: an index needs an extension that is not loaded.
    """
    if not home.db.admin.list_blocked_indexes():
        return  # avoid reading the trash
    for step in steps:
        trash_items = home.ledger.read_trash(step.id) if step.undone_at is None else ()
        with suppress(Corrupt):  # the other steps may be whole
            for item in trash_items:
                if item.what == IMAGES:
                    home.db.rows.check_rows_writable([RowImages.unpack(item.value).table])


def _list_undoable_steps(home: HomeContext, batch: Batch) -> list[Step]:
    """Return the steps of a batch, and refuse a batch that is itself a restore."""
    steps = home.ledger.list_steps(batch.id)
    if any(step.undoes is not None for step in steps):
        raise InvalidInput(
            f"batch {batch.id} is itself a restore and cannot be restored; make the change again"
        )
    return steps


def _load_members(home: HomeContext, batch: Batch) -> dict[str, Member]:
    if batch.plan is not None:
        with suppress(Conflict, NotFound):  # the plan was deleted
            return {member.id: member for member in home.ledger.get_plan(batch.plan).members}
    return {}


def _iter_edited_items(trash_items: Iterable[TrashItem]) -> Iterator[PlanItem]:
    """Yield the items of an edit, which has no plan, by session."""
    reversals: dict[str, list[str]] = {}
    for item in trash_items:
        if item.what == CHANGE_KIND:
            change = RowChange.from_trash(item.value)
            reversals.setdefault(change.name, []).extend(
                _describe_reversal(change.after, change.before)
            )
        elif item.what == PIN_KIND:
            for name, before in item.value["before"].items():
                after = item.value["after"][name]
                reversals.setdefault(name, []).extend(
                    _describe_reversal({"pinned": after}, {"pinned": before})
                )
    yield from (PlanItem(name, None, "; ".join(words)) for name, words in reversals.items())


def _describe_reversal(current: Mapping[str, Any], restored: Mapping[str, Any]) -> Iterator[str]:
    """Yield the current and the restored values."""
    for name, before in restored.items():
        if name in ("archived", "pinned"):
            yield f"{name}: {_YES_OR_NO[bool(current.get(name))]} -> {_YES_OR_NO[bool(before)]}"
        elif name == "ended_at":
            yield f"status: open -> ended ({restored.get('end_reason') or 'no reason'})"
        elif name != "end_reason":
            yield f"{name}: {current.get(name) or 'none'} -> {before or 'none'}"


def is_compression_batch(home: HomeContext, batch: str) -> bool:
    """Return True if a batch is a compression.

    Raises:
        NotFound: the batch does not exist.
    """
    home.ledger.get_batch(batch)
    steps = home.ledger.list_steps(batch)
    return any(isinstance(step.result, dict) and "compressed" in step.result for step in steps)


def preview_compression(home: HomeContext, batch: str) -> RestorePreview:
    """Return a preview of undoing a compression, with a plan if that would drop messages."""
    with create_compressor(home) as compressor:
        undo = compressor.plan_undo(batch)
    if undo is not None:
        return preview_undo_plan(home, batch, _preview_undo(home, undo))
    # A compression is a single step.
    (step,) = home.ledger.list_steps(batch)
    compression = CompressionResult.from_json(step.result["compressed"])
    reason = f"{compression.tokens_after:,} tokens become {compression.tokens_before:,} again"
    return RestorePreview(
        home.ledger.get_batch(batch), 1, (PlanItem(compression.old_session_id, None, reason),)
    )


def undo_compression(home: HomeContext, batch: str, client: str) -> RestoreResult:
    """Undo a compression, or plan it if that would drop messages."""
    with create_compressor(home) as compressor:
        undone = compressor.undo(batch, client=client)
    if undone.plan is not None:
        return build_planned_result(batch, _preview_undo(home, undone.plan))
    return RestoreResult("applied", batch, 1, undone.restored, (), 0, undone=undone)


def apply_compression_undo(
    home: HomeContext, plan: StoredPlan, request: ApplyRequest
) -> ApplyResult:
    """Undo a compression by its plan, in one step."""
    with create_compressor(home) as compressor:
        undone = compressor.apply_undo(plan.handle, client=request.client)
    return ApplyResult("applied", plan.handle, None, 0, 0, (), 0, undone=undone)


def _preview_undo(home: HomeContext, undo: UndoPlan) -> PlanPreview:
    return PlanPreview.from_plan(home.ledger.get_plan(undo.plan))


def preview_undo_plan(home: HomeContext, batch: str, plan: PlanPreview) -> RestorePreview:
    """Return the preview of an undo that is done by a plan."""
    return RestorePreview(home.ledger.get_batch(batch), plan.count, plan.items, plan)


def build_planned_result(batch: str, plan: PlanPreview) -> RestoreResult:
    """Return the result of a restore that has only planned an undo."""
    return RestoreResult(plan.outcome, batch, 0, 0, (), 0, plan=plan)


def create_compressor(home: HomeContext) -> Compressor:
    """Return a compressor of the home."""
    return Compressor(home.db, home.ledger, store=home.store, hooks=home.hooks, clock=home.clock)
