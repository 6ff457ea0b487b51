"""Maintenance primitives select the same sessions as Hermes. A ghost with a child is skipped."""

from __future__ import annotations

import pytest

from tests.interop.hermes import Refused
from tests.interop.twins import Twins


@pytest.fixture
def twins(version, built, tmp_path):
    """Two equal homes with real clocks, which decide about ages."""
    pair = Twins(version, built(version), tmp_path)
    at = pair.theirs.sql("SELECT max(started_at) + 60 FROM sessions")[0][0]
    pair.theirs.job("clock", now=at)
    pair.ours._clock = lambda: at
    yield pair
    pair.close()


@pytest.mark.requirement("interop:upkeep")
def test_orphaned_continuations_finalize_as_in_hermes(twins):
    theirs = twins.theirs.call("finalize_orphaned_compression_sessions")
    assert twins.ours.finalize_orphaned_compression_sessions() == theirs
    twins.assert_equal()
    ended = [one for one in ("orphan", "orphan_titled", "orphan_called", "orphan_unknown",
                             "orphan_fresh", "orphan_empty", "orphan_of_live_parent")
             if twins.ours.get_session(one)["end_reason"] == "orphaned_compression"]  # fmt: skip
    assert ended == ["orphan", "orphan_titled"]
    assert twins.ours.finalize_orphaned_compression_sessions() == 0


def test_ghost_with_child_is_skipped(twins):
    """A correction: Hermes fails on the child and deletes nothing."""
    with pytest.raises(Refused, match="FOREIGN KEY"):
        twins.theirs.call("prune_empty_ghost_sessions")
    twins.theirs.sql("UPDATE sessions SET title = 'kept' WHERE id = 'ghost_parent'")
    theirs = twins.theirs.call("prune_empty_ghost_sessions")
    twins.theirs.sql("UPDATE sessions SET title = NULL WHERE id = 'ghost_parent'")

    assert twins.ours.prune_empty_ghost_sessions() == theirs == 1
    twins.assert_equal()
    assert twins.ours.get_session("ghost") is None


def test_drifted_counters_are_found_and_corrected(twins):
    assert "drifted" in twins.ours.admin.find_drifted_sessions()
    assert twins.ours.admin.recount_session("drifted")
    assert not twins.ours.admin.recount_session("drifted")
    assert twins.ours.get_session("drifted")["message_count"] == 2


def test_integrity_checks_accept_hermes_home(twins):
    before = twins.before
    assert [finding.code for finding in twins.ours.admin.check_integrity(deep=True)] == []
    twins.assert_equal()
    assert twins.before == before
