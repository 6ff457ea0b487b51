"""Upkeep: what is finalised, pruned, deleted and recounted, and what is left alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from session_core import NotFound, SessionFilter, StateDatabase

OLD = time.time() - 30 * 86_400

Strange = Callable[..., int]


def compressed(db: StateDatabase, session_id: str = "parent") -> str:
    db.create_session(session_id, "cli", started_at=OLD)
    db.append_message(session_id, "user", "before")
    db.end_session(session_id, "compression")
    return session_id


def orphan(db: StateDatabase, session_id: str = "orphan", **fields: Any) -> str:
    fields = {"started_at": OLD, "parent_session_id": "parent", **fields}
    db.create_session(session_id, "cli", **fields)
    db.append_message(session_id, "user", "carried")
    return session_id


def ghost(db: StateDatabase, session_id: str = "ghost", **fields: Any) -> str:
    db.create_session(session_id, "tui", **{"started_at": OLD, **fields})
    db.end_session(session_id, "tui_close")
    return session_id


def delegate(db: StateDatabase, session_id: str, parent: str) -> str:
    config = json.dumps({"_delegate_from": parent})
    db.create_session(session_id, "cli", parent_session_id=parent, model_config=config)
    db.append_message(session_id, "user", "do it")
    return session_id


def ids(db: StateDatabase) -> set[str]:
    return set(db.find_sessions(SessionFilter(status="all")))


def column(db: StateDatabase, session_id: str, name: str) -> Any:
    found = db.get_session(session_id)
    assert found is not None
    return dict(found)[name]


@pytest.mark.requirement("upkeep:orphans")
def test_an_orphaned_continuation_is_ended_once(db: StateDatabase) -> None:
    compressed(db)
    orphan(db)
    before = time.time()
    assert db.finalize_orphaned_compression_sessions() == 1
    assert column(db, "orphan", "end_reason") == "orphaned_compression"
    assert before <= column(db, "orphan", "ended_at") <= time.time()
    assert db.finalize_orphaned_compression_sessions() == 0


def test_an_orphan_may_be_a_branch_archived_titled_or_just_written_to(
    db: StateDatabase, strange: Strange
) -> None:
    compressed(db)
    orphan(db, "branch", model_config=json.dumps({"_branched_from": "parent"}))
    orphan(db, "archived")
    orphan(db, "titled")
    orphan(db, "rewound")
    db.set_session_title("titled", "a title")
    strange("UPDATE sessions SET archived = 1 WHERE id = 'archived'")
    strange("UPDATE messages SET active = 0 WHERE session_id = 'rewound'")
    assert db.finalize_orphaned_compression_sessions() == 4


@pytest.mark.requirement("upkeep:orphans")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET api_call_count = 1 WHERE id = 'orphan'",
        "UPDATE sessions SET api_call_count = NULL WHERE id = 'orphan'",
        "UPDATE sessions SET end_reason = 'x' WHERE id = 'orphan'",
        "UPDATE sessions SET ended_at = 5 WHERE id = 'orphan'",
        "UPDATE sessions SET started_at = strftime('%s') - 6 * 86400 WHERE id = 'orphan'",
        "UPDATE sessions SET parent_session_id = NULL WHERE id = 'orphan'",
        "UPDATE sessions SET parent_session_id = 'nobody' WHERE id = 'orphan'",
        "UPDATE sessions SET ended_at = NULL WHERE id = 'parent'",
        "UPDATE sessions SET end_reason = 'cli_close' WHERE id = 'parent'",
        "DELETE FROM messages WHERE session_id = 'orphan'",
    ],
)
def test_what_is_no_orphan_is_left_open(db: StateDatabase, strange: Strange, damage: str) -> None:
    compressed(db)
    orphan(db)
    assert strange(damage) == 1
    assert db.finalize_orphaned_compression_sessions() == 0
    assert column(db, "orphan", "end_reason") != "orphaned_compression"


def test_an_empty_ghost_is_deleted(db: StateDatabase) -> None:
    ghost(db)
    ghost(db, "another")
    assert db.prune_empty_ghost_sessions() == 2
    assert ids(db) == set()
    assert db.prune_empty_ghost_sessions() == 0


@pytest.mark.requirement("upkeep:ghosts")
def test_a_ghost_with_a_child_is_left_out_and_blocks_no_other(db: StateDatabase) -> None:
    ghost(db, "with child")
    db.create_session("child", "cli", parent_session_id="with child")
    ghost(db)
    assert db.prune_empty_ghost_sessions() == 1
    assert ids(db) == {"with child", "child"}


@pytest.mark.requirement("upkeep:ghosts")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET source = 'cli'",
        "UPDATE sessions SET title = 'kept'",
        "UPDATE sessions SET ended_at = NULL",
        "UPDATE sessions SET started_at = strftime('%s') - 86400 / 2",
        (
            "INSERT INTO messages (session_id, role, content, timestamp, active)"
            " VALUES ('ghost', 'user', 'taken back', 5, 0)"
        ),
    ],
)
def test_what_is_no_ghost_is_kept(db: StateDatabase, strange: Strange, damage: str) -> None:
    ghost(db)
    assert strange(damage) == 1
    assert db.prune_empty_ghost_sessions() == 0
    assert ids(db) == {"ghost"}


def test_a_ghost_that_is_its_own_parent_is_kept(db: StateDatabase, strange: Strange) -> None:
    ghost(db, "loop")
    ghost(db)
    strange("UPDATE sessions SET parent_session_id = 'loop' WHERE id = 'loop'")
    assert db.prune_empty_ghost_sessions() == 1
    assert ids(db) == {"loop"}


def test_hundreds_of_ghosts_go_in_one_call(db: StateDatabase) -> None:
    with db.transaction():
        for number in range(450):
            ghost(db, f"g{number}")
    assert db.prune_empty_ghost_sessions() == 450
    assert ids(db) == set()


@pytest.mark.requirement("upkeep:delete")
def test_a_deleted_session_is_gone_with_its_messages(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"word{n}"} for n in range(5)])
    db.create_session("kept", "cli")
    db.append_message("kept", "user", "word1 too")
    assert db.delete_session("s") is True
    assert ids(db) == {"kept"}
    assert db.message_count() == 1
    assert [hit.session_id for hit in db.search("word1").hits] == ["kept"]
    assert db.search("word3").hits == []


def test_deleting_what_is_not_there_changes_nothing(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.delete_session("nobody") is False
    assert db.delete_sessions([]) == 0
    assert ids(db) == {"s"}


@pytest.mark.requirement("upkeep:delete")
def test_delegates_go_with_their_session_and_so_do_theirs(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    delegate(db, "d", "s")
    delegate(db, "dd", "d")
    assert db.delete_session("s")
    assert ids(db) == set()
    assert db.message_count() == 0


@pytest.mark.requirement("upkeep:delete")
def test_other_children_lose_their_parent(db: StateDatabase) -> None:
    compressed(db, "s")
    db.create_session("continued", "cli", parent_session_id="s")
    delegate(db, "d", "s")
    db.create_session("of d", "cli", parent_session_id="d")
    assert db.delete_session("s")
    assert ids(db) == {"continued", "of d"}
    assert column(db, "continued", "parent_session_id") is None
    assert column(db, "of d", "parent_session_id") is None


def test_a_deleted_delegate_leaves_its_parent_and_its_siblings(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    delegate(db, "d", "s")
    delegate(db, "e", "s")
    assert db.delete_session("d")
    assert ids(db) == {"s", "e"}


def test_a_delete_never_climbs_to_an_ancestor_through_a_loop(
    db: StateDatabase, strange: Strange
) -> None:
    db.create_session("a", "cli")
    delegate(db, "b", "a")
    delegate(db, "c", "b")
    config = json.dumps({"_delegate_from": "c"})
    strange("UPDATE sessions SET parent_session_id = 'c', model_config = ? WHERE id = 'a'", config)
    assert db.delete_session("c")
    assert ids(db) == {"a", "b"}
    assert column(db, "a", "parent_session_id") is None
    assert db.delete_session("a")
    assert ids(db) == set()


def test_a_session_that_is_its_own_parent_is_deleted(db: StateDatabase, strange: Strange) -> None:
    db.create_session("s", "cli")
    strange("UPDATE sessions SET parent_session_id = 's' WHERE id = 's'")
    assert db.delete_session("s")
    assert ids(db) == set()


@pytest.mark.parametrize(
    "config", ["{", "[1]", "null", '"_delegate_from"', '{"_delegate_from": null}', "\x00"]
)
def test_a_child_with_a_strange_model_config_is_kept(
    db: StateDatabase, strange: Strange, config: str
) -> None:
    db.create_session("s", "cli")
    db.create_session("child", "cli", parent_session_id="s")
    strange("UPDATE sessions SET model_config = ? WHERE id = 'child'", config)
    assert db.delete_session("s")
    assert ids(db) == {"child"}


def test_a_large_session_is_deleted_whole(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": "x" * 400}] * 3000)
    db.create_session("kept", "cli")
    db.append_message("kept", "user", "here")
    assert db.delete_session("s")
    assert ids(db) == {"kept"}
    assert db.message_count() == 1


def test_a_delete_in_a_transaction_that_fails_never_was(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "here")

    def give_up() -> Iterator[None]:
        with db.transaction():
            assert db.delete_session("s")
            assert ids(db) == set()
            raise LookupError
        yield

    with pytest.raises(LookupError):
        next(give_up())
    assert ids(db) == {"s"}
    assert db.message_count("s") == 1


def test_several_are_deleted_and_those_that_were_there_counted(db: StateDatabase) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
        db.append_message(name, "user", "x")
    delegate(db, "d", "a")
    assert db.delete_sessions(["a", "d", "nobody", "b", "b"]) == 3
    assert ids(db) == {"c"}


def test_usage_goes_with_its_session(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="m")
    db.update_token_counts("s", input_tokens=5, model="m")
    db.delete_session("s")
    db.create_session("s", "cli")
    assert db.get_model_usage("s") == []


@pytest.mark.requirement("upkeep:recount")
def test_a_recount_says_what_the_rows_say(db: StateDatabase, strange: Strange) -> None:
    db.create_session("s", "cli")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    db.append_message("s", "user", "x")
    db.append_message("s", "assistant", None, tool_calls=[call, call])
    db.append_message("s", "tool", "done", tool_call_id="1")
    strange("UPDATE sessions SET message_count = 0, tool_call_count = 9")
    assert db.find_drifted_sessions() == ["s"]
    assert db.recount_session("s") is True
    assert (column(db, "s", "message_count"), column(db, "s", "tool_call_count")) == (3, 2)
    assert db.recount_session("s") is False
    assert db.find_drifted_sessions() == []


def test_a_recount_leaves_out_rows_that_are_not_live(db: StateDatabase, strange: Strange) -> None:
    db.create_session("s", "cli")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for text in ("a", "b", "c"):
        db.append_message("s", "assistant", text, tool_calls=[call])
    db.append_message("s", "assistant", "d")
    strange("UPDATE messages SET active = 0 WHERE content = 'a'")
    strange("UPDATE messages SET tool_calls = '[{' WHERE content = 'b'")
    assert db.recount_session("s")
    assert (column(db, "s", "message_count"), column(db, "s", "tool_call_count")) == (3, 1)


def test_a_recount_of_nobody_is_not_found(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.recount_session("nobody")


def test_a_bound_is_kept_on_drifted_sessions(db: StateDatabase, strange: Strange) -> None:
    for number in range(5):
        db.create_session(f"s{number}", "cli")
    strange("UPDATE sessions SET message_count = 7")
    assert len(db.find_drifted_sessions(limit=3)) == 3


@pytest.mark.requirement("upkeep:checks")
def test_a_sound_database_has_no_findings(db: StateDatabase) -> None:
    assert db.check_integrity(deep=True) == []
    db.create_session("s", "cli")
    db.append_message("s", "user", "hello")
    assert db.check_integrity() == []
    assert db.check_integrity(deep=True) == []


def test_messages_without_a_session_are_found(db: StateDatabase, strange: Strange) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": "x"}] * 3)
    db.create_session("child", "cli", parent_session_id="s")
    strange("DELETE FROM sessions WHERE id = 's'")
    found = {finding.code: finding.count for finding in db.check_integrity()}
    assert found == {"orphaned_messages": 3, "broken_parents": 1}


@pytest.mark.requirement("upkeep:checks")
def test_sizes_are_estimated_at_once_and_counted_on_demand(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"some words {n}"} for n in range(2000)])
    estimated, exact = db.measure_sizes(), db.measure_sizes(exact=True)
    assert (estimated.exact, exact.exact) == (False, True)
    assert estimated.db == exact.db > 100_000
    assert sum(exact.tables.values()) + exact.free == exact.db
    assert exact.index > 0
    assert estimated.tables["messages"] == pytest.approx(exact.tables["messages"], rel=0.3)
    assert estimated.index == pytest.approx(exact.index, rel=0.4, abs=8192)
