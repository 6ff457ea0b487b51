"""The agent cache: each row of the table of reuse, rebuild and re-baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import Busy, NotFound, Revision, SessionDB
from session_core.lifecycle.agent_cache import AgentCache
from tests.lifecycle.agents import Agent, Factory, how

KEY = "agent:main:telegram:dm:42"


def get_agent(cache: AgentCache[Agent], factory: Factory, session_id: str = "s1") -> Agent:
    return cache.get_or_build(KEY, "sig", session_id, factory)


# -- reuse and rebuild -------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_agent_cache_reuses_unchanged_session(cache: AgentCache[Agent], factory: Factory) -> None:
    assert get_agent(cache, factory) is get_agent(cache, factory)
    assert len(factory.built) == 1


@pytest.mark.requirement("cache:table")
def test_agent_cache_rebuilds_for_changed_signature(
    cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get_agent(cache, factory)
    with cache.claim(KEY, "another model", "s1") as turn:
        assert (turn.agent, turn.how) == (None, "signature")
        new = turn.keep_agent(factory())
    assert cache.get_or_build(KEY, "another model", "s1", factory) is new
    assert old.closed.wait(5)
    assert not new.closed.is_set()


@pytest.mark.requirement("cache:table")
def test_agent_cache_reuses_agent_on_session_switch(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    db.append_message("s2", "user", "elsewhere", create={"source": "telegram"})
    agent = get_agent(cache, factory)
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (agent, "switched")


def test_agent_cache_rebuilds_after_switch_and_write(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    db.append_message("s2", "user", "elsewhere", create={"source": "telegram"})
    assert how(cache, KEY, "sig", "s1") == "new"
    assert how(cache, KEY, "sig", "s2") == "switched"
    assert how(cache, KEY, "sig", "s2") == "reused"
    other.append_message("s2", "user", "from outside")
    assert how(cache, KEY, "sig", "s2") == "foreign"


@pytest.mark.requirement("cache:table")
def test_agent_cache_rebuilds_on_switch_from_ended(
    other: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get_agent(cache, factory)
    other.end_session("s1", "session_reset")
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (None, "ended")
        turn.keep_agent(factory())
    assert old.closed.wait(5)


def test_agent_cache_reuses_on_switch_from_rowless(
    cache: AgentCache[Agent], factory: Factory
) -> None:
    agent = get_agent(cache, factory, "never stored")
    assert get_agent(cache, factory, "s1") is agent


def test_agent_cache_rebuilds_on_switch_from_deleted(
    other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    other.delete_session("s1")
    assert how(cache, KEY, "sig", "s2") == "ended"


def append(other: SessionDB, _: int) -> None:
    other.append_message("s1", "user", "from outside")


def rewind_session(other: SessionDB, first: int) -> None:
    other.rewind_to_message("s1", first)


def rewind_and_restore(other: SessionDB, first: int) -> None:
    other.rewind_to_message("s1", first)
    other.restore_rewound("s1", first)


def replace(other: SessionDB, _: int) -> None:
    other.replace_messages("s1", [{"role": "user", "content": "another"}])


def compact_session(other: SessionDB, _: int) -> None:
    other.archive_and_compact("s1", [{"role": "user", "content": "a summary"}])


def clear(other: SessionDB, _: int) -> None:
    other.clear_messages("s1")


def end(other: SessionDB, _: int) -> None:
    other.end_session("s1", "session_reset")


def delete(other: SessionDB, _: int) -> None:
    other.delete_session("s1")


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize(
    "change",
    [append, rewind_session, rewind_and_restore, replace, compact_session, clear, end, delete],
)
def test_agent_cache_rebuilds_after_foreign_change(
    db: SessionDB,
    other: SessionDB,
    cache: AgentCache[Agent],
    change: Callable[[SessionDB, int], None],
) -> None:
    first = db.get_messages("s1")[0]["id"]
    assert how(cache, KEY, "sig", "s1") == "new"
    change(other, first)
    assert how(cache, KEY, "sig", "s1") == "foreign"
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_ignores_write_to_other_session(
    other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    other.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    other.set_session_title("s1", "A title")
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_rebuilds_after_write_during_build(
    other: SessionDB, cache: AgentCache[Agent]
) -> None:
    def build() -> Agent:
        other.append_message("s1", "user", "from outside")
        return Agent()

    cache.get_or_build(KEY, "sig", "s1", build)
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_agent_cache_keys_are_independent(other: SessionDB, cache: AgentCache[Agent]) -> None:
    other.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    how(cache, "a", "sig", "s1")
    how(cache, "b", "sig", "s2")
    other.append_message("s1", "user", "from outside")
    assert how(cache, "b", "sig", "s2") == "reused"
    assert how(cache, "a", "sig", "s1") == "foreign"


# -- unknown values ----------------------------------------------------------------------------


def test_agent_cache_without_database_always_reuses() -> None:
    cache: AgentCache[Agent] = AgentCache()
    assert [how(cache, KEY, "sig", session) for session in ("s1", "s1", "s2", None)] == [
        "new",
        "reused",
        "switched",
        "reused",
    ]


class FailingDatabase:
    """A database that raises the configured error."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return getattr(self._db, name)


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize("error", [Busy("held by another process"), RuntimeError("broken")])
def test_agent_cache_reuses_and_reports_database_failure(
    db: SessionDB, other: SessionDB, error: Exception
) -> None:
    reported = []
    failing: Any = FailingDatabase(db)
    cache: AgentCache[Agent] = AgentCache(failing, report=lambda _, error: reported.append(error))
    how(cache, KEY, "sig", "s1")
    failing.error = error
    other.append_message("s1", "user", "from outside")
    assert how(cache, KEY, "sig", "s1") == "reused"
    assert how(cache, KEY, "sig", "s2") == "switched"
    assert set(reported) == {error}


@pytest.fixture
def unguarded_cache(db: SessionDB) -> AgentCache[Agent]:
    """A cache with an agent of `s1` that was built while the database failed."""
    failing: Any = FailingDatabase(db)
    failing.error = Busy("held by another process")
    cache: AgentCache[Agent] = AgentCache(failing, report=lambda *_: None)
    how(cache, KEY, "sig", "s1")
    failing.error = None
    return cache


def test_agent_cache_guards_agent_after_own_append(
    db: SessionDB, other: SessionDB, unguarded_cache: AgentCache[Agent]
) -> None:
    with unguarded_cache.begin_turn(KEY) as turn:
        turn.note_appended("s1", db.append_message("s1", "user", "ours"))
    assert how(unguarded_cache, KEY, "sig", "s1") == "reused"
    other.append_message("s1", "user", "from outside")
    assert how(unguarded_cache, KEY, "sig", "s1") == "foreign"


def test_agent_cache_guards_agent_after_next_use(
    other: SessionDB, unguarded_cache: AgentCache[Agent]
) -> None:
    assert how(unguarded_cache, KEY, "sig", "s1") == "reused"
    other.append_message("s1", "user", "from outside")
    assert how(unguarded_cache, KEY, "sig", "s1") == "foreign"


# -- alone -------------------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_agent_cache_gives_exclusive_turn_separate_agent(
    cache: AgentCache[Agent],
) -> None:
    with cache.claim(KEY, "sig", "s1", alone=True) as first:
        old = first.keep_agent(Agent(1))
        with cache.claim(KEY, "sig", "s1", alone=True) as second:
            assert (second.agent, second.how) == (None, "busy")
            new = second.keep_agent(Agent(2))
        assert first.agent is old
        assert not old.closed.is_set()
    assert old.closed.wait(5)
    with cache.claim(KEY, "sig", "s1", alone=True) as third:
        assert (third.agent, third.how) == (new, "reused")


def test_agent_cache_turns_share_agent_by_default(cache: AgentCache[Agent]) -> None:
    with cache.claim(KEY, "sig", "s1") as first:
        agent = first.keep_agent(Agent(1))
        with cache.claim(KEY, "sig", "s1") as second:
            assert second.agent is agent


# -- our own turns -----------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_agent_cache_rebaselines_after_own_turn(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    for number in range(3):
        with cache.claim(KEY, "sig", "s1") as turn:
            assert turn.how == ("reused" if number else "new")
            if turn.agent is None:
                turn.keep_agent(factory())
            turn.note_appended("s1", db.append_message("s1", "user", "a question"))
            rows = [{"role": "tool", "content": "1"}, {"role": "assistant", "content": "an answer"}]
            turn.note_appended("s1", db.append_messages("s1", rows))
    assert len(factory.built) == 1


def test_agent_cache_reuses_after_first_own_message(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    with cache.claim(KEY, "sig", "lazy") as turn:
        turn.keep_agent(Agent())
        created = db.append_message("lazy", "user", "hello", create={"source": "telegram"})
        turn.note_appended("lazy", created)
    assert how(cache, KEY, "sig", "lazy") == "reused"


def test_agent_cache_reuses_after_own_compaction(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        summary = [{"role": "user", "content": "a summary"}]
        turn.note_appended("s1", db.archive_and_compact("s1", summary))
        turn.note_appended("s1", db.append_message("s1", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_rebuilds_after_write_before_own(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        other.append_message("s1", "user", "from outside")
        turn.note_appended("s1", db.append_message("s1", "assistant", "ours"))
    assert how(cache, KEY, "sig", "s1") == "foreign"


@pytest.mark.requirement("cache:table")
def test_agent_cache_rebuilds_after_write_during_turn(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        turn.note_appended("s1", db.append_message("s1", "user", "ours"))
        other.append_message("s1", "user", "from outside")
        turn.note_appended("s1", db.append_message("s1", "assistant", "ours"))
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_agent_cache_rebuilds_after_reverted_foreign_write(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        foreign = other.append_message("s1", "user", "from outside")
        ours = db.append_message("s1", "assistant", "ours")
        turn.note_appended("s1", ours)
    other.rewind_to_message("s1", foreign)
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_agent_cache_notices_reverted_write_during_turn(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "lazy")
    with cache.begin_turn(KEY) as turn:
        other.append_message("lazy", "user", "from outside", create={"source": "cli"})
        turn.note_appended("lazy", db.append_message("lazy", "assistant", "ours"))
    other.clear_messages("lazy")
    assert how(cache, KEY, "sig", "lazy") == "foreign"


def test_agent_cache_accepts_own_appends_unordered(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        appended = [db.append_message("s1", "tool", str(number)) for number in range(4)]
        for index in (2, 0, 3, 1):
            turn.note_appended("s1", appended[index])
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_ignores_append_before_build(db: SessionDB, cache: AgentCache[Agent]) -> None:
    ours = db.append_message("s1", "user", "before the build")
    how(cache, KEY, "sig", "s1")
    cache.note_appended(KEY, "s1", ours.before, ours.after)
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_rebuilds_after_unnoted_own_append(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    db.append_message("s1", "user", "not noted")
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_agent_cache_append_elsewhere_keeps_baseline(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    before = cache[KEY]
    elsewhere = db.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    cache.note_appended(KEY, "s2", elsewhere.before, elsewhere.after)
    assert cache[KEY] == before
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_agent_cache_ignores_append_without_entry(db: SessionDB, cache: AgentCache[Agent]) -> None:
    ours = db.append_message("s1", "user", "ours")
    cache.note_appended(KEY, "s1", ours.before, ours.after)
    cache.note_moved(KEY, "s1", "s2")
    with cache.begin_turn(KEY) as turn:
        turn.note_appended("s1", ours)
        turn.note_moved("s1", "s2")
        assert turn.agent is None
    assert KEY not in cache


def test_agent_cache_ignores_append_of_replaced_turn(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get_agent(cache, factory)
    with cache.begin_turn(KEY) as turn:
        new = cache.get_or_build(KEY, "another model", "s1", factory)
        turn.note_appended("s1", db.append_message("s1", "user", "of the older turn"))
        assert not old.closed.is_set()
    assert old.closed.wait(5)
    assert not new.closed.is_set()
    assert how(cache, KEY, "another model", "s1") == "foreign"


# -- a rotated id ------------------------------------------------------------------------------


def rotate_session(db: SessionDB, old: str, new: str) -> Revision:
    db.end_session(old, "compression")
    created = {"source": "telegram", "parent_session_id": old}
    return db.append_message(new, "user", "a summary", create=created).after


def test_agent_cache_follows_own_rotation(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    agent = get_agent(cache, factory)
    with cache.begin_turn(KEY) as turn:
        turn.note_moved("s1", "s2", rotate_session(db, "s1", "s2"))
        turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (agent, "reused")


def test_agent_cache_rotation_defaults_to_current_revision(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        rotate_session(db, "s1", "s2")
        turn.note_moved("s1", "s2")
        turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s2") == "reused"


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize("then_ours", [False, True], ids=["no append follows", "ours follows"])
@pytest.mark.parametrize("by", ["turn", "cache"])
def test_agent_cache_rebuilds_after_write_following_rotation(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent], by: str, then_ours: bool
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        rotate_session(db, "s1", "s2")
        if by == "turn":
            turn.note_moved("s1", "s2")
        else:
            cache.note_moved(KEY, "s1", "s2")
        other.append_message("s2", "user", "from outside")
        if then_ours:
            turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s2") == "foreign"


def test_agent_cache_rebuilds_after_unfollowed_rotation(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    rotate_session(db, "s1", "s2")
    assert how(cache, KEY, "sig", "s2") == "ended"


def test_agent_cache_ignores_rotation_of_other_session(cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    before = cache[KEY]
    cache.note_moved(KEY, "sX", "s2")
    assert cache[KEY] == before


def test_agent_cache_treats_missing_session_as_empty(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    with pytest.raises(NotFound):
        db.get_revision("lazy")
    how(cache, KEY, "sig", "lazy")
    db.create_session("lazy", "telegram")
    assert how(cache, KEY, "sig", "lazy") == "reused"
