"""`AgentCache`: a bounded cache of agents, with a mapping interface and agent clean-up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from session_core.errors import Busy
from session_core.hooks.foreign_calls import IsolatedCall, Reporter, log_fault
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
    """Cached agents as tuples `(agent, signature[, message count[, session id]])`, by session key.

    The third element is a revision if `AgentCache` built the agent. Storing or popping a tuple
    cleans up no agent. An agent that is being built is found by its key, but is not counted.
    """

    def __init__(self, table: AgentTable, on_stored: Callable[[str], None]) -> None:
        self._table = table
        self._on_stored = on_stored

    def __getitem__(self, key: str) -> tuple[Any, ...]:
        slot, _ = self._table.get(key)
        if slot is None:
            raise KeyError(key)
        return slot.to_tuple()

    def __setitem__(self, key: str, value: tuple[Any, ...]) -> None:
        self._table.put(key, build_slot(value))
        self._on_stored(key)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._table.get(key)[0] is not None

    def __len__(self) -> int:
        return len(self._table.list_agents())

    def __iter__(self) -> Iterator[str]:
        return iter([key for key, _ in self._table.list_agents()])

    def get(self, key: str, default: Any = None) -> Any:
        """Return the tuple of a key, or the default."""
        slot, _ = self._table.get(key)
        return default if slot is None else slot.to_tuple()

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Remove and return a tuple without cleaning up its agent."""
        slot = self._table.pop(key)
        if slot is not None:
            return slot.to_tuple()
        if default is _MISSING:
            raise KeyError(key)
        return default

    def items(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the keys and tuples of all agents, least recently used first."""
        return [(key, slot.to_tuple()) for key, slot in self._table.list_agents()]


RunningAgents = Callable[[str], bool] | Container[str]
"""A function or container that reports whether the agent of a session key is running."""

CleanUpFunction = Callable[[str, object], object]


def close_agent(_key: str, agent: object) -> object:
    """Call the `close` method of an agent, if it has one."""
    close = getattr(agent, "close", None)
    return close() if callable(close) else None


class AgentCleaner:
    """Cleans up agents, each on its own thread, so that a hanging clean-up blocks nothing."""

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
        """Return True if the agent of a key is running, or if the check fails."""
        try:
            return bool(self._running(key)) if callable(self._running) else key in self._running
        except Exception as error:  # noqa: BLE001 -- keep an idle agent rather than stop a running one
            self._report(f"checking whether the agent of {key} is running failed", error)
            return True

    def clean_up_slots(self, slots: Iterable[tuple[str, AgentSlot]]) -> list[IsolatedCall]:
        """Clean up removed agents that are not running, and keep the others for a later call.

        Return the clean-up calls that were started.
        """
        with self._lock:
            self._retired.extend(slots)
            idle = [slot_entry for slot_entry in self._retired if not slot_entry[1].turns]
            self._retired = [slot_entry for slot_entry in self._retired if slot_entry[1].turns]
        # `running` is code of the application, so it is not called under the lock.
        later = [slot_entry for slot_entry in idle if self.is_running(slot_entry[0])]
        with self._lock:
            self._retired.extend(later)
        return [
            self._start_clean_up(key, slot.agent) for key, slot in idle if (key, slot) not in later
        ]

    def wait_for_calls(self, calls: Iterable[IsolatedCall]) -> None:
        """Wait until the calls have ended, and report calls that exceed their time limit."""
        for call in calls:
            if call.wait() == "timed_out":
                self._report("the clean-up of an agent did not end in time", None)

    def _start_clean_up(self, key: str, agent: object) -> IsolatedCall:
        def report_failure(error: BaseException) -> None:
            self._report(f"the clean-up of the agent of {key} failed", error)

        return IsolatedCall(
            partial(self._clean_up, key, agent), self._bound_s, on_error=report_failure
        )


A = TypeVar("A")


class AgentCache(TupleMapping, Generic[A]):
    """A bounded cache of agents that detects writes of other processes.

    A look-up compares the revision of the session at build time with the current revision, follows
    the chain of our own appends, and rebuilds the agent if another process wrote. The database,
    factories and clean-up functions are called outside the lock of the table.

    Args:
        db: the database of the sessions. Without it, revisions are not compared.
        max_entries: the largest number of agents.
        idle_s: the number of seconds after which an idle agent is evicted.
        running: a function or a container that reports the keys of running agents. They are never
            evicted, and neither are agents in a turn, even above the limit.
        clean_up: a function that receives the key and the evicted agent. It may be async. By
            default it closes the agent.
        clean_up_s: the number of seconds that a clean-up may take.
        build_s: the number of seconds that a thread waits for an agent that another thread builds.
        report: a function that receives a message and an error.
        clock: a function that returns a time in seconds that never goes back.

    Example:
        >>> from session_core import AgentCache, SessionDB
        >>> with SessionDB(":memory:") as db:
        ...     cache = AgentCache(db, max_entries=64)
        ...     _ = db.append_message("s1", "user", "hello", create={"source": "cli"})
        ...     agent = cache.get_or_build("chat", "model", "s1", object)
        ...     agent is cache.get_or_build("chat", "model", "s1", object)
        True
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
        """Return the agent of a key.

        Build it with `factory` if it is missing or outdated. Only one thread builds the agent of a
        key at a time.

        Args:
            key: the session key of the chat.
            signature: a value, for example the model. If it differs from the value at build time,
                the agent is built again.
            session_id: the session of the agent, or None before the first message.
            factory: a function that builds the agent.

        Raises:
            Busy: another thread is still building the agent.
        """
        with self.claim(key, signature, session_id) as turn:
            return turn.keep_agent(factory()) if turn.agent is None else turn.agent

    def claim(
        self, key: str, signature: Any, session_id: str | None, *, alone: bool = False
    ) -> CachedTurn[A]:
        """Return a turn with the agent of a key.

        Pass a new agent to its `keep_agent`.

        ```
        with cache.claim(key, signature, session_id) as turn:
            agent = turn.keep_agent(build()) if turn.agent is None else turn.agent
            turn.note_appended(session_id, db.append_message(session_id, "user", text))
        ```

        Inside the block the agent is not evicted. `async with` does not block the event loop. With
        `alone`, an agent that is in another turn is not shared: the other turn keeps it, and this
        turn builds a new agent, which replaces it in the cache.

        A turn that ends without `keep_agent` counts as a failed build, and the next waiting thread
        builds. If `how` is "switched", the agent must load the history of its new session.
        """
        open_turn = partial(self._open_turn, key, signature, session_id, alone=alone)
        return CachedTurn(
            key, self._table, open_turn, self._evict_excess, self._sessions.get_revision
        )

    def begin_turn(self, key: str) -> CachedTurn[A]:
        """Return a turn with the cached agent, without comparing revisions.

        `agent` is None if no agent is cached.
        """

        def open_turn() -> tuple[AgentSlot | None, ReuseReason]:
            return self._table.enter_turn(key), "reused"

        return CachedTurn(
            key, self._table, open_turn, self._evict_excess, self._sessions.get_revision
        )

    def note_appended(self, key: str, session_id: str, before: Revision, after: Revision) -> None:
        """Record an append of this process, which the agent already knows.

        If `before` is not the revision that the agent knows, another process wrote in between, and
        the next look-up rebuilds the agent.
        """
        slot, _ = self._table.get(key)
        if slot is not None:
            self._table.note_appended(slot, session_id, before, after)

    def note_moved(self, key: str, old: str, new: str, revision: Revision | None = None) -> None:
        """Record that a compression by this process moved a conversation to the session `new`.

        Without `revision`, the current revision of `new` is used.
        """
        slot, _ = self._table.get(key)
        if slot is not None:
            self._table.note_moved(slot, old, new, revision or self._sessions.get_revision(new))

    def refresh_message_count(self, key: str, session_id: str | None) -> bool:
        """Reload the message count of a tuple that older code stored.

        Return True if the count was stored. The tuple must belong to that session or name no
        session.
        """
        slot, version = self._table.get(key)
        if slot is None or slot.is_pending or slot.shape not in {"counted", "counted_of"}:
            return False
        if session_id is None or slot.session_id not in {None, session_id}:
            return False
        count = self._sessions.get_message_count(session_id)
        entry_session_id = session_id if slot.shape == "counted_of" else None
        return count is not None and self._table.set_known_count(
            key, slot, version, entry_session_id, count
        )

    # -- limits ------------------------------------------------------------------------------

    def evict(self, key: str, *, unless: str | None = None) -> bool:
        """Remove the agent of a key and clean it up.

        Return True if an agent was removed. An agent in a turn is cleaned up after the turn. An
        agent of the session `unless` and an agent that is being built stay.
        """
        slot = self._table.drop(key, unless=unless)
        self._cleaner.wait_for_calls(
            self._cleaner.clean_up_slots([] if slot is None else [(key, slot)])
        )
        return slot is not None

    def sweep(self, keep: Callable[[str], bool] | None = None) -> list[str]:
        """Evict idle agents and return their keys.

        Running agents and agents for which `keep` returns True stay.
        """
        oldest = self._clock() - self.idle_s
        idle = [entry for entry in self._table.list_idle() if entry.used_at < oldest]
        expired = [entry for entry in idle if keep is None or not keep(entry.key)]
        removed = [(entry.key, entry.slot) for entry in expired if self._drop_idle(entry)]
        self._cleaner.wait_for_calls(self._cleaner.clean_up_slots(removed))
        return [key for key, _ in removed]

    def clear(self) -> None:
        """Evict all agents and wait for their clean-up. Agents that are being built stay."""
        removed = [
            (key, slot) for key, _ in self._table.list_agents() if (slot := self._table.drop(key))
        ]
        self._cleaner.wait_for_calls(self._cleaner.clean_up_slots(removed))

    def _drop_idle(self, idle: IdleAgent) -> bool:
        return not self._cleaner.is_running(idle.key) and self._table.drop_idle(idle)

    def _evict_excess(self, key: str, displaced: AgentSlot | None = None) -> None:
        """Evict idle agents above the limit, least recently used first, but not the agent of `key`.

        `displaced` is an agent that was replaced in the cache and is cleaned up too.
        """
        removed = [] if displaced is None else [(key, displaced)]
        idle = [entry for entry in self._table.list_idle() if entry.key != key]
        while idle and len(self) > self.max_entries:
            entry = idle.pop(0)
            if self._drop_idle(entry):
                removed.append((entry.key, entry.slot))
        # Not waited for: the clean-up of another agent must not delay this turn.
        self._cleaner.clean_up_slots(removed)

    # -- look-up -----------------------------------------------------------------------------

    def _open_turn(
        self, key: str, signature: Any, session_id: str | None, *, alone: bool
    ) -> tuple[AgentSlot, ReuseReason]:
        """Begin a turn with the cached agent, or with a pending build."""
        deadline = time.monotonic() + self._build_s
        while True:
            slot, version = self._table.get(key)
            if slot is not None and slot.is_pending:
                if not slot.settled.wait(max(0.0, deadline - time.monotonic())):
                    raise Busy(f"the agent of {key} is still being built elsewhere; try again")
                continue
            decision = ReuseDecision("new")
            if slot is not None and alone and slot.turns:
                decision = ReuseDecision("busy")
            elif slot is not None:
                decision = decide_reuse(slot, signature, session_id, self._sessions)
                if decision.is_agent_kept:
                    if self._table.reuse_agent(
                        key, slot, version, session_id, decision, alone=alone
                    ):
                        return slot, decision.how
                    continue
            # The baseline is read before the build: a write during the build is then noticed.
            pending = AgentSlot(PENDING, signature, session_id)
            pending.baseline = self._sessions.get_revision(session_id)
            if self._table.begin_build(key, slot, version, pending):
                if slot is not None:
                    self._cleaner.clean_up_slots([(key, slot)])
                return pending, decision.how
