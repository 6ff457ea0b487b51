"""The table of cached agents, the decision to reuse an agent, and turns with cached agents."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from session_core._typing import Self
from session_core.aio import get_worker_threads
from session_core.compression.types import CompressionResult
from session_core.errors import InvalidInput, NotFound
from session_core.hooks.foreign_calls import Reporter
from session_core.state.protocol import StateDatabase
from session_core.types import AppendManyResult, AppendResult, Revision, SessionRow


class IdleAgent(NamedTuple):
    """An agent outside of any turn, with its time of last use when it was listed."""

    key: str
    slot: AgentSlot
    used_at: float


class AgentTable:
    """The slots of agents by session key, least recently used first.

    Every method is atomic, and no code of a caller runs under the lock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, AgentSlot] = OrderedDict()

    def get(self, key: str) -> tuple[AgentSlot | None, int]:
        """Return the slot of a key and its current version."""
        with self._lock:
            slot = self._slots.get(key)
            return slot, 0 if slot is None else slot.version

    def list_agents(self) -> list[tuple[str, AgentSlot]]:
        """Return the keys and slots of all agents that are built."""
        with self._lock:
            return [(key, slot) for key, slot in self._slots.items() if not slot.is_pending]

    def list_idle(self) -> list[IdleAgent]:
        """Return the agents outside of any turn, least recently used first."""
        with self._lock:
            return [
                IdleAgent(key, slot, slot.used_at)
                for key, slot in self._slots.items()
                if not slot.is_pending and not slot.turns
            ]

    def put(self, key: str, slot: AgentSlot) -> None:
        """Store a slot in place of the current slot of the key."""
        with self._lock:
            before = self._slots.get(key)
            self._store_slot(key, slot)
            # Threads that wait for the replaced build try again.
            if before is not None:
                before.settled.set()

    def pop(self, key: str) -> AgentSlot | None:
        """Remove and return a slot, also if its agent is being built."""
        with self._lock:
            slot = self._slots.pop(key, None)
            if slot is not None:
                slot.settled.set()
            return slot

    def drop(self, key: str, *, unless: str | None = None) -> AgentSlot | None:
        """Remove and return a slot, unless its agent is being built or is of session `unless`."""
        with self._lock:
            slot = self._slots.get(key)
            if (
                slot is None
                or slot.is_pending
                or (unless is not None and slot.session_id == unless)
            ):
                return None
            return self._slots.pop(key)

    def drop_slot(self, key: str, slot: AgentSlot) -> bool:
        """Remove a slot.

        Return False if it is no longer the slot of its key.
        """
        with self._lock:
            if self._slots.get(key) is not slot or slot.is_pending:
                return False
            del self._slots[key]
            return True

    def drop_idle(self, idle: IdleAgent) -> bool:
        """Remove an idle agent.

        Return False if it was used since it was listed.
        """
        with self._lock:
            slot = self._slots.get(idle.key)
            is_unused = slot is idle.slot and not slot.turns and slot.used_at == idle.used_at
            if is_unused:
                del self._slots[idle.key]
            return is_unused

    def enter_turn(self, key: str) -> AgentSlot | None:
        """Begin a turn with the built agent of a key, or return None."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None or slot.is_pending:
                return None
            self._mark_used(key, slot)
            return slot

    def reuse_agent(
        self,
        key: str,
        slot: AgentSlot,
        version: int,
        session_id: str | None,
        decision: ReuseDecision,
        *,
        alone: bool,
    ) -> bool:
        """Begin a turn with an agent.

        Return False if the slot changed since `decide_reuse`. With `alone`, an agent that is in
        another turn is not reused.
        """
        with self._lock:
            if self._slots.get(key) is not slot or slot.version != version:
                return False  # changed since the caller has decided without the lock
            if alone and slot.turns:
                return False
            is_first_known = slot.baseline is None and slot.session_id == session_id
            if slot.shape == "ours" and (decision.how == "switched" or is_first_known):
                slot.set_known_revision(session_id, decision.baseline)
            self._mark_used(key, slot)
            return True

    def begin_build(
        self, key: str, replaced: AgentSlot | None, version: int, pending: AgentSlot
    ) -> bool:
        """Replace a slot by a pending build.

        Return False if it changed since `decide_reuse`.
        """
        with self._lock:
            slot = self._slots.get(key)
            if slot is not replaced or (slot is not None and slot.version != version):
                return False
            self._store_slot(key, pending)
            pending.turns += 1
            return True

    def finish_build(self, key: str, slot: AgentSlot, agent: Any) -> AgentSlot | None:
        """Store the agent of a build.

        Return the slot that another thread stored meanwhile.
        """
        with self._lock:
            before = self._slots.get(key)
            slot.agent = agent
            slot.version += 1
            self._store_slot(key, slot)
            slot.settled.set()
            return None if before is slot or before is None or before.is_pending else before

    def end_turn(self, key: str, slot: AgentSlot) -> None:
        """End a turn. If its agent is still pending, the build has failed and is removed."""
        with self._lock:
            slot.turns -= 1
            slot.used_at = self._clock()
            if slot.is_pending:
                # Waiting threads are woken in any case; the first of them begins a new build.
                if self._slots.get(key) is slot:
                    del self._slots[key]
                slot.settled.set()

    def note_appended(
        self, slot: AgentSlot, session_id: str, before: Revision, after: Revision
    ) -> None:
        """Record an append of this process."""
        with self._lock:
            slot.note_appended(session_id, before, after)

    def note_moved(self, slot: AgentSlot, old: str, new: str, revision: Revision | None) -> None:
        """Record that the conversation of an agent continues in the session `new`."""
        with self._lock:
            if slot.session_id == old:
                slot.set_known_revision(new, revision if slot.shape == "ours" else None)

    def set_known_count(
        self, key: str, slot: AgentSlot, version: int, session_id: str | None, count: int
    ) -> bool:
        """Store a message count.

        Return False if the slot changed since it was read.
        """
        with self._lock:
            is_same = self._slots.get(key) is slot and slot.version == version
            if is_same:
                slot.set_known_revision(session_id, count)
            return is_same

    def _store_slot(self, key: str, slot: AgentSlot) -> None:
        slot.used_at = self._clock()
        self._slots[key] = slot
        # A key that was there would keep its place, and the first of them is evicted next.
        self._slots.move_to_end(key)

    def _mark_used(self, key: str, slot: AgentSlot) -> None:
        slot.turns += 1
        self._store_slot(key, slot)


EMPTY_REVISION = Revision(0, 0, 0, 0, None)
"""The revision of a session without messages, with or without a row."""


class _PendingAgent:
    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _PendingAgent()
"""A placeholder for an agent that is being built."""

EntryShape = Literal["ours", "unguarded", "counted", "counted_of"]
_SHAPE_BY_LENGTH: dict[int, EntryShape] = {2: "unguarded", 3: "counted", 4: "counted_of"}


@dataclass(slots=True, eq=False)
class AgentSlot:
    """A cached agent or a pending build: its signature, its session and its known revision.

    `shape` is the form in which the entry was stored: `ours` holds a revision; the other forms are
    tuples of two to four elements that older code stores.
    """

    agent: Any
    signature: Any
    session_id: str | None = None
    baseline: Revision | int | None = None
    shape: EntryShape = "ours"
    used_at: float = 0.0
    turns: int = 0
    version: int = 0
    links: dict[Revision, Revision] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)

    @property
    def is_pending(self) -> bool:
        """True while the agent is being built."""
        return self.agent is PENDING

    def set_known_revision(self, session_id: str | None, baseline: Revision | int | None) -> None:
        """Set the session of the agent and the revision that the agent knows."""
        self.session_id, self.baseline = session_id, baseline
        self.links.clear()
        self.version += 1

    def note_appended(self, session_id: str, before: Revision, after: Revision) -> None:
        """Follow the chain of appends of this process, which may be recorded in any order.

        An append that does not continue the chain is kept as a loose link: another process wrote in
        between.
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
        # Links that end before the known revision can no longer be reached.
        self.links = {old: new for old, new in self.links.items() if new.last_id > seen}

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the entry as a tuple of the length that its shape has."""
        whole = (self.agent, self.signature, self.baseline, self.session_id)
        return whole[: {"unguarded": 2, "counted": 3}.get(self.shape, 4)]


def build_slot(value: tuple[Any, ...]) -> AgentSlot:
    """Build the slot of a tuple.

    Raises:
        InvalidInput: the value is not a tuple of an agent, a signature, and optionally a count or
            revision and a session.
    """
    if not isinstance(value, tuple) or len(value) not in _SHAPE_BY_LENGTH or value[0] is None:
        raise InvalidInput(
            "a cached agent is a tuple (agent, signature[, message count or revision[, session]])"
        )
    agent, signature, baseline, session_id = (*value, None, None)[:4]
    shape = "ours" if isinstance(baseline, Revision) else _SHAPE_BY_LENGTH[len(value)]
    if shape == "ours" and session_id is None:
        raise InvalidInput("a revision needs the id of its session")
    return AgentSlot(agent, signature, session_id, baseline, shape)


T = TypeVar("T")

ReuseReason = Literal["reused", "switched", "new", "signature", "foreign", "ended", "busy"]
"""Why an agent is reused (`reused`, `switched` to another session) or built: the key has none
(`new`), the signature differs, another process wrote to the session (`foreign`), the session has
ended, or the agent is in another turn (`busy`)."""


@dataclass(frozen=True, slots=True)
class ReuseDecision:
    """The decision about a cached agent, and the current revision of the requested session."""

    how: ReuseReason
    baseline: Revision | int | None = None

    @property
    def is_agent_kept(self) -> bool:
        """True if the agent is reused."""
        return self.how in {"reused", "switched"}


class SessionLookup:
    """Reads sessions for the cache.

    None means that the database gave no answer. A missing answer is never a reason to rebuild an
    agent. These methods are called outside the lock of the table.
    """

    def __init__(self, db: StateDatabase | None, report: Reporter) -> None:
        self._db = db
        self._report = report

    def get_revision(self, session_id: str | None) -> Revision | None:
        """Return the current revision of a session.

        A missing row counts as empty.
        """
        return self._query_db(
            lambda db, session_id: db.get_revision(session_id), session_id, missing=EMPTY_REVISION
        )

    def get_message_count(self, session_id: str | None) -> int | None:
        """Return the message counter of a session."""
        lookup = self._get_row(session_id)
        return None if lookup is None or lookup[0] is None else lookup[0].get("message_count")

    def has_ended(self, slot: AgentSlot) -> bool:
        """Return True if the session of a slot has ended, or was deleted after it had messages."""
        lookup = self._get_row(slot.session_id)
        if lookup is None:
            return False
        if lookup[0] is None:
            return isinstance(slot.baseline, Revision) and slot.baseline.last_id > 0
        return lookup[0].get("ended_at") is not None

    def _get_row(self, session_id: str | None) -> tuple[SessionRow | None] | None:
        return self._query_db(lambda db, session_id: (db.get_session(session_id),), session_id)

    def _query_db(
        self,
        query: Callable[[StateDatabase, str], T],
        session_id: str | None,
        *,
        missing: T | None = None,
    ) -> T | None:
        if self._db is None or session_id is None:
            return None
        try:
            return query(self._db, session_id)
        except NotFound:
            return missing
        except Exception as error:  # noqa: BLE001 -- the turn continues with the cached agent
            self._report(f"session {session_id} could not be looked up", error)
            return None


def decide_reuse(
    slot: AgentSlot, signature: Any, session_id: str | None, sessions: SessionLookup
) -> ReuseDecision:
    """Decide whether a cached agent can be reused for a session."""
    if slot.signature != signature:
        return ReuseDecision("signature")
    # Entries of older code have no count or revision to compare.
    if slot.shape == "unguarded":
        return ReuseDecision("reused")
    if None not in {slot.session_id, session_id} and slot.session_id != session_id:
        if sessions.has_ended(slot):
            return ReuseDecision("ended")
        return ReuseDecision("switched", sessions.get_revision(session_id))
    is_ours = slot.shape == "ours"
    current = (
        sessions.get_revision(session_id) if is_ours else sessions.get_message_count(session_id)
    )
    # A loose link means that another process wrote between two of our appends.
    if slot.links or (None not in {slot.baseline, current} and slot.baseline != current):
        return ReuseDecision("foreign")
    return ReuseDecision("reused", current)


A = TypeVar("A")


class CachedTurn(Generic[A]):
    """A turn with the agent of a session key, which is not evicted before the turn ends.

    If `agent` is None, build an agent and pass it to `keep_agent`. `how` is the reason for the
    build, or "switched" if the agent comes from another session.
    """

    def __init__(
        self,
        key: str,
        table: AgentTable,
        open_turn: Callable[[], tuple[AgentSlot | None, ReuseReason]],
        evict_excess: Callable[[str, AgentSlot | None], None],
        get_revision: Callable[[str], Revision | None],
    ) -> None:
        self.key = key
        self.how: ReuseReason = "new"
        self._table = table
        self._open_turn = open_turn
        self._evict_excess = evict_excess
        self._get_revision = get_revision
        self._lock = threading.Lock()
        self._slot: AgentSlot | None = None
        self._ended = False

    @property
    def agent(self) -> A | None:
        """The agent, or None if it is not built yet."""
        slot = self._slot
        return None if slot is None or slot.is_pending else cast("A", slot.agent)

    def keep_agent(self, agent: A) -> A:
        """Store and return the agent that the caller has built.

        Raises:
            InvalidInput: the agent is None, or this turn does not build an agent.
        """
        if agent is None:
            raise InvalidInput("agent must not be None; the factory must return an agent")
        if self._slot is None or not self._slot.is_pending:
            raise InvalidInput("this turn does not build an agent; begin it with claim()")
        displaced = self._table.finish_build(self.key, self._slot, agent)
        self._evict_excess(self.key, displaced)
        return agent

    def note_appended(
        self, session_id: str, result: AppendResult | AppendManyResult | CompressionResult
    ) -> None:
        """Record appends of this turn, in any order."""
        if self._slot is not None:
            self._table.note_appended(self._slot, session_id, result.before, result.after)

    def note_moved(self, old: str, new: str, revision: Revision | None = None) -> None:
        """Record that this turn's compression moved the conversation to the session `new`.

        Without `revision`, the current revision of `new` is used.
        """
        if self._slot is not None:
            self._table.note_moved(self._slot, old, new, revision or self._get_revision(new))

    def forget_agent(self) -> None:
        """Remove the agent from the cache, because its chat has continued without it."""
        slot = self._slot
        if slot is not None and self._table.drop_slot(self.key, slot):
            self._evict_excess(self.key, slot)

    def __enter__(self) -> Self:
        self._begin_turn()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_turn()

    async def __aenter__(self) -> Self:
        try:
            await get_worker_threads(self._table, "claims").run(self._begin_turn)
        except BaseException:
            self._end_turn()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_turn()

    def _begin_turn(self) -> None:
        slot, self.how = self._open_turn()
        with self._lock:
            self._slot = slot
            is_cancelled = self._ended
        if is_cancelled:  # the waiting coroutine was cancelled meanwhile
            self._end_turn()

    def _end_turn(self) -> None:
        """End the turn once, and evict idle agents above the limit."""
        with self._lock:
            self._ended = True
            # Taken once, also if a cancelled coroutine and its thread both end the turn.
            slot, self._slot = self._slot, None
        if slot is not None:
            self._table.end_turn(self.key, slot)
            self._evict_excess(self.key, None)
