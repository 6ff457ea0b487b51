"""What a plan has come to: what is gone or ended, what was left and why, what remains."""

from __future__ import annotations

from typing import Any

from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Batch, Member, Plan
from session_core.maintenance import findings, members, unlinking
from session_core.maintenance.answers import Applied, Skipped
from session_core.maintenance.planner import PLUGINS
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

NOT_AFRESH = "could not begin afresh, and does with its next message"

ROOM = "room"
"""In the result of a step: what was won back."""

_LEFT = "it could not be removed, or was used just then"


class Outcome:
    """Says what the plans of one home have come to."""

    def __init__(self, db: StateDatabase, ledger: Ledger, store: SessionStore | None) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store

    def of(self, batch: Batch, plan: Plan) -> Applied:
        """Return what a plan has come to by now."""
        skipped = [
            Skipped(members.name_of(member), member.skipped)
            for member in plan.members
            if member.skipped is not None and not member.half
        ]
        begun = self._begun(batch)
        done = [
            member
            for member in plan.members
            if member.step not in {None, *begun} and members.part_of(member) != "index"
        ]
        left = [each for each in done if self._is_left(each)]
        skipped += [Skipped(members.name_of(each), _LEFT) for each in left]
        ended = sum(members.part_of(member) == "ended" for member in done)
        warnings = [PLUGINS] if self._db.kind == "hermes" and ended else []
        if plan.about["wanted"]["start_new"]:
            warnings += [f"{key} {NOT_AFRESH}" for each in done for key in self._not_afresh(each)]
        warnings += self._staying(batch, plan)
        taken = sum(member.step in begun for member in plan.members)
        remaining = len(plan.remaining) + len(plan.halves) + taken
        room = self._room(plan)
        if room is not None and room["in_the_way"] is not None:
            warnings.append(room["in_the_way"])
        return Applied(
            outcome="partial" if remaining else "applied",
            plan=plan.handle,
            batch=batch.id,
            removed=len(done) - ended - len(left),
            finalized=ended,
            skipped=tuple(skipped),
            remaining=remaining,
            warnings=tuple(warnings),
        )

    def _begun(self, batch: Batch) -> set[str]:
        """Return the steps that somebody has taken and not done, who may yet give them up."""
        return {
            step.id
            for step in self._ledger.unsettled()
            if step.batch == batch.id and step.state in ("writing", "prepared")
        }

    def _staying(self, batch: Batch, plan: Plan) -> list[str]:
        """Say which files of sessions that were removed are still there."""
        folder = findings.folder_of(self._db, self._store)
        if folder is None:
            return []
        left = (member for member in plan.members if member.skipped is not None)
        ids = {each for member in left for each in members.sessions_of(member)}
        return unlinking.staying(self._ledger.steps(batch.id), folder, but=ids)

    def bytes_of_files(self, batch: Batch, plan: Plan) -> int:
        """Return the size of the files that the plan named and that are gone."""
        begun = self._begun(batch)
        return sum(
            member.revision["bytes"]
            for member in plan.members
            if members.part_of(member) == "files"
            and member.step not in {None, *begun}
            and not self._is_left(member)
        )

    def _room(self, plan: Plan) -> dict[str, Any] | None:
        """Return what was won back, where the plan has done that."""
        step = next((m.step for m in plan.members if members.part_of(m) == "index"), None)
        result = None if step is None else self._ledger.step(step).result
        return None if result is None else dict(result[ROOM])

    def _not_afresh(self, member: Member) -> list[str]:
        """Return the chats that are still in what was ended."""
        if self._store is None or members.part_of(member) != "ended":
            return []
        led: dict[str, str] = member.revision["routes"]
        return [key for key, each in led.items() if self._store.peek_session_id(key) == each]

    def _is_left(self, member: Member) -> bool:
        """Whether a route or a file is still there although it was to be removed."""
        part, noted = members.part_of(member), member.revision
        if part == "files":
            folder = findings.folder_of(self._db, self._store)
            return folder is not None and (folder / members.name_of(member)).exists()
        if part != "routes" or self._store is None or noted["scope"]:
            return False
        there = self._store.peek_session_id(noted["key"])
        return there is not None and there == noted["session"]
