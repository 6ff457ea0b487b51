"""The older shapes of cache entries: how they are guarded and re-baselined."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import Busy, InvalidInput, Revision, SessionDB
from session_core.lifecycle.agent_cache import PENDING, AgentCache
from tests.lifecycle.agents import Agent, how

KEY = "k"
A = Agent()


# -- the mapping -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        (A, "sig"),
        (A, "sig", 3),
        (A, "sig", None),
        (A, "sig", 3, "s1"),
        (A, "sig", 3, None),
        (A, "sig", Revision(1, 1, 0, 0, None), "s1"),
    ],
)
def test_cache_tuple_is_read_back(cache: AgentCache[Agent], entry: tuple[Any, ...]) -> None:
    cache[KEY] = entry
    assert (cache[KEY], cache.get(KEY), cache.items()) == (entry, entry, [(KEY, entry)])
    assert (KEY in cache, len(cache), list(cache)) == (True, 1, [KEY])
    assert cache.pop(KEY) == entry
    assert (KEY in cache, len(cache), cache.get(KEY), cache.get(KEY, 1)) == (False, 0, None, 1)


def test_cache_tuple_missing_key_raises_key_error(cache: AgentCache[Agent]) -> None:
    with pytest.raises(KeyError):
        cache["nobody"]
    with pytest.raises(KeyError):
        del cache["nobody"]
    assert cache.pop("nobody", None) is None
    assert 3 not in cache


def test_cache_tuple_removal_skips_clean_up(
    cache: AgentCache[Agent],
) -> None:
    first, second = Agent(1), Agent(2)
    cache[KEY] = (first, "sig")
    cache[KEY] = (second, "sig")
    del cache[KEY]
    cache.clear()
    assert not first.closed.is_set()
    assert not second.closed.is_set()


@pytest.mark.requirement("cache:shapes")
@pytest.mark.parametrize(
    "entry",
    [
        [A, "sig", 0],
        (None, "sig"),
        (A,),
        (A, "sig", 0, "s1", 5),
        "text",
        (A, "sig", Revision(1, 1, 0, 0, None)),
    ],
)
def test_cache_tuple_of_unknown_shape_is_refused(cache: AgentCache[Agent], entry: Any) -> None:
    cache[KEY] = (A, "sig", 0)
    with pytest.raises(InvalidInput):
        cache[KEY] = entry
    assert cache[KEY] == (A, "sig", 0)


def test_cache_tuple_of_built_agent_has_revision(db: SessionDB, cache: AgentCache[Agent]) -> None:
    agent = cache.get_or_build(KEY, "sig", "s1", Agent)
    assert cache[KEY] == (agent, "sig", db.get_revision("s1"), "s1")


# -- the guard ---------------------------------------------------------------------------------


def test_cache_pair_is_unguarded(db: SessionDB, other: SessionDB, cache: AgentCache[Agent]) -> None:
    cache[KEY] = (A, "sig")
    other.append_message("s1", "user", "from outside")
    other.end_session("s1", "session_reset")
    assert how(cache, KEY, "sig", "s1") == "reused"
    assert how(cache, KEY, "sig", "s2") == "reused"
    assert cache[KEY] == (A, "sig")


def test_cache_pair_skips_database() -> None:
    reported: list[Any] = []
    no_database: Any = object()
    cache: AgentCache[Agent] = AgentCache(no_database, report=lambda *what: reported.append(what))
    cache[KEY] = (A, "sig")
    assert (how(cache, KEY, "sig", "s1"), reported) == ("reused", [])


def test_cache_pair_is_rebuilt_for_other_signature(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (Agent(), "sig")
    assert how(cache, KEY, "another", "s1") == "signature"


@pytest.mark.parametrize(
    "entry", [(A, "sig", 1), (A, "sig", 1, "s1"), (A, "sig", 1, None)], ids=len
)
def test_cache_tuple_with_equal_count_is_reused(
    cache: AgentCache[Agent], entry: tuple[Any, ...]
) -> None:
    cache[KEY] = entry
    assert how(cache, KEY, "sig", "s1") == "reused"
    assert cache[KEY] == entry


@pytest.mark.parametrize("rest", [(0,), (0, "s1"), (0, None)], ids=["3", "4", "4 without id"])
def test_cache_tuple_with_different_count_is_rebuilt(
    cache: AgentCache[Agent], rest: tuple[Any, ...]
) -> None:
    agent = Agent()
    cache[KEY] = (agent, "sig", *rest)
    assert how(cache, KEY, "sig", "s1") == "foreign"
    assert agent.closed.wait(5)


@pytest.mark.parametrize("rest", [(None,), (None, "s1")], ids=["3", "4"])
def test_cache_tuple_with_unknown_count_is_reused(
    cache: AgentCache[Agent], rest: tuple[Any, ...]
) -> None:
    cache[KEY] = (A, "sig", *rest)
    assert how(cache, KEY, "sig", "s1") == "reused"


def test_cache_tuple_with_unknown_live_count_reused(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (A, "sig", 5)
    assert how(cache, KEY, "sig", "nobody") == "reused"
    assert how(cache, KEY, "sig", None) == "reused"


def test_cache_tuple_switch_skips_count_comparison(db: SessionDB, cache: AgentCache[Agent]) -> None:
    cache[KEY] = (A, "sig", 0, "s2")
    db.create_session("s2", "telegram")
    assert how(cache, KEY, "sig", "s1") == "switched"
    assert cache[KEY] == (A, "sig", 0, "s2")


def test_cache_tuple_switch_from_ended_session_rebuilds(
    db: SessionDB, cache: AgentCache[Agent]
) -> None:
    cache[KEY] = (Agent(), "sig", 1, "s1")
    db.end_session("s1", "session_reset")
    assert how(cache, KEY, "sig", "s2") == "ended"


def test_cache_tuple_switch_from_rowless_session_reuses(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (A, "sig", 1, "nobody")
    assert how(cache, KEY, "sig", "s1") == "switched"


# -- the re-baseline table, with one live message in s1 -----------------------------------------


def refresh_entry(cache: AgentCache[Agent], entry: Any, session_id: str | None = "s1") -> Any:
    cache[KEY] = entry
    cache.refresh_message_count(KEY, session_id)
    return cache[KEY]


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_keeps_pair(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig")) == (A, "sig")


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_keeps_triple_shape(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", 0)) == (A, "sig", 1)


def test_refresh_count_never_sets_triple_session(db: SessionDB, cache: AgentCache[Agent]) -> None:
    db.create_session("s2", "telegram")
    assert refresh_entry(cache, (A, "sig", 5)) == (A, "sig", 1)
    assert cache.refresh_message_count(KEY, "s2")
    assert cache[KEY] == (A, "sig", 0)


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_of_same_session_takes_count(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", 0, "s1")) == (A, "sig", 1, "s1")


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_of_other_session_changes_nothing(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", 0, "sX")) == (A, "sig", 0, "sX")


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_sets_unknown_session(cache: AgentCache[Agent]) -> None:
    # Hermes drops the place of the id here. With the id, a later switch is detected.
    assert refresh_entry(cache, (A, "sig", 0, None)) == (A, "sig", 1, "s1")


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_sets_unknown_count(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", None, "s1")) == (A, "sig", 1, "s1")
    assert refresh_entry(cache, (A, "sig", None)) == (A, "sig", 1)


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_keeps_pending_build(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (PENDING, "sig", 0)) == (PENDING, "sig", 0)


@pytest.mark.requirement("cache:shapes")
def test_refresh_count_of_missing_row_changes_nothing(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", 0), "nobody") == (A, "sig", 0)


def test_refresh_count_without_session_changes_nothing(cache: AgentCache[Agent]) -> None:
    assert refresh_entry(cache, (A, "sig", 0), None) == (A, "sig", 0)


def test_refresh_count_without_database_changes_nothing() -> None:
    assert refresh_entry(AgentCache(), (A, "sig", 0)) == (A, "sig", 0)


def test_refresh_count_reports_database_failure() -> None:
    class Failing:
        def get_session(self, session_id: str) -> None:
            raise Busy(session_id)

    reported: list[Any] = []
    failing: Any = Failing()
    cache: AgentCache[Agent] = AgentCache(failing, report=lambda *what: reported.append(what))
    assert refresh_entry(cache, (A, "sig", 0)) == (A, "sig", 0)
    assert len(reported) == 1


def test_refresh_count_without_entry_does_nothing(cache: AgentCache[Agent]) -> None:
    assert not cache.refresh_message_count(KEY, "s1")
    assert KEY not in cache


def test_refresh_count_keeps_revision(db: SessionDB, cache: AgentCache[Agent]) -> None:
    how(cache, KEY, "sig", "s1")
    before = cache[KEY]
    db.append_message("s1", "user", "more")
    assert not cache.refresh_message_count(KEY, "s1")
    assert cache[KEY] == before


def test_refresh_count_reports_whether_count_changed(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (A, "sig", 0, "s1")
    assert cache.refresh_message_count(KEY, "s1")
    assert not cache.refresh_message_count(KEY, "s2")
    assert how(cache, KEY, "sig", "s1") == "reused"


# -- pending builds ----------------------------------------------------------------------------


def test_pending_build_is_visible_but_not_counted(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (PENDING, "sig")
    assert (KEY in cache, cache[KEY]) == (True, (PENDING, "sig"))
    assert (len(cache), list(cache), cache.items()) == (0, [], [])


def test_pending_build_survives_every_eviction(cache: AgentCache[Agent]) -> None:
    cache[KEY] = (PENDING, "sig")
    cache.max_entries, cache.idle_s = 0, -1.0
    cache["other"] = (A, "sig")
    assert (cache.sweep(), cache.evict(KEY)) == (["other"], False)
    cache.clear()
    assert cache[KEY] == (PENDING, "sig")
