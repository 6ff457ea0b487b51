"""What one restore has done so far, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from session_core.ledger.records import Batch, Member, Step
from session_core.maintenance import members
from session_core.maintenance.answers import Restored, Unfit
from session_core.maintenance.left import Left, is_new


@dataclass(slots=True)
class Tally:
    """What one restore has done so far."""

    batch: Batch
    planned: Mapping[str, Member]
    left: int
    rows: int = 0
    unfit: list[Unfit] = field(default_factory=list)
    back: set[str] = field(default_factory=set)
    """The members that are as they were."""
    out: set[str] = field(default_factory=set)
    """Those of which something is not."""

    any_back: bool = False
    """Whether any step was taken back at all."""

    def leave(self, step: Step, tried: Left | None, why: str) -> None:
        """Note a step of which nothing can be taken back."""
        names = ", ".join(map(members.name_of, step.members)) or f"a part of {step.id}"
        self.unfit.append(Unfit(names, why))
        self.left -= is_new(tried)
        self.out.update(step.members)

    def note(self, step: Step, tried: Left | None, result: dict[str, Any]) -> None:
        """Note what has become of a step."""
        self.any_back = True
        self.rows += result["rows"]
        self.unfit += [Unfit(*each) for each in result["unfit"]]
        self.left -= is_new(tried)
        left = Left.of(result)
        wanted = None if tried is None else {*tried.names(), *(each for each, _ in tried.columns)}
        own = [each for each in step.members if members.part_of(each) != "index"]
        for member in own if self.batch.plan is not None else [step.id]:
            if wanted is None or self._concerns(member, wanted):
                self.back.add(member)
            if left is not None and self._concerns(member, left.names()):
                self.out.add(member)

    def answer(self) -> Restored:
        """Return what was done."""
        back, outcome = len(self.back - self.out), "partial" if self.left else "applied"
        return Restored(outcome, self.batch.id, back, self.rows, tuple(self.unfit), self.left)  # type: ignore[arg-type]

    def _concerns(self, member: str, names: set[str]) -> bool:
        """Whether something of a name is a part of a member."""
        if self.batch.plan is None:
            return bool(names)
        noted = self.planned[member].revision if member in self.planned else None
        of = {members.name_of(member)}
        if isinstance(noted, dict):
            of |= {*noted.get("sessions", ()), str(noted.get("session")), str(noted.get("key"))}
        return not of.isdisjoint(names)
