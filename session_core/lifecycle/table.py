"""The table of cached agents: every step is atomic, and nobody else's code runs under its lock."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from session_core.lifecycle.coherence import Verdict
from session_core.lifecycle.slots import Slot
from session_core.models import Revision


class Idle(NamedTuple):
    """An agent that no turn of ours uses, as it was when it was looked at."""

    key: str
    slot: Slot
    used_at: float


class Table:
    """Slots by session key, the one that was used longest ago first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, Slot] = OrderedDict()

    def get(self, key: str) -> tuple[Slot | None, int]:
        """Return the slot of a key, and the version that it has now."""
        with self._lock:
            slot = self._slots.get(key)
            return slot, 0 if slot is None else slot.version

    def all(self) -> list[tuple[str, Slot]]:
        """Return the agents that are built."""
        with self._lock:
            return [(key, slot) for key, slot in self._slots.items() if not slot.pending]

    def idle(self) -> list[Idle]:
        """Return the agents that no turn of ours uses, the one used longest ago first."""
        with self._lock:
            return [
                Idle(key, slot, slot.used_at)
                for key, slot in self._slots.items()
                if not slot.pending and not slot.turns
            ]

    def put(self, key: str, slot: Slot) -> None:
        """Store a slot in place of whatever is there."""
        with self._lock:
            before = self._slots.get(key)
            self._store(key, slot)
            if before is not None:
                before.settled.set()

    def pop(self, key: str) -> Slot | None:
        """Take a slot out, pending or not."""
        with self._lock:
            slot = self._slots.pop(key, None)
            if slot is not None:
                slot.settled.set()
            return slot

    def drop(self, key: str, *, unless: str | None = None) -> Slot | None:
        """Take an agent out; a pending build is left alone, and one of the session `unless`."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None or slot.pending or (unless is not None and slot.session_id == unless):
                return None
            return self._slots.pop(key)

    def drop_slot(self, key: str, slot: Slot) -> bool:
        """Take this agent out, if it is still the one of its key."""
        with self._lock:
            if self._slots.get(key) is not slot or slot.pending:
                return False
            del self._slots[key]
            return True

    def drop_idle(self, idle: Idle) -> bool:
        """Take an agent out unless it was used since."""
        with self._lock:
            slot = self._slots.get(idle.key)
            unused = slot is idle.slot and not slot.turns and slot.used_at == idle.used_at
            if unused:
                del self._slots[idle.key]
            return unused

    def enter(self, key: str) -> Slot | None:
        """Begin a turn with the agent that is there."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None or slot.pending:
                return None
            self._use(key, slot)
            return slot

    def reuse(
        self,
        key: str,
        slot: Slot,
        version: int,
        session_id: str | None,
        verdict: Verdict,
        *,
        alone: bool,
    ) -> bool:
        """Begin a turn with an agent, unless it was changed since it was judged.

        Nor where it is to be in one turn alone and is in another one.
        """
        with self._lock:
            if self._slots.get(key) is not slot or slot.version != version:
                return False
            if alone and slot.turns:
                return False
            is_first_known = slot.baseline is None and slot.session_id == session_id
            if slot.shape == "ours" and (verdict.how == "switched" or is_first_known):
                slot.rebase(session_id, verdict.baseline)
            self._use(key, slot)
            return True

    def begin(self, key: str, instead_of: Slot | None, version: int, pending: Slot) -> bool:
        """Begin a build in place of a slot, unless it was changed since it was judged."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is not instead_of or (slot is not None and slot.version != version):
                return False
            self._store(key, pending)
            pending.turns += 1
            return True

    def keep(self, key: str, slot: Slot, agent: Any) -> Slot | None:
        """End a build with its agent; return the slot that somebody had put there meanwhile."""
        with self._lock:
            before = self._slots.get(key)
            slot.agent = agent
            slot.version += 1
            self._store(key, slot)
            slot.settled.set()
            return None if before is slot or before is None or before.pending else before

    def leave(self, key: str, slot: Slot) -> None:
        """End a turn; a build that has no agent yet has failed."""
        with self._lock:
            slot.turns -= 1
            slot.used_at = self._clock()
            if slot.pending:
                if self._slots.get(key) is slot:
                    del self._slots[key]
                slot.settled.set()

    def appended(self, slot: Slot, session_id: str, before: Revision, after: Revision) -> None:
        """Note an append of our own."""
        with self._lock:
            slot.appended(session_id, before, after)

    def moved(self, slot: Slot, old: str, new: str, revision: Revision | None) -> None:
        """Note that the conversation of an agent goes on in another session."""
        with self._lock:
            if slot.session_id == old:
                slot.rebase(new, revision if slot.shape == "ours" else None)

    def rebase(
        self, key: str, slot: Slot, version: int, session_id: str | None, count: int
    ) -> bool:
        """Take over a count, unless the slot was changed since it was read."""
        with self._lock:
            same = self._slots.get(key) is slot and slot.version == version
            if same:
                slot.rebase(session_id, count)
            return same

    def _store(self, key: str, slot: Slot) -> None:
        slot.used_at = self._clock()
        self._slots[key] = slot
        self._slots.move_to_end(key)

    def _use(self, key: str, slot: Slot) -> None:
        slot.turns += 1
        self._store(key, slot)
