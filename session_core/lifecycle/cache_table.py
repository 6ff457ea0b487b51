"""The table of cached agents: every step is atomic, and nobody else's code runs under its lock.

One cached agent: under which signature it was built, for which session, and what that was then.

A slot also keeps the shape in which it was stored: a plain tuple of two to four elements, as older
code does it, or ours, whose third element is a revision.

Whether a cached agent still knows its session as it is, or somebody else wrote meanwhile.

Nothing here changes a slot, and nothing here is called under a lock: the database is asked. What it
cannot tell is unknown, and what is unknown is no reason to rebuild.

One turn of an agent: inside it the agent is not evicted, and what we append is noted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from session_core.aio import get_worker_threads
from session_core.errors import InvalidInput, NotFound
from session_core.hooks.calls import Reporter
from session_core.state.protocol import StateDatabase
from session_core.types import AppendManyResult, AppendResult, Revision, SessionRow

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.compression.types import CompressionResult


class IdleAgent(NamedTuple):
    """An agent that no turn of ours uses, as it was when it was looked at."""

    key: str
    slot: AgentSlot
    used_at: float


class AgentTable:
    """Slots by session key, the one that was used longest ago first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, AgentSlot] = OrderedDict()

    def get(self, key: str) -> tuple[AgentSlot | None, int]:
        """Return the slot of a key, and the version that it has now."""
        with self._lock:
            slot = self._slots.get(key)
            return slot, 0 if slot is None else slot.version

    def list_agents(self) -> list[tuple[str, AgentSlot]]:
        """Return the agents that are built."""
        with self._lock:
            return [(key, slot) for key, slot in self._slots.items() if not slot.is_pending]

    def list_idle(self) -> list[IdleAgent]:
        """Return the agents that no turn of ours uses, the one used longest ago first."""
        with self._lock:
            return [
                IdleAgent(key, slot, slot.used_at)
                for key, slot in self._slots.items()
                if not slot.is_pending and not slot.turns
            ]

    def put(self, key: str, slot: AgentSlot) -> None:
        """Store a slot in place of whatever is there."""
        with self._lock:
            before = self._slots.get(key)
            self._store(key, slot)
            if before is not None:
                before.settled.set()

    def pop(self, key: str) -> AgentSlot | None:
        """Take a slot out, pending or not."""
        with self._lock:
            slot = self._slots.pop(key, None)
            if slot is not None:
                slot.settled.set()
            return slot

    def drop(self, key: str, *, unless: str | None = None) -> AgentSlot | None:
        """Take an agent out; a pending build is left alone, and one of the session `unless`."""
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
        """Take this agent out, if it is still the one of its key."""
        with self._lock:
            if self._slots.get(key) is not slot or slot.is_pending:
                return False
            del self._slots[key]
            return True

    def drop_idle(self, idle: IdleAgent) -> bool:
        """Take an agent out unless it was used since."""
        with self._lock:
            slot = self._slots.get(idle.key)
            unused = slot is idle.slot and not slot.turns and slot.used_at == idle.used_at
            if unused:
                del self._slots[idle.key]
            return unused

    def enter_turn(self, key: str) -> AgentSlot | None:
        """Begin a turn with the agent that is there."""
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
        verdict: ReuseDecision,
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
            self._mark_used(key, slot)
            return True

    def begin_build(
        self, key: str, instead_of: AgentSlot | None, version: int, pending: AgentSlot
    ) -> bool:
        """Begin a build in place of a slot, unless it was changed since it was judged."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is not instead_of or (slot is not None and slot.version != version):
                return False
            self._store(key, pending)
            pending.turns += 1
            return True

    def finish_build(self, key: str, slot: AgentSlot, agent: Any) -> AgentSlot | None:
        """End a build with its agent; return the slot that somebody had put there meanwhile."""
        with self._lock:
            before = self._slots.get(key)
            slot.agent = agent
            slot.version += 1
            self._store(key, slot)
            slot.settled.set()
            return None if before is slot or before is None or before.is_pending else before

    def end_turn(self, key: str, slot: AgentSlot) -> None:
        """End a turn; a build that has no agent yet has failed."""
        with self._lock:
            slot.turns -= 1
            slot.used_at = self._clock()
            if slot.is_pending:
                if self._slots.get(key) is slot:
                    del self._slots[key]
                slot.settled.set()

    def note_appended(
        self, slot: AgentSlot, session_id: str, before: Revision, after: Revision
    ) -> None:
        """Note an append of our own."""
        with self._lock:
            slot.note_appended(session_id, before, after)

    def note_moved(self, slot: AgentSlot, old: str, new: str, revision: Revision | None) -> None:
        """Note that the conversation of an agent goes on in another session."""
        with self._lock:
            if slot.session_id == old:
                slot.rebase(new, revision if slot.shape == "ours" else None)

    def rebase(
        self, key: str, slot: AgentSlot, version: int, session_id: str | None, count: int
    ) -> bool:
        """Take over a count, unless the slot was changed since it was read."""
        with self._lock:
            same = self._slots.get(key) is slot and slot.version == version
            if same:
                slot.rebase(session_id, count)
            return same

    def _store(self, key: str, slot: AgentSlot) -> None:
        slot.used_at = self._clock()
        self._slots[key] = slot
        self._slots.move_to_end(key)

    def _mark_used(self, key: str, slot: AgentSlot) -> None:
        slot.turns += 1
        self._store(key, slot)


EMPTY_REVISION = Revision(0, 0, 0, 0, None)
"""What a session is that has no message yet, whether it has a row already or not."""


class _PendingAgent:
    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _PendingAgent()
"""Stands in the place of an agent that is being built."""

EntryShape = Literal["ours", "unguarded", "counted", "counted_of"]
_SHAPE_BY_LENGTH: dict[int, EntryShape] = {2: "unguarded", 3: "counted", 4: "counted_of"}


@dataclass(slots=True, eq=False)
class AgentSlot:
    """One cached agent, or one that is being built."""

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
        """Whether its agent is still being built."""
        return self.agent is PENDING

    def rebase(self, session_id: str | None, baseline: Revision | int | None) -> None:
        """Say that the agent knows this session as it is at this revision."""
        self.session_id, self.baseline = session_id, baseline
        self.links.clear()
        self.version += 1

    def note_appended(self, session_id: str, before: Revision, after: Revision) -> None:
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

    def to_tuple(self) -> tuple[Any, ...]:
        """Return it as it is seen from outside."""
        whole = (self.agent, self.signature, self.baseline, self.session_id)
        return whole[: {"unguarded": 2, "counted": 3}.get(self.shape, 4)]


def build_slot(value: tuple[Any, ...]) -> AgentSlot:
    """Return the slot that a tuple stands for.

    Raises:
        InvalidInput: it is no tuple of an agent, a signature, and perhaps a count and a session.
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
"""An agent is reused, also for another session; or it is built: there is none, it has another
signature, somebody else wrote to its session, that session has ended, or it is in another turn."""


@dataclass(frozen=True, slots=True)
class ReuseDecision:
    """What to do with a cached agent, and what the session that is asked for is now."""

    how: ReuseReason
    baseline: Revision | int | None = None

    @property
    def is_agent_kept(self) -> bool:
        """Whether the agent is kept."""
        return self.how in {"reused", "switched"}


class SessionLookup:
    """What the database says of sessions; None is that it does not say."""

    def __init__(self, db: StateDatabase | None, report: Reporter) -> None:
        self._db = db
        self._report = report

    def get_revision(self, session_id: str | None) -> Revision | None:
        """Return what a session is now; one without a row is one without messages."""

        def ask(db: StateDatabase, session_id: str) -> Revision:
            try:
                return db.get_revision(session_id)
            except NotFound:
                return EMPTY_REVISION

        return self._query_db(ask, session_id)

    def get_message_count(self, session_id: str | None) -> int | None:
        """Return the counter of a session."""
        found = self._get_row(session_id)
        return None if found is None or found[0] is None else found[0].get("message_count")

    def has_ended(self, slot: AgentSlot) -> bool:
        """Whether the session of a slot has ended; one that is gone has, if it was ever there."""
        found = self._get_row(slot.session_id)
        if found is None:
            return False
        if found[0] is None:
            return isinstance(slot.baseline, Revision) and slot.baseline.last_id > 0
        return found[0].get("ended_at") is not None

    def _get_row(self, session_id: str | None) -> tuple[SessionRow | None] | None:
        return self._query_db(lambda db, session_id: (db.get_session(session_id),), session_id)

    def _query_db(
        self, question: Callable[[StateDatabase, str], T], session_id: str | None
    ) -> T | None:
        if self._db is None or session_id is None:
            return None
        try:
            return question(self._db, session_id)
        except Exception as error:  # noqa: BLE001 -- a turn goes on with the agent that is there
            self._report(f"session {session_id} could not be looked up", error)
            return None


def decide_reuse(
    slot: AgentSlot, signature: Any, session_id: str | None, sessions: SessionLookup
) -> ReuseDecision:
    """Return what to do with an agent that is asked for; see the table in the tests."""
    if slot.signature != signature:
        return ReuseDecision("signature")
    if slot.shape == "unguarded":
        return ReuseDecision("reused")
    if None not in {slot.session_id, session_id} and slot.session_id != session_id:
        if sessions.has_ended(slot):
            return ReuseDecision("ended")
        return ReuseDecision("switched", sessions.get_revision(session_id))
    ours = slot.shape == "ours"
    now = sessions.get_revision(session_id) if ours else sessions.get_message_count(session_id)
    if slot.links or (None not in {slot.baseline, now} and slot.baseline != now):
        return ReuseDecision("foreign")
    return ReuseDecision("reused", now)


A = TypeVar("A")


class CachedTurn(Generic[A]):
    """A turn with the agent of a session key; where it has none yet, `keep` the one you build.

    `how` is why there is none, or whether it was switched to another session.
    """

    def __init__(
        self,
        key: str,
        table: AgentTable,
        enter: Callable[[], tuple[AgentSlot | None, ReuseReason]],
        tidy: Callable[[str, AgentSlot | None], None],
        revision: Callable[[str], Revision | None],
    ) -> None:
        self.key = key
        self.how: ReuseReason = "new"
        self._table = table
        self._enter = enter
        self._tidy = tidy
        self._revision = revision
        self._lock = threading.Lock()
        self._slot: AgentSlot | None = None
        self._ended = False

    @property
    def agent(self) -> A | None:
        """The agent, None where there is none yet."""
        slot = self._slot
        return None if slot is None or slot.is_pending else cast("A", slot.agent)

    def keep_agent(self, agent: A) -> A:
        """Store the agent that was built, and return it.

        Raises:
            InvalidInput: nothing is to be built in this turn, or nothing was.
        """
        if agent is None:
            raise InvalidInput("there is no agent to keep; does its factory return one?")
        if self._slot is None or not self._slot.is_pending:
            raise InvalidInput("this turn builds no agent; claim one")
        displaced = self._table.finish_build(self.key, self._slot, agent)
        self._tidy(self.key, displaced)
        return agent

    def note_appended(
        self, session_id: str, result: AppendResult | AppendManyResult | CompressionResult
    ) -> None:
        """Note what our own turn has appended, in whatever order."""
        if self._slot is not None:
            self._table.note_appended(self._slot, session_id, result.before, result.after)

    def note_moved(self, old: str, new: str, revision: Revision | None = None) -> None:
        """Note that our own compression made the conversation go on in another session.

        Without the revision that it had then, the one that it has now is taken.
        """
        if self._slot is not None:
            self._table.note_moved(self._slot, old, new, revision or self._revision(new))

    def forget_agent(self) -> None:
        """Keep the agent no longer than this turn, since its chat has gone on without it."""
        slot = self._slot
        if slot is not None and self._table.drop_slot(self.key, slot):
            self._tidy(self.key, slot)

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
        slot, self.how = self._enter()
        with self._lock:
            self._slot = slot
            given_up = self._ended
        if given_up:  # whoever waited for this thread was cancelled meanwhile
            self._end_turn()

    def _end_turn(self) -> None:
        with self._lock:
            self._ended = True
            slot, self._slot = self._slot, None
        if slot is not None:
            self._table.end_turn(self.key, slot)
            self._tidy(self.key, None)
