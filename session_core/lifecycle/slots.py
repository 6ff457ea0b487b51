"""One cached agent: under which signature it was built, for which session, and what that was then.

A slot also keeps the shape in which it was stored: a plain tuple of two to four elements, as older
code does it, or ours, whose third element is a revision.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from session_core.errors import InvalidInput
from session_core.models import Revision

NOTHING = Revision(0, 0, 0, 0, None)
"""What a session is that has no message yet, whether it has a row already or not."""


class _Pending:
    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()
"""Stands in the place of an agent that is being built."""

Shape = Literal["ours", "unguarded", "counted", "counted_of"]
_SHAPES: dict[int, Shape] = {2: "unguarded", 3: "counted", 4: "counted_of"}


@dataclass(slots=True, eq=False)
class Slot:
    """One cached agent, or one that is being built."""

    agent: Any
    signature: Any
    session_id: str | None = None
    baseline: Revision | int | None = None
    shape: Shape = "ours"
    used_at: float = 0.0
    turns: int = 0
    version: int = 0
    links: dict[Revision, Revision] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def pending(self) -> bool:
        """Whether its agent is still being built."""
        return self.agent is PENDING

    def rebase(self, session_id: str | None, baseline: Revision | int | None) -> None:
        """Say that the agent knows this session as it is at this revision."""
        self.session_id, self.baseline = session_id, baseline
        self.links.clear()
        self.version += 1

    def appended(self, session_id: str, before: Revision, after: Revision) -> None:
        """Go on along the chain of our own appends, in whatever order they are noted.

        An append that does not follow is kept as a loose link: somebody else wrote in between.
        """
        if self.shape != "ours" or self.session_id != session_id:
            return
        self.version += 1
        if not isinstance(self.baseline, Revision):
            self.baseline = after
            return
        self.links[before] = after
        while self.baseline in self.links:
            self.baseline = self.links.pop(self.baseline)
        seen = self.baseline.last_id
        self.links = {old: new for old, new in self.links.items() if new.last_id > seen}

    def as_tuple(self) -> tuple[Any, ...]:
        """Return it as it is seen from outside."""
        whole = (self.agent, self.signature, self.baseline, self.session_id)
        return whole[: {"unguarded": 2, "counted": 3}.get(self.shape, 4)]


def from_tuple(value: tuple[Any, ...]) -> Slot:
    """Return the slot that a tuple stands for.

    Raises:
        InvalidInput: it is no tuple of an agent, a signature, and perhaps a count and a session.
    """
    if not isinstance(value, tuple) or len(value) not in _SHAPES or value[0] is None:
        raise InvalidInput(
            "a cached agent is a tuple (agent, signature[, message count or revision[, session]])"
        )
    agent, signature, baseline, session_id = (*value, None, None)[:4]
    shape = "ours" if isinstance(baseline, Revision) else _SHAPES[len(value)]
    if shape == "ours" and session_id is None:
        raise InvalidInput("a revision needs the id of its session")
    return Slot(agent, signature, session_id, baseline, shape)
