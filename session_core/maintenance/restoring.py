"""Restore: what the steps of a batch have kept is put back, the newest step first.

A row is put where there is none of its key, and what was only changed is changed back where it is
still as it was left. Whatever does not fit is said, and stays in the trash until that expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session_core.errors import Changed, Conflict, InvalidInput
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept, Step
from session_core.ledger.steps import clear_marks, noting, run_step
from session_core.maintenance import files, members, rerouting
from session_core.maintenance.answers import Restored, Unfit
from session_core.maintenance.changes import CHANGE, Change
from session_core.maintenance.edits import PIN
from session_core.maintenance.removal import IMAGES, OF
from session_core.maintenance.rerouting import ROUTE
from session_core.maintenance.sweeping import UNLINKED
from session_core.models import Images, Misfit, Raw
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

WHAT = "restore"

_MINE = frozenset({IMAGES, OF, CHANGE, ROUTE, PIN, files.FILE, files.PIECE})


@dataclass(slots=True)
class _Contents:
    """What a step has kept, but its files."""

    images: list[Images] = field(default_factory=list)
    of: dict[str, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    routes: list[Mapping[str, Any]] = field(default_factory=list)
    pins: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """What they were, and what they became."""
    has_files: bool = False
    lost: list[tuple[str, str]] = field(default_factory=list)
    """Files in whose place there is another one."""

    @classmethod
    def of_step(cls, kept: Iterable[Kept]) -> _Contents:
        """Sort what a step has kept.

        Raises:
            InvalidInput: something in it is put back otherwise.
        """
        found = cls()
        for one in kept:
            if one.what not in _MINE:
                raise InvalidInput(f"its trash has a {one.what}, which is not restored here")
            if one.what == IMAGES:
                found.images.append(Images.unpack(one.value))
            elif one.what == OF:
                found.of[one.value["id"]] = _unpacked(one.value["started_at"])
            elif one.what == CHANGE:
                found.changes.append(Change.of(one.value))
            elif one.what == ROUTE:
                found.routes.append(one.value)
            elif one.what == PIN:
                after = one.value["after"]
                found.pins |= {k: (was, after[k]) for k, was in one.value["before"].items()}
            found.has_files |= one.what == files.FILE
        return found


class Restoring:
    """Takes batches of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        *,
        client: str,
        take_up: Callable[[], None],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._pins = ledger.pins
        self._client = client
        self._take_up = take_up

    def restore(self, batch_id: str, for_s: float) -> Restored:
        """Put back what a batch has changed, or go on with that."""
        until = time.monotonic() + for_s
        self._take_up()
        batch = self._ledger.undoable(batch_id)
        steps = self._ledger.steps(batch_id)
        if any(step.undoes is not None for step in steps):
            raise InvalidInput(
                f"batch {batch_id} has itself taken something back; to have that gone again, make "
                "the change anew"
            )
        if batch.plan is not None:
            with suppress(Conflict):  # it has ended, or was never of a plan
                self._ledger.close_plan(batch.plan)
        left = [step for step in reversed(steps) if step.undone_at is None]
        unfit: list[Unfit] = []
        restored = rows = done = 0
        undoing = self._ledger.add_batch(WHAT).id if left else ""
        for step in left:
            if done and time.monotonic() >= until:
                break
            result = self._undo(undoing, step)
            unfit += [Unfit(*each) for each in result["unfit"]]
            rows += result["rows"]
            restored += _count(step) if batch.plan is not None else 1
            done += 1
        clear_marks(self._db, self._ledger)
        remaining = len(left) - done
        outcome = "partial" if remaining else "applied"
        counts = {"restored": restored, "rows": rows, "unfit": len(unfit), "remaining": remaining}
        with noting(f"the restore of {batch_id}"):
            self._ledger.audit(self._client, f"restore {batch_id}", None, counts)
        return Restored(outcome, batch_id, restored, rows, tuple(unfit), remaining)  # type: ignore[arg-type]

    def _undo(self, batch: str, step: Step) -> dict[str, Any]:
        contents = _Contents.of_step(self._ledger.trash(step.id))
        result = run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: (),
            change=partial(self._put, step, contents),
            undoes=step.id,
            within=partial(self._within, step, contents),
        )
        return dict(result)

    @contextmanager
    def _within(self, step: Step, contents: _Contents) -> Iterator[None]:
        """Files are put back before, and what is beside the home behind it."""
        if contents.has_files:
            contents.lost += self._put_files(step)
        self._unpin(contents)  # a restore that is cut short here is made again, not one behind it
        with ExitStack() as stack:
            if (step.result or {}).get(UNLINKED):
                stack.enter_context(self._db.transaction(linked=False))
            elif contents.routes and self._store is not None:
                stack.enter_context(self._store.together(*rerouting.keys_of(contents.routes)))
            yield
        for end in (step.result or {}).get("ended", ()):
            self._hooks.reopened(end["session_id"])
            if self._store is not None and self._db.kind == "hermes":
                self._store.marks.forget(end["session_id"])

    def _put(self, step: Step, contents: _Contents, db: StateDatabase) -> dict[str, Any]:
        unfit = list(contents.lost)
        rows = _put_images(db, contents, unfit)
        for change in reversed(contents.changes):
            try:
                change.reversed().write(db)
            except Changed:
                key = ", ".join(map(str, change.key.values()))
                names = ", ".join(change.after)
                unfit.append((f"{names} of {key} in {change.table}", "it was changed again since"))
        led: dict[str, str | None] = dict((step.result or {}).get("led", {}))
        for end in (step.result or {}).get("ended", ()) if self._store is not None else ():
            led |= {key: rerouting.text_if_unused(db, self._store, key) for key in end["later"]}
        for value in contents.routes:
            why = (
                "this home has no routes"
                if self._store is None
                else rerouting.put_back(db, self._store, value, led.get(value["key"]))
            )
            if why is not None:
                unfit.append((f"the route of {value['key']}", why))
        return {"rows": rows, "unfit": unfit}

    def _put_files(self, step: Step) -> Iterator[tuple[str, str]]:
        """Put files back; yield those in whose place there is another one."""
        kept = self._ledger.trash(step.id)
        for one in kept:
            if one.what != files.FILE or self._db.folder is None:
                continue
            if files.put_back(one.value, kept, self._db.folder) == "taken":
                yield f"the file {one.value['name']}", "another one has its name by now"

    def _unpin(self, contents: _Contents) -> None:
        if contents.pins:
            here = self._pins.all()
            same = {k: was for k, (was, became) in contents.pins.items() if (k in here) == became}
            self._pins.set(same)


def _count(step: Step) -> int:
    """Return how many things a step has changed; that the index was merged is none."""
    return sum(members.part_of(each) != "index" for each in step.members)


def _put_images(db: StateDatabase, contents: _Contents, unfit: list[tuple[str, str]]) -> int:
    """Put rows back, those of sessions first: what belongs to a stranger's is left out."""
    sessions = [image for image in contents.images if image.table == "sessions"]
    rest = [image for image in contents.images if image.table != "sessions"]
    put = db.put_images(sessions)
    strangers = {misfit.key[0] for misfit in put.refused}
    for session_id, started_at in contents.of.items():
        row = db.get_session(session_id)
        if row is None or row["started_at"] != started_at:
            strangers.add(session_id)
            unfit.append((f"messages of {session_id}", "that session is another one by now"))
    more = db.put_images([_without(image, strangers) for image in rest])
    for each in (put, more):
        unfit += [(_named(misfit), misfit.why) for misfit in (*each.refused, *each.emptied)]
        for table, columns in each.dropped_columns.items():
            what = f"{', '.join(columns)} of {table}"
            unfit.append((what, "this home has no such column any more"))
    return put.inserted + put.present + more.inserted + more.present


def _without(image: Images, strangers: Collection[Any]) -> Images:
    """Return an image without the rows that belong to sessions of others."""
    place = next((at for at, name in enumerate(image.columns) if name in _OWNERS), None)
    if place is None or not strangers:
        return image
    rows = tuple(row for row in image.rows if row[place] not in strangers)
    return Images(image.table, image.columns, rows, shared=image.shared)


_OWNERS = ("session_id", "conversation_id")


def _named(misfit: Misfit) -> str:
    key = ", ".join(map(str, misfit.key))
    what = f"{misfit.table} {key}".strip()
    return f"{misfit.column} of {what}" if misfit.column else what


def _unpacked(value: Any) -> Any:
    return Raw(value["raw"]) if isinstance(value, dict) else value
