"""Undo one step, or its part that belongs to some sessions.

A row is inserted if its key is free, and changed columns are changed back if they still are as the
step left them. Items that do not fit are reported and stay in the trash, and the step stays open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed
from session_core.ledger.execute import run_step
from session_core.ledger.types import Step
from session_core.maintenance.apply import home_files, preconditions, route_removal
from session_core.maintenance.apply.orphan_removers import UNLINKED_KEY
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import MemberOutdated, RowChange
from session_core.maintenance.restore.rows import SESSIONS, RefusedPairs, RowRestorer, TrashContents
from session_core.maintenance.restore.unrestored_items import UnrestoredItems
from session_core.maintenance.types import ProtectionReason
from session_core.state.protocol import StateDatabase
from session_core.types import Revision

RESTORE_KIND = "restore"
"""The kind of the batches of restores."""

_PIN_REASONS: tuple[ProtectionReason, ...] = ("pinned",)


@dataclass(frozen=True, slots=True)
class _StepUndo:
    """The undo of one step."""

    step: Step
    tried: UnrestoredItems | None
    contents: TrashContents
    others: UnrestoredItems | None = None
    """Items of sessions that were not requested; they stay in the trash."""
    left: UnrestoredItems = field(default_factory=UnrestoredItems)
    """Items that do not fit."""

    @property
    def result(self) -> Mapping[str, Any]:
        """The recorded result of the step."""
        return self.step.result or {}


def read_contents(home: HomeContext, step: Step, tried: UnrestoredItems | None) -> TrashContents:
    """Return the trash of a step, or the items that an earlier try has left.

    Raises:
        Corrupt: the trash is damaged.
    """
    return TrashContents.from_trash(home.ledger.read_trash(step.id), tried)


def undo_step(
    home: HomeContext,
    batch: str,
    step: Step,
    tried: UnrestoredItems | None,
    contents: TrashContents,
) -> dict[str, Any]:
    """Undo a step as a part of a batch."""
    return _run_undo(home, batch, _StepUndo(step, tried, contents))


def undo_step_for_sessions(
    home: HomeContext, batch: str, step: Step, ids: Collection[str]
) -> dict[str, Any] | None:
    """Undo the changes of a step to some sessions.

    Return None if no changes to these sessions remain.

    Raises:
        Changed: another process is undoing them.
    """
    tried = UnrestoredItems.from_result(home.ledger.get_last_attempt(step.id))
    contents = TrashContents.from_trash(home.ledger.read_trash(step.id), tried)
    selected, others = contents.split_off_sessions(ids)
    if selected == UnrestoredItems():
        return None
    contents = TrashContents.from_trash(home.ledger.read_trash(step.id), selected)
    return _run_undo(home, batch, _StepUndo(step, tried, contents, others))


def _run_undo(home: HomeContext, batch: str, undo: _StepUndo) -> dict[str, Any]:
    # Before the transaction, since it takes 0.2 s with 10,000 routes.
    activity = home.gather_activity() if undo.contents.list_sessions_to_end() else None
    result = run_step(
        home.db,
        home.ledger,
        batch,
        before=lambda _: (),
        change=partial(_restore_contents, home, undo, activity),
        undoes=undo.step.id,
        within=partial(_wrap_step, home, undo),
    )
    return dict(result)


@contextmanager
def _wrap_step(home: HomeContext, undo: _StepUndo) -> Iterator[None]:
    """Restore files before the step, and update state outside the database after it."""
    contents = undo.contents
    # Several processes may restore one step: only one of them may undo each part.
    if UnrestoredItems.from_result(home.ledger.get_last_attempt(undo.step.id)) != undo.tried:
        raise Changed("another process has just restored a part of this step; try again")
    if contents.files:
        contents.lost += _restore_files(home, undo)
    # An interrupted restore is repeated if it stops here, but not after the commit.
    _restore_pins(home, contents)
    # Rows without a session refer to missing rows, which a normal transaction refuses.
    with ExitStack() as stack:
        if undo.result.get(UNLINKED_KEY):
            stack.enter_context(home.db.transaction(linked=False))
        elif contents.routes and home.store is not None:
            stack.enter_context(
                home.store.transaction(*route_removal.list_route_keys(contents.routes))
            )
        yield
    _mark_reopened_sessions(home, undo)


def _mark_reopened_sessions(home: HomeContext, undo: _StepUndo) -> None:
    """Mark the sessions that the undo has reopened, so that hooks run at their next end."""
    changes, refused = undo.contents.changes, undo.left.changes
    reopened = {change.key.get("id") for place, change in changes.items() if place not in refused}
    for end in undo.result.get("ended", ()):
        if end["session_id"] in reopened:
            home.hooks.mark_reopened(end["session_id"])
            if home.store is not None and home.db.admin.get_capabilities().foreign_gateway:
                home.store.marks.forget(end["session_id"])


def _restore_contents(
    home: HomeContext, undo: _StepUndo, activity: ActivitySnapshot | None, db: StateDatabase
) -> dict[str, Any]:
    contents, left = undo.contents, undo.left
    refused = [(f"the file {name}", "another file has its name by now") for name in contents.lost]
    left.files += contents.lost
    rows = RowRestorer(
        db, contents, left, refused, home.ledger.find_batch_of_session
    ).restore_rows()
    # Undo in the reverse order of the writes.
    for place, change in reversed(contents.changes.items()):
        reason = _restore_columns(home, db, undo, change, activity)
        if reason is not None:
            label = f"{', '.join(change.after)} of {change.name} in {change.table}"
            refused.append((label, reason))
            left.changes[place] = change.name
    _restore_routes(home, db, undo, refused)
    unrestored = left if undo.others is None else left.merge_untried(undo.others)
    return {"rows": rows, "unfit": refused, "left": unrestored.to_json()}


def _restore_columns(
    home: HomeContext,
    db: StateDatabase,
    undo: _StepUndo,
    change: RowChange,
    activity: ActivitySnapshot | None,
) -> str | None:
    """Change columns back, or return the reason if they have changed since."""
    session_id = change.key.get("id")
    was_ended = change.table == SESSIONS and change.before.get("ended_at") is not None
    if activity is not None and was_ended and change.after.get("ended_at", 0) is None:
        reason = _find_reason_to_stay_open(home, db, str(session_id), undo, activity)
        if reason is not None:
            return reason
    try:
        change.reverse().write_row(db)
    except Changed:
        return "it was changed again since"
    return None


def _restore_routes(
    home: HomeContext, db: StateDatabase, undo: _StepUndo, refused: RefusedPairs
) -> None:
    route_texts: dict[str, str | None] = dict(undo.result.get("led", {}))
    for end in undo.result.get("ended", ()) if home.store is not None else ():
        route_texts |= {
            key: route_removal.read_unused_route_text(db, home.store, key) for key in end["later"]
        }
    for value in undo.contents.routes:
        reason = (
            "this home has no routes"
            if home.store is None
            else route_removal.restore_route(db, home.store, value, route_texts.get(value["key"]))
        )
        if reason is not None:
            refused.append((f"the route of {value['key']}", reason))
            undo.left.routes.append(value["key"])


def _restore_files(home: HomeContext, undo: _StepUndo) -> Iterator[str]:
    """Restore files, and yield the files whose names other files have taken."""
    trash_items, store = (
        home.ledger.read_trash(undo.step.id),
        home.session_folder,
    )
    for item in trash_items:
        if item.what != home_files.FILE_KIND or home.db.folder is None:
            continue
        name = item.value["name"]
        if (
            undo.contents.is_wanted_file(name)
            and home_files.restore_file(item.value, trash_items, home.db.folder, store) == "taken"
        ):
            yield name


def _restore_pins(home: HomeContext, contents: TrashContents) -> None:
    if contents.pins:
        pins = home.ledger.pins
        pinned = pins.list_pinned()
        unchanged = {
            id_: before
            for id_, (before, after) in contents.pins.items()
            if (id_ in pinned) == after
        }
        pins.set_pins(unchanged)


def _find_reason_to_stay_open(
    home: HomeContext,
    db: StateDatabase,
    session_id: str,
    undo: _StepUndo,
    activity: ActivitySnapshot,
) -> str | None:
    """Return the reason not to end a reopened session again, such as that it is in use."""
    row = db.get_session(session_id)
    if row is None:
        return None
    reopened = undo.result.get("reopened", {}).get(session_id)
    # The edit recorded the revision after it.
    if reopened is not None and not preconditions.is_at_revision(
        db, session_id, Revision(*reopened)
    ):
        return "it was used since; end it by a plan"
    revision = db.get_revision(session_id)
    # A chat that was routed to it all the time has not used it.
    is_as_it_was = reopened is not None and _has_same_chats(home, db, session_id, undo)
    exempt: tuple[ProtectionReason, ...] = (
        (*_PIN_REASONS, "routed") if is_as_it_was else _PIN_REASONS
    )
    try:
        preconditions.require_unprotected(
            session_id, row, revision, activity, removed=False, exempt=exempt
        )
        preconditions.require_not_in_use(db, {session_id: session_id}, activity, (), exempt=exempt)
    except MemberOutdated as error:
        return str(error)
    return None


def _has_same_chats(home: HomeContext, db: StateDatabase, session_id: str, undo: _StepUndo) -> bool:
    """Return True if no chat has entered a session since it was reopened."""
    chats_before = undo.result.get("routed", {}).get(session_id, ())
    return set(route_removal.list_session_chats(db, home.store, session_id)) <= set(chats_before)
