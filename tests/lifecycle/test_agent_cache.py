"""The agent cache: each row of the table of reuse, rebuild and re-baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import Busy, NotFound, Revision, SessionDB
from session_core.lifecycle.agent_cache import AgentCache
from tests.lifecycle.agents import Agent, Factory, how

KEY = "agent:main:telegram:dm:42"


def get(cache: AgentCache[Agent], factory: Factory, session_id: str = "s1") -> Agent:
    return cache.get_or_build(KEY, "sig", session_id, factory)


# -- reuse and rebuild -------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_an_unchanged_session_reuses_its_agent(cache: AgentCache[Agent], factory: Factory) -> None:
    assert get(cache, factory) is get(cache, factory)
    assert len(factory.built) == 1


@pytest.mark.requirement("cache:table")
def test_another_signature_rebuilds_and_replaces(
    cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get(cache, factory)
    with cache.claim(KEY, "another model", "s1") as turn:
        assert (turn.agent, turn.how) == (None, "signature")
        new = turn.keep_agent(factory())
    assert cache.get_or_build(KEY, "another model", "s1", factory) is new
    assert old.closed.wait(5)
    assert not new.closed.is_set()


@pytest.mark.requirement("cache:table")
def test_a_switch_of_the_session_under_one_key_reuses(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    db.append_message("s2", "user", "elsewhere", create={"source": "telegram"})
    agent = get(cache, factory)
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (agent, "switched")


def test_after_a_switch_a_foreign_write_to_the_new_session_rebuilds(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    db.append_message("s2", "user", "elsewhere", create={"source": "telegram"})
    assert how(cache, KEY, "sig", "s1") == "new"
    assert how(cache, KEY, "sig", "s2") == "switched"
    assert how(cache, KEY, "sig", "s2") == "reused"
    other.append_message("s2", "user", "from outside")
    assert how(cache, KEY, "sig", "s2") == "foreign"


@pytest.mark.requirement("cache:table")
def test_a_switch_from_a_session_that_has_ended_drops_and_rebuilds(
    other: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get(cache, factory)
    other.end_session("s1", "session_reset")
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (None, "ended")
        turn.keep_agent(factory())
    assert old.closed.wait(5)


def test_a_switch_from_a_session_that_never_got_a_row_reuses(
    cache: AgentCache[Agent], factory: Factory
) -> None:
    agent = get(cache, factory, "never stored")
    assert get(cache, factory, "s1") is agent


def test_a_switch_from_a_session_that_was_deleted_drops_and_rebuilds(
    other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    other.delete_session("s1")
    assert how(cache, KEY, "sig", "s2") == "ended"


def append(other: SessionDB, _: int) -> None:
    other.append_message("s1", "user", "from outside")


def rewind(other: SessionDB, first: int) -> None:
    other.rewind_to_message("s1", first)


def rewind_and_restore(other: SessionDB, first: int) -> None:
    other.rewind_to_message("s1", first)
    other.restore_rewound("s1", first)


def replace(other: SessionDB, _: int) -> None:
    other.replace_messages("s1", [{"role": "user", "content": "another"}])


def compact(other: SessionDB, _: int) -> None:
    other.archive_and_compact("s1", [{"role": "user", "content": "a summary"}])


def clear(other: SessionDB, _: int) -> None:
    other.clear_messages("s1")


def end(other: SessionDB, _: int) -> None:
    other.end_session("s1", "session_reset")


def delete(other: SessionDB, _: int) -> None:
    other.delete_session("s1")


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize(
    "change", [append, rewind, rewind_and_restore, replace, compact, clear, end, delete]
)
def test_a_foreign_change_of_the_same_session_rebuilds(
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


def test_a_write_to_another_session_reuses(other: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    other.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    other.set_session_title("s1", "A title")
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_what_was_written_while_the_agent_was_built_rebuilds(
    other: SessionDB, cache: AgentCache[Agent]
) -> None:
    def build() -> Agent:
        other.append_message("s1", "user", "from outside")
        return Agent()

    cache.get_or_build(KEY, "sig", "s1", build)
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_keys_do_not_touch_each_other(other: SessionDB, cache: AgentCache[Agent]) -> None:
    other.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    how(cache, "a", "sig", "s1")
    how(cache, "b", "sig", "s2")
    other.append_message("s1", "user", "from outside")
    assert how(cache, "b", "sig", "s2") == "reused"
    assert how(cache, "a", "sig", "s1") == "foreign"


# -- what is unknown ---------------------------------------------------------------------------


def test_without_a_database_an_agent_is_reused_for_any_session() -> None:
    cache: AgentCache[Agent] = AgentCache()
    assert [how(cache, KEY, "sig", session) for session in ("s1", "s1", "s2", None)] == [
        "new",
        "reused",
        "switched",
        "reused",
    ]


class Failing:
    """A database that cannot be asked, as long as it has an error to raise."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        return getattr(self._db, name)


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize("error", [Busy("held by another process"), RuntimeError("broken")])
def test_a_database_that_cannot_be_asked_reuses_and_is_reported(
    db: SessionDB, other: SessionDB, error: Exception
) -> None:
    told = []
    failing: Any = Failing(db)
    cache: AgentCache[Agent] = AgentCache(failing, report=lambda _, error: told.append(error))
    how(cache, KEY, "sig", "s1")
    failing.error = error
    other.append_message("s1", "user", "from outside")
    assert how(cache, KEY, "sig", "s1") == "reused"
    assert how(cache, KEY, "sig", "s2") == "switched"
    assert set(told) == {error}


@pytest.fixture
def unguarded(db: SessionDB) -> AgentCache[Agent]:
    """A cache with an agent of `s1` that was built while the database could not be asked."""
    failing: Any = Failing(db)
    failing.error = Busy("held by another process")
    cache: AgentCache[Agent] = AgentCache(failing, report=lambda *_: None)
    how(cache, KEY, "sig", "s1")
    failing.error = None
    return cache


def test_an_agent_that_was_built_without_a_revision_is_guarded_from_its_first_own_append(
    db: SessionDB, other: SessionDB, unguarded: AgentCache[Agent]
) -> None:
    with unguarded.begin_turn(KEY) as turn:
        turn.note_appended("s1", db.append_message("s1", "user", "ours"))
    assert how(unguarded, KEY, "sig", "s1") == "reused"
    other.append_message("s1", "user", "from outside")
    assert how(unguarded, KEY, "sig", "s1") == "foreign"


def test_an_agent_that_was_built_without_a_revision_is_guarded_from_its_next_use(
    other: SessionDB, unguarded: AgentCache[Agent]
) -> None:
    assert how(unguarded, KEY, "sig", "s1") == "reused"
    other.append_message("s1", "user", "from outside")
    assert how(unguarded, KEY, "sig", "s1") == "foreign"


# -- alone -------------------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_an_agent_that_is_to_be_alone_is_not_the_one_of_a_turn_under_way(
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


def test_turns_that_do_not_ask_to_be_alone_share_their_agent(cache: AgentCache[Agent]) -> None:
    with cache.claim(KEY, "sig", "s1") as first:
        agent = first.keep_agent(Agent(1))
        with cache.claim(KEY, "sig", "s1") as second:
            assert second.agent is agent


# -- our own turns -----------------------------------------------------------------------------


@pytest.mark.requirement("cache:table")
def test_our_own_turn_rebaselines_and_reuses(
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


def test_our_own_first_message_creates_the_session_and_reuses(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    with cache.claim(KEY, "sig", "lazy") as turn:
        turn.keep_agent(Agent())
        created = db.append_message("lazy", "user", "hello", create={"source": "telegram"})
        turn.note_appended("lazy", created)
    assert how(cache, KEY, "sig", "lazy") == "reused"


def test_our_own_compaction_in_place_reuses(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        summary = [{"role": "user", "content": "a summary"}]
        turn.note_appended("s1", db.archive_and_compact("s1", summary))
        turn.note_appended("s1", db.append_message("s1", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_a_foreign_write_before_our_own_rebuilds(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        other.append_message("s1", "user", "from outside")
        turn.note_appended("s1", db.append_message("s1", "assistant", "ours"))
    assert how(cache, KEY, "sig", "s1") == "foreign"


@pytest.mark.requirement("cache:table")
def test_a_foreign_write_in_the_middle_of_our_turn_rebuilds(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        turn.note_appended("s1", db.append_message("s1", "user", "ours"))
        other.append_message("s1", "user", "from outside")
        turn.note_appended("s1", db.append_message("s1", "assistant", "ours"))
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_a_foreign_write_that_was_taken_back_rebuilds_all_the_same(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        foreign = other.append_message("s1", "user", "from outside")
        ours = db.append_message("s1", "assistant", "ours")
        turn.note_appended("s1", ours)
    other.rewind_to_message("s1", foreign)
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_a_foreign_write_in_our_turn_rebuilds_even_where_all_is_as_it_was_before(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "lazy")
    with cache.begin_turn(KEY) as turn:
        other.append_message("lazy", "user", "from outside", create={"source": "cli"})
        turn.note_appended("lazy", db.append_message("lazy", "assistant", "ours"))
    other.clear_messages("lazy")
    assert how(cache, KEY, "sig", "lazy") == "foreign"


def test_own_appends_may_be_noted_in_any_order(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        appended = [db.append_message("s1", "tool", str(number)) for number in range(4)]
        for index in (2, 0, 3, 1):
            turn.note_appended("s1", appended[index])
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_an_append_that_the_agent_was_built_after_is_known_already(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    ours = db.append_message("s1", "user", "before the build")
    how(cache, KEY, "sig", "s1")
    cache.note_appended(KEY, "s1", ours.before, ours.after)
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_own_appends_that_nobody_notes_rebuild(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    db.append_message("s1", "user", "not noted")
    assert how(cache, KEY, "sig", "s1") == "foreign"


def test_an_append_to_another_session_does_not_rebaseline(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    before = cache[KEY]
    elsewhere = db.append_message("s2", "user", "elsewhere", create={"source": "cli"})
    cache.note_appended(KEY, "s2", elsewhere.before, elsewhere.after)
    assert cache[KEY] == before
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_an_append_without_an_entry_is_nothing(db: SessionDB, cache: AgentCache[Agent]) -> None:
    ours = db.append_message("s1", "user", "ours")
    cache.note_appended(KEY, "s1", ours.before, ours.after)
    cache.note_moved(KEY, "s1", "s2")
    with cache.begin_turn(KEY) as turn:
        turn.note_appended("s1", ours)
        turn.note_moved("s1", "s2")
        assert turn.agent is None
    assert KEY not in cache


def test_an_append_of_an_older_turn_does_not_touch_the_agent_that_replaced_its_own(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    old = get(cache, factory)
    with cache.begin_turn(KEY) as turn:
        new = cache.get_or_build(KEY, "another model", "s1", factory)
        turn.note_appended("s1", db.append_message("s1", "user", "of the older turn"))
        assert not old.closed.is_set()
    assert old.closed.wait(5)
    assert not new.closed.is_set()
    assert how(cache, KEY, "another model", "s1") == "foreign"


# -- a rotated id ------------------------------------------------------------------------------


def rotate(db: SessionDB, old: str, new: str) -> Revision:
    db.end_session(old, "compression")
    created = {"source": "telegram", "parent_session_id": old}
    return db.append_message(new, "user", "a summary", create=created).after


def test_our_own_rotation_is_followed_and_reuses(
    db: SessionDB, cache: AgentCache[Agent], factory: Factory
) -> None:
    agent = get(cache, factory)
    with cache.begin_turn(KEY) as turn:
        turn.note_moved("s1", "s2", rotate(db, "s1", "s2"))
        turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    with cache.claim(KEY, "sig", "s2") as turn:
        assert (turn.agent, turn.how) == (agent, "reused")


def test_our_own_rotation_without_a_revision_takes_the_one_of_that_moment(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        rotate(db, "s1", "s2")
        turn.note_moved("s1", "s2")
        turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s2") == "reused"


@pytest.mark.requirement("cache:table")
@pytest.mark.parametrize("then_ours", [False, True], ids=["no append follows", "ours follows"])
@pytest.mark.parametrize("by", ["turn", "cache"])
def test_a_foreign_write_after_our_own_rotation_rebuilds(
    db: SessionDB, other: SessionDB, cache: AgentCache[Agent], by: str, then_ours: bool
) -> None:
    how(cache, KEY, "sig", "s1")
    with cache.begin_turn(KEY) as turn:
        rotate(db, "s1", "s2")
        if by == "turn":
            turn.note_moved("s1", "s2")
        else:
            cache.note_moved(KEY, "s1", "s2")
        other.append_message("s2", "user", "from outside")
        if then_ours:
            turn.note_appended("s2", db.append_message("s2", "assistant", "an answer"))
    assert how(cache, KEY, "sig", "s2") == "foreign"


def test_a_rotation_that_nobody_followed_drops_and_rebuilds(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    how(cache, KEY, "sig", "s1")
    rotate(db, "s1", "s2")
    assert how(cache, KEY, "sig", "s2") == "ended"


def test_a_rotation_of_another_session_changes_nothing(cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    before = cache[KEY]
    cache.note_moved(KEY, "sX", "s2")
    assert cache[KEY] == before


def test_the_database_says_not_found_and_the_cache_takes_that_for_no_messages(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    with pytest.raises(NotFound):
        db.get_revision("lazy")
    how(cache, KEY, "sig", "lazy")
    db.create_session("lazy", "telegram")
    assert how(cache, KEY, "sig", "lazy") == "reused"
