"""The agent table under many threads: one build at a time, and no agent closed in a turn."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from session_core import Busy, InvalidInput, Revision, SessionDB
from session_core.lifecycle.agent_cache import PENDING, AgentCache
from tests.lifecycle.agents import Agent, Factory, how

THREADS = 32


def run_concurrently(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run `work` in threads that start together, and raise the first error here."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 -- raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- builds ------------------------------------------------------------------------------------


@pytest.mark.requirement("cache:threads")
def test_concurrent_threads_build_single_agent(db: SessionDB) -> None:
    cache: AgentCache[Agent] = AgentCache(db)
    factory = Factory()
    agents: list[Agent] = []
    run_concurrently(lambda _: agents.append(cache.get_or_build("k", "sig", "s1", factory)))
    assert (len(factory.built), set(agents)) == (1, {factory.built[0]})


def test_failed_build_lets_other_threads_retry(
    db: SessionDB,
) -> None:
    cache: AgentCache[Agent] = AgentCache(db)
    tried: list[int] = []
    failed: list[int] = []

    def build(number: int) -> Agent:
        tried.append(number)
        if len(tried) < 5:
            raise ConnectionError
        return Agent()

    def turn(number: int) -> None:
        try:
            cache.get_or_build("k", "sig", "s1", lambda: build(number))
        except ConnectionError:
            failed.append(number)

    run_concurrently(turn)
    assert (len(tried), len(failed), len(cache)) == (5, 4, 1)
    cache.evict("k")
    with pytest.raises(ZeroDivisionError):
        cache.get_or_build("k", "sig", "s1", lambda: Agent(1 // 0))
    assert "k" not in cache


def test_hanging_build_is_busy_for_other_threads() -> None:
    cache: AgentCache[Agent] = AgentCache(build_s=0.05)
    with cache.claim("k", "sig", None) as turn:
        assert cache["k"] == (PENDING, "sig", None, None)
        with pytest.raises(Busy, match="still being built"):
            how(cache, "k", "sig", None)
        turn.keep_agent(Agent())
    assert how(cache, "k", "sig", None) == "reused"


def test_pending_tuple_build_is_awaited() -> None:
    cache: AgentCache[Agent] = AgentCache()
    agent = Agent()
    cache["k"] = (PENDING, "sig")
    agents: list[Agent] = []
    waiting = threading.Thread(
        target=lambda: agents.append(cache.get_or_build("k", "sig", None, Agent))
    )
    waiting.start()
    cache["k"] = (agent, "sig")
    waiting.join(5)
    assert agents == [agent]


def test_turn_without_build_caches_nothing() -> None:
    cache: AgentCache[Agent] = AgentCache()
    with cache.claim("k", "sig", None) as turn:
        turn.keep_agent(Agent())
        with pytest.raises(InvalidInput, match="does not build"):
            turn.keep_agent(Agent())
    with pytest.raises(InvalidInput, match="does not build"):
        turn.keep_agent(Agent())
    assert len(cache) == 1


def test_none_agent_is_not_cached() -> None:
    cache: AgentCache[None] = AgentCache()
    with pytest.raises(InvalidInput, match="must not be None"):
        cache.get_or_build("k", "sig", None, lambda: None)
    assert "k" not in cache


def test_tuple_stored_during_build_is_replaced() -> None:
    cache: AgentCache[Agent] = AgentCache()
    stored, built = Agent(1), Agent(2)
    with cache.claim("k", "sig", None) as turn:
        cache["k"] = (stored, "sig")
        turn.keep_agent(built)
    assert cache["k"][0] is built
    assert stored.closed.wait(5)


# -- a verdict is checked again ----------------------------------------------------------------


class InterruptingDatabase:
    """A database that runs a callback after a read and before it returns."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.get_session = db.get_session
        self.meanwhile: list[Callable[[], object]] = []

    def get_revision(self, session_id: str) -> Revision:
        """Read the revision, run the callback, then return the revision."""
        answer = self._db.get_revision(session_id)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return answer


def test_database_read_outside_lock_is_rechecked(db: SessionDB, other: SessionDB) -> None:
    interrupting: Any = InterruptingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(interrupting)
    how(cache, "k", "sig", "s1")
    other.append_message("s1", "user", "from outside")
    newer = Agent()
    interrupting.meanwhile = [lambda: cache.__setitem__("k", (newer, "sig"))]
    assert cache.get_or_build("k", "sig", "s1", Agent) is newer


def test_entry_evicted_during_check_is_rebuilt(db: SessionDB) -> None:
    interrupting: Any = InterruptingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(interrupting)
    factory = Factory()
    cache.get_or_build("k", "sig", "s1", factory)
    interrupting.meanwhile = [lambda: cache.evict("k")]
    assert cache.get_or_build("k", "sig", "s1", factory).number == 2


def test_append_noted_during_check_is_own(
    db: SessionDB,
) -> None:
    interrupting: Any = InterruptingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(interrupting)
    how(cache, "k", "sig", "s1")
    ours = db.append_message("s1", "user", "ours")
    late = partial(cache.note_appended, "k", "s1", ours.before, ours.after)
    interrupting.meanwhile = [lambda: None, late]
    assert how(cache, "k", "sig", "s1") == "reused"
    assert interrupting.meanwhile == []


def test_switch_during_check_happens_once(db: SessionDB) -> None:
    db.append_message("s2", "user", "elsewhere", create={"source": "telegram"})
    interrupting: Any = InterruptingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(interrupting)
    how(cache, "k", "sig", "s1")

    def another_turn() -> None:
        with cache.claim("k", "sig", "s2") as turn:
            assert turn.how == "switched"
            turn.note_appended("s2", db.append_message("s2", "user", "ours"))

    interrupting.meanwhile = [another_turn]
    assert how(cache, "k", "sig", "s2") == "reused"
    assert how(cache, "k", "sig", "s2") == "reused"


# -- everything at once ------------------------------------------------------------------------


class OwnedAgent(Agent):
    """An agent that knows its key and fails if it is closed during a turn."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.at_work = 0

    def close(self) -> None:
        """Close the agent, which must not be working."""
        assert self.at_work == 0
        super().close()


class ThreadStorm:
    """The operations of the threads and the invariants that each thread checks."""

    def __init__(self, db: SessionDB, other: SessionDB) -> None:
        self.db, self.other = db, other
        self.sessions = {f"key {number}": f"session {number}" for number in range(6)}
        for session_id in self.sessions.values():
            db.append_message(session_id, "user", "hello", create={"source": "cli"})
        self.told: list[Any] = []
        self.built: list[OwnedAgent] = []
        self.lock = threading.Lock()
        self.cache: AgentCache[OwnedAgent] = AgentCache(
            db, max_entries=4, idle_s=-1.0, report=lambda *what: self.told.append(what)
        )

    def work(self, number: int) -> None:
        """Run a random sequence of operations."""
        chance = random.Random(number)
        deeds = (self.turn, self.turn, self.turn, self.write, self.evict, self.sweep)
        for _ in range(25):
            key = chance.choice(list(self.sessions))
            chance.choice(deeds)(key)
            self.look(key)

    def turn(self, key: str) -> None:
        """Work with the right agent, which must not be closed meanwhile."""
        session_id = self.sessions[key]
        with self.cache.claim(key, "sig", session_id) as turn:
            agent = turn.keep_agent(self.build(key)) if turn.agent is None else turn.agent
            with self.lock:
                agent.at_work += 1
            assert agent.key == key
            assert not agent.closed.is_set()
            turn.note_appended(session_id, self.db.append_message(session_id, "user", "ours"))
            assert not agent.closed.is_set()
            with self.lock:
                agent.at_work -= 1

    def build(self, key: str) -> OwnedAgent:
        """Build the agent of a key."""
        self.built.append(OwnedAgent(key))
        return self.built[-1]

    def write(self, key: str) -> None:
        """Write as another process does."""
        self.other.append_message(self.sessions[key], "user", "from outside")

    def evict(self, key: str) -> None:
        """Evict an agent."""
        self.cache.evict(key)

    def sweep(self, _: str) -> None:
        """Evict all idle agents."""
        self.cache.sweep()

    def look(self, key: str) -> None:
        """Check that an entry is complete or missing."""
        agents = self.cache.get(key)
        if agents is not None:
            agent, signature, revision, session_id = agents
            assert (signature, session_id) == ("sig", self.sessions[key])
            assert agent is PENDING or agent.key == key
            assert isinstance(revision, Revision)


@pytest.mark.requirement("cache:threads")
def test_agent_cache_survives_32_threads(db: SessionDB, other: SessionDB) -> None:
    storm = ThreadStorm(db, other)
    run_concurrently(storm.work)
    assert len(storm.cache) <= 4
    assert not any(storm.cache.get(key, (None,))[0] is PENDING for key in storm.sessions)
    storm.cache.clear()
    assert all(agent.closed.wait(5) for agent in storm.built)
    assert storm.told == []


@pytest.mark.requirement("cache:threads")
def test_sequential_turns_notice_every_foreign_write(db: SessionDB, other: SessionDB) -> None:
    """A reused agent knows every stored row, in any interleaving."""
    cache: AgentCache[set[int]] = AgentCache(db, clean_up=lambda *_: None)
    one_turn = threading.Lock()

    def ids() -> set[int]:
        return {row["id"] for row in db.get_messages("s1")}

    def work(number: int) -> None:
        for _ in range(8):
            if number % 4 == 0:
                other.append_message("s1", "user", "from outside")
                continue
            with one_turn, cache.claim("k", "sig", "s1") as turn:
                agent = turn.keep_agent(ids()) if turn.agent is None else turn.agent
                assert turn.how != "reused" or max(agent) >= cache["k"][2].last_id
                ours = db.append_message("s1", "assistant", "ours")
                agent.add(int(ours))
                turn.note_appended("s1", ours)

    run_concurrently(work, 16)
    agent = cache.get_or_build("k", "sig", "s1", ids)
    assert agent == ids()


# -- while a loop goes on ----------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_claim_waits_without_blocking_loop(db: SessionDB) -> None:
    cache: AgentCache[Agent] = AgentCache(db)
    order: list[str] = []
    agents: list[Agent] = []

    async def turn(name: str) -> None:
        async with cache.claim("k", "sig", "s1") as turn:
            if turn.agent is None:
                order.append(f"{name} builds")
                await anyio.lowlevel.checkpoint()
                turn.keep_agent(Agent())
            assert turn.agent is not None
            agents.append(turn.agent)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for name in ("a", "b", "c"):
                group.start_soon(turn, name)
    assert len(order) == 1
    assert len(set(agents)) == 1


@pytest.mark.anyio
async def test_cancelled_claim_leaves_no_pending_build(db: SessionDB) -> None:
    cache: AgentCache[Agent] = AgentCache(db)
    held = anyio.Event()

    async def build_forever() -> None:
        async with cache.claim("k", "sig", "s1"):
            held.set()
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(build_forever)
            await held.wait()
            group.cancel_scope.cancel()
    assert "k" not in cache
    assert how(cache, "k", "sig", "s1") == "new"


@pytest.mark.anyio
async def test_claim_of_ended_task_is_released(db: SessionDB) -> None:
    asked, answer = threading.Event(), threading.Event()
    interrupting: Any = InterruptingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(interrupting, idle_s=-1.0)
    how(cache, "k", "sig", "s1")

    def hang() -> None:
        asked.set()
        answer.wait()

    async def turn() -> None:
        async with cache.claim("k", "sig", "s1"):
            raise AssertionError

    interrupting.meanwhile = [hang]
    task = asyncio.create_task(turn())
    with anyio.fail_after(10):
        await anyio.to_thread.run_sync(asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slot, _ = cache._table.get("k")
        assert slot is not None
        used_at = slot.used_at
        answer.set()
        while slot.used_at == used_at or cache.sweep() != ["k"]:
            await anyio.lowlevel.checkpoint()
