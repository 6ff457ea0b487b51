"""The cache seen as the mapping of tuples that older code keeps its agents in.

What happens to agents that left the cache: they are cleaned up, but never while they run.

Agents that are kept between turns, one per session key, for as long as they are true.

A look-up compares what the session was when the agent was built with what it is now, follows the
chain of our own appends, and rebuilds where somebody else wrote. The database, factories, clean-up
and every other code that is not the table's own run outside its lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from session_core.errors import Busy
from session_core.hooks.calls import IsolatedCall, Reporter, log_fault
from session_core.lifecycle.cache_table import (
    PENDING,
    AgentSlot,
    AgentTable,
    CachedTurn,
    IdleAgent,
    ReuseDecision,
    ReuseReason,
    SessionLookup,
    build_slot,
    decide_reuse,
)
from session_core.state.protocol import StateDatabase
from session_core.state.validation import check_minimum
from session_core.types import Revision

_MISSING = object()


class TupleMapping:
    """Agents as tuples `(agent, signature[, message count[, session id]])`, by session key.

    The third place has a revision where the agent was built here. What is stored or taken out this
    way is not cleaned up. A build that is under way is seen by its key, and never counted.
    """

    def __init__(self, table: AgentTable, stored: Callable[[str], None]) -> None:
        self._table = table
        self._stored = stored

    def __getitem__(self, key: str) -> tuple[Any, ...]:
        slot, _ = self._table.get(key)
        if slot is None:
            raise KeyError(key)
        return slot.to_tuple()

    def __setitem__(self, key: str, value: tuple[Any, ...]) -> None:
        self._table.put(key, build_slot(value))
        self._stored(key)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._table.get(key)[0] is not None

    def __len__(self) -> int:
        return len(self._table.list_agents())

    def __iter__(self) -> Iterator[str]:
        return iter([key for key, _ in self._table.list_agents()])

    def get(self, key: str, default: Any = None) -> Any:
        """Return the tuple of a key."""
        slot, _ = self._table.get(key)
        return default if slot is None else slot.to_tuple()

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Take a tuple out, without cleaning up its agent."""
        slot = self._table.pop(key)
        if slot is not None:
            return slot.to_tuple()
        if default is _MISSING:
            raise KeyError(key)
        return default

    def items(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the keys and tuples of all agents, the one that was used longest ago first."""
        return [(key, slot.to_tuple()) for key, slot in self._table.list_agents()]


RunningAgents = Callable[[str], bool] | Container[str]
"""Which session keys have an agent at work: a question, or a set that somebody keeps."""

CleanUpFunction = Callable[[str, object], object]


def close_agent(_key: str, agent: object) -> object:
    """Clean up an agent by its `close`, where it has one."""
    close = getattr(agent, "close", None)
    return close() if callable(close) else None


class AgentCleaner:
    """Cleans up agents, each on a thread of its own, so that one that hangs holds up nothing."""

    def __init__(
        self, clean_up: CleanUpFunction, running: RunningAgents, bound_s: float, report: Reporter
    ) -> None:
        self._clean_up = clean_up
        self._running = running
        self._bound_s = bound_s
        self._report = report
        self._lock = threading.Lock()
        self._retired: list[tuple[str, AgentSlot]] = []

    def is_running(self, key: str) -> bool:
        """Whether somebody says that the agent of a key is at work; a question that fails does."""
        try:
            return bool(self._running(key)) if callable(self._running) else key in self._running
        except Exception as error:  # noqa: BLE001 -- better an agent too many than one cut off
            self._report(f"whether the agent of {key} runs could not be asked", error)
            return True

    def retire(self, slots: Iterable[tuple[str, AgentSlot]]) -> list[IsolatedCall]:
        """Clean up what left the cache, now or once it does not run any more; return the calls."""
        with self._lock:
            self._retired.extend(slots)
            idle = [gone for gone in self._retired if not gone[1].turns]
            self._retired = [gone for gone in self._retired if gone[1].turns]
        later = [gone for gone in idle if self.is_running(gone[0])]
        with self._lock:
            self._retired.extend(later)
        return [
            self._start_clean_up(key, slot.agent) for key, slot in idle if (key, slot) not in later
        ]

    def wait(self, calls: Iterable[IsolatedCall]) -> None:
        """Wait until they have ended, or their time is up."""
        for call in calls:
            if call.wait() == "timed_out":
                self._report("the clean-up of an agent hangs and was left behind", None)

    def _start_clean_up(self, key: str, agent: object) -> IsolatedCall:
        def tell(error: BaseException) -> None:
            self._report(f"the clean-up of the agent of {key} failed", error)

        return IsolatedCall(partial(self._clean_up, key, agent), self._bound_s, on_error=tell)


A = TypeVar("A")


class AgentCache(TupleMapping, Generic[A]):
    """A bounded cache of agents that notices what other processes write.

    It holds `max_entries` agents, each until it was idle for `idle_s`, and more only where so many
    are at work. Those are the ones in a turn and those that `running` says; they are never evicted.
    What leaves the cache is given to `clean_up(key, agent)`, which may be async and by default
    closes the agent.
    """

    def __init__(
        self,
        db: StateDatabase | None = None,
        *,
        max_entries: int = 128,
        idle_s: float = 3600.0,
        running: RunningAgents = (),
        clean_up: CleanUpFunction = close_agent,
        clean_up_s: float = 30.0,
        build_s: float = 300.0,
        report: Reporter = log_fault,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_minimum("max_entries", max_entries, 0)
        self.max_entries = max_entries
        self.idle_s = idle_s
        self._build_s = build_s
        self._clock = clock
        super().__init__(AgentTable(clock), self._evict_excess)
        self._sessions = SessionLookup(db, report)
        self._cleaner = AgentCleaner(clean_up, running, clean_up_s, report)

    # -- turns -------------------------------------------------------------------------------

    def get_or_build(
        self, key: str, signature: Any, session_id: str | None, factory: Callable[[], A]
    ) -> A:
        """Return the agent of a key, built where there is none that is true; one build at a time.

        Raises:
            Busy: another thread is building it and does not come to an end.
        """
        with self.claim(key, signature, session_id) as turn:
            return turn.keep_agent(factory()) if turn.agent is None else turn.agent

    def claim(
        self, key: str, signature: Any, session_id: str | None, *, alone: bool = False
    ) -> CachedTurn[A]:
        """Return a turn with the agent of a key; where it has none, `keep` the one you build.

        ```
        with cache.claim(key, signature, session_id) as turn:
            agent = turn.keep(build()) if turn.agent is None else turn.agent
            turn.appended(session_id, db.append_message(session_id, "user", text))
        ```
        Inside, the agent is not evicted. `async with` does the same without blocking the loop.
        One that is to be in one turn `alone` is not shared with a turn that is under way: that
        keeps the agent it has, and this one gets another, in its place.
        A build that is not kept has failed, and the next in line tries. `how` says whether the
        agent was switched to another session, whose history it then has to be given.
        """

        def enter() -> tuple[AgentSlot | None, ReuseReason]:
            return self._open_turn(key, signature, session_id, alone=alone)

        return CachedTurn(key, self._table, enter, self._evict_excess, self._sessions.get_revision)

    def begin_turn(self, key: str) -> CachedTurn[A]:
        """Return a turn with whatever agent is there; `agent` is None where there is none."""

        def enter() -> tuple[AgentSlot | None, ReuseReason]:
            return self._table.enter_turn(key), "reused"

        return CachedTurn(key, self._table, enter, self._evict_excess, self._sessions.get_revision)

    def note_appended(self, key: str, session_id: str, before: Revision, after: Revision) -> None:
        """Note an append of our own, which the agent knows already.

        Where `before` is not what the agent knows, somebody else wrote in between, and the next
        look-up rebuilds it.
        """
        slot, _ = self._table.get(key)
        if slot is not None:
            self._table.note_appended(slot, session_id, before, after)

    def note_moved(self, key: str, old: str, new: str, revision: Revision | None = None) -> None:
        """Note that our own compression made a conversation go on in another session.

        Without the revision that it had then, the one that it has now is taken.
        """
        slot, _ = self._table.get(key)
        if slot is not None:
            self._table.note_moved(slot, old, new, revision or self._sessions.get_revision(new))

    def refresh_message_count(self, key: str, session_id: str | None) -> bool:
        """Read the counter anew for an entry of the older shapes; return whether it was taken over.

        Only where the entry is of that session, or does not know of which it is.
        """
        slot, version = self._table.get(key)
        if slot is None or slot.is_pending or slot.shape not in {"counted", "counted_of"}:
            return False
        if session_id is None or slot.session_id not in {None, session_id}:
            return False
        count = self._sessions.get_message_count(session_id)
        known = session_id if slot.shape == "counted_of" else None
        return count is not None and self._table.rebase(key, slot, version, known, count)

    # -- limits ------------------------------------------------------------------------------

    def evict(self, key: str, *, unless: str | None = None) -> bool:
        """Forget the agent of a key and clean it up, if it runs once it has ended.

        One of the session `unless` stays, and a build that is under way. Return whether one left.
        """
        slot = self._table.drop(key, unless=unless)
        self._cleaner.wait(self._cleaner.retire([] if slot is None else [(key, slot)]))
        return slot is not None

    def sweep(self, keep: Callable[[str], bool] | None = None) -> list[str]:
        """Evict agents that were idle for too long; return their keys.

        None that runs, and none that `keep` wants to be kept for now.
        """
        oldest = self._clock() - self.idle_s
        idle = [entry for entry in self._table.list_idle() if entry.used_at < oldest]
        unwanted = [entry for entry in idle if keep is None or not keep(entry.key)]
        gone = [(entry.key, entry.slot) for entry in unwanted if self._drop_idle(entry)]
        self._cleaner.wait(self._cleaner.retire(gone))
        return [key for key, _ in gone]

    def clear(self) -> None:
        """Evict every agent and wait until they are cleaned up; builds are left alone."""
        gone = [
            (key, slot) for key, _ in self._table.list_agents() if (slot := self._table.drop(key))
        ]
        self._cleaner.wait(self._cleaner.retire(gone))

    def _drop_idle(self, idle: IdleAgent) -> bool:
        return not self._cleaner.is_running(idle.key) and self._table.drop_idle(idle)

    def _evict_excess(self, key: str, displaced: AgentSlot | None = None) -> None:
        """Evict what is too much, the one used longest ago first; never the agent of this key."""
        gone = [] if displaced is None else [(key, displaced)]
        idle = [entry for entry in self._table.list_idle() if entry.key != key]
        while idle and len(self) > self.max_entries:
            entry = idle.pop(0)
            if self._drop_idle(entry):
                gone.append((entry.key, entry.slot))
        self._cleaner.retire(gone)

    # -- look-up -----------------------------------------------------------------------------

    def _open_turn(
        self, key: str, signature: Any, session_id: str | None, *, alone: bool
    ) -> tuple[AgentSlot, ReuseReason]:
        """Begin a turn: with the agent that is there, or with a build."""
        patience_ends = time.monotonic() + self._build_s
        while True:
            slot, version = self._table.get(key)
            if slot is not None and slot.is_pending:
                if not slot.settled.wait(max(0.0, patience_ends - time.monotonic())):
                    raise Busy(f"the agent of {key} is still being built elsewhere; try again")
                continue
            verdict = ReuseDecision("new")
            if slot is not None and alone and slot.turns:
                verdict = ReuseDecision("busy")
            elif slot is not None:
                verdict = decide_reuse(slot, signature, session_id, self._sessions)
                if verdict.is_agent_kept:
                    if self._table.reuse_agent(
                        key, slot, version, session_id, verdict, alone=alone
                    ):
                        return slot, verdict.how
                    continue
            pending = AgentSlot(PENDING, signature, session_id)
            pending.baseline = self._sessions.get_revision(session_id)
            if self._table.begin_build(key, slot, version, pending):
                if slot is not None:
                    self._cleaner.retire([(key, slot)])
                return pending, verdict.how
