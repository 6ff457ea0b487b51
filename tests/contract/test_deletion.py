"""Upkeep: finalizing, pruning, deleting and recounting, and the rows that stay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from session_core import NotFound, SessionFilter, StateDatabase
from tests.contract.engines import ForeignWriter

pytestmark = pytest.mark.schemas(30)

OLD = time.time() - 30 * 86_400


def add_compressed(db: StateDatabase, session_id: str = "parent") -> str:
    db.create_session(session_id, "cli", started_at=OLD)
    db.append_message(session_id, "user", "before")
    db.end_session(session_id, "compression")
    return session_id


def add_orphan(db: StateDatabase, session_id: str = "orphan", **fields: Any) -> str:
    fields = {"started_at": OLD, "parent_session_id": "parent", **fields}
    db.create_session(session_id, "cli", **fields)
    db.append_message(session_id, "user", "carried")
    return session_id


def add_ghost(db: StateDatabase, session_id: str = "ghost", **fields: Any) -> str:
    db.create_session(session_id, "tui", **{"started_at": OLD, **fields})
    db.end_session(session_id, "tui_close")
    return session_id


def add_delegate(db: StateDatabase, session_id: str, parent: str) -> str:
    config = json.dumps({"_delegate_from": parent})
    db.create_session(session_id, "cli", parent_session_id=parent, model_config=config)
    db.append_message(session_id, "user", "do it")
    return session_id


def list_ids(db: StateDatabase) -> set[str]:
    return set(db.find_sessions(SessionFilter(status="all")))


def read_column(db: StateDatabase, session_id: str, name: str) -> Any:
    row = db.get_session(session_id)
    assert row is not None
    return dict(row)[name]


@pytest.mark.requirement("upkeep:orphans")
def test_finalize_ends_orphaned_continuation_once(db: StateDatabase) -> None:
    add_compressed(db)
    add_orphan(db)
    before = time.time()
    assert db.finalize_orphaned_compression_sessions() == 1
    assert read_column(db, "orphan", "end_reason") == "orphaned_compression"
    assert before <= read_column(db, "orphan", "ended_at") <= time.time()
    assert db.finalize_orphaned_compression_sessions() == 0


def test_finalize_ends_orphans_of_every_kind(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_compressed(db)
    add_orphan(db, "branch", model_config=json.dumps({"_branched_from": "parent"}))
    add_orphan(db, "archived")
    add_orphan(db, "titled")
    add_orphan(db, "rewound")
    db.set_session_title("titled", "a title")
    foreign.update_rows("sessions", {"id": "archived"}, archived=1)
    foreign.update_rows("messages", {"session_id": "rewound"}, active=0)
    assert db.finalize_orphaned_compression_sessions() == 4


@pytest.mark.requirement("upkeep:orphans")
@pytest.mark.parametrize(
    ("session_id", "damage"),
    [
        ("orphan", {"api_call_count": 1}),
        ("orphan", {"api_call_count": None}),
        ("orphan", {"end_reason": "x"}),
        ("orphan", {"ended_at": 5}),
        ("orphan", {"started_at": time.time() - 6 * 86_400}),
        ("orphan", {"parent_session_id": None}),
        ("orphan", {"parent_session_id": "nobody"}),
        ("parent", {"ended_at": None}),
        ("parent", {"end_reason": "cli_close"}),
    ],
)
def test_finalize_leaves_non_orphans_open(
    db: StateDatabase, foreign: ForeignWriter, session_id: str, damage: dict[str, Any]
) -> None:
    add_compressed(db)
    add_orphan(db)
    assert foreign.update_rows("sessions", {"id": session_id}, **damage) == 1
    assert db.finalize_orphaned_compression_sessions() == 0
    assert read_column(db, "orphan", "end_reason") != "orphaned_compression"


@pytest.mark.requirement("upkeep:orphans")
def test_finalize_leaves_empty_continuation_open(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_compressed(db)
    add_orphan(db)
    assert foreign.delete_rows("messages", {"session_id": "orphan"}) == 1
    assert db.finalize_orphaned_compression_sessions() == 0
    assert read_column(db, "orphan", "end_reason") != "orphaned_compression"


def test_prune_deletes_empty_ghost(db: StateDatabase) -> None:
    add_ghost(db)
    add_ghost(db, "another")
    assert db.prune_empty_ghost_sessions() == 2
    assert list_ids(db) == set()
    assert db.prune_empty_ghost_sessions() == 0


def test_empty_session_is_deleted(db: StateDatabase) -> None:
    db.create_session("empty", "cli")
    db.create_session("parent", "cli", parent_session_id="empty")
    db.create_session("titled", "cli", parent_session_id="parent")
    db.set_session_title("titled", "kept")
    db.append_message("written", "user", "x", create={"source": "cli"})
    kept = {"parent", "titled", "written"}
    assert not any(db.sdk.delete_session_if_empty(session_id) for session_id in kept)
    assert not db.sdk.delete_session_if_empty("empty")
    db.update_session("parent", parent_session_id=None)
    assert db.sdk.delete_session_if_empty("empty")
    assert list_ids(db) == kept


@pytest.mark.requirement("upkeep:ghosts")
def test_prune_skips_ghost_with_child(db: StateDatabase) -> None:
    add_ghost(db, "with child")
    db.create_session("child", "cli", parent_session_id="with child")
    add_ghost(db)
    assert db.prune_empty_ghost_sessions() == 1
    assert list_ids(db) == {"with child", "child"}


@pytest.mark.requirement("upkeep:ghosts")
@pytest.mark.parametrize(
    "damage",
    [
        {"source": "cli"},
        {"title": "kept"},
        {"ended_at": None},
        {"started_at": time.time() - 86_400 / 2},
    ],
)
def test_prune_keeps_non_ghosts(
    db: StateDatabase, foreign: ForeignWriter, damage: dict[str, Any]
) -> None:
    add_ghost(db)
    assert foreign.update_rows("sessions", {}, **damage) == 1
    assert db.prune_empty_ghost_sessions() == 0
    assert list_ids(db) == {"ghost"}


@pytest.mark.requirement("upkeep:ghosts")
def test_prune_keeps_session_with_rewound_message(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    add_ghost(db)
    row = {"role": "user", "content": "taken back", "timestamp": 5, "active": 0}
    foreign.insert_row("messages", session_id="ghost", **row)
    assert db.prune_empty_ghost_sessions() == 0
    assert list_ids(db) == {"ghost"}


def test_prune_keeps_ghost_with_self_parent(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_ghost(db, "loop")
    add_ghost(db)
    foreign.update_rows("sessions", {"id": "loop"}, parent_session_id="loop")
    assert db.prune_empty_ghost_sessions() == 1
    assert list_ids(db) == {"loop"}


@pytest.mark.costly
def test_prune_deletes_hundreds_of_ghosts(db: StateDatabase) -> None:
    with db.transaction():
        for number in range(450):
            add_ghost(db, f"g{number}")
    assert db.prune_empty_ghost_sessions() == 450
    assert list_ids(db) == set()


@pytest.mark.requirement("upkeep:delete")
def test_delete_session_removes_messages(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"word{n}"} for n in range(5)])
    db.create_session("kept", "cli")
    db.append_message("kept", "user", "word1 too")
    assert db.delete_session("s") is True
    assert list_ids(db) == {"kept"}
    assert db.message_count() == 1
    assert [hit.session_id for hit in db.search("word1").hits] == ["kept"]
    assert db.search("word3").hits == []


def test_delete_session_ignores_unknown_id(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.delete_session("nobody") is False
    assert db.delete_sessions([]) == 0
    assert list_ids(db) == {"s"}


@pytest.mark.requirement("upkeep:delete")
def test_delete_session_removes_nested_delegates(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    add_delegate(db, "d", "s")
    add_delegate(db, "dd", "d")
    assert db.delete_session("s")
    assert list_ids(db) == set()
    assert db.message_count() == 0


@pytest.mark.requirement("upkeep:delete")
def test_delete_session_unlinks_other_children(db: StateDatabase) -> None:
    add_compressed(db, "s")
    db.create_session("continued", "cli", parent_session_id="s")
    add_delegate(db, "d", "s")
    db.create_session("of d", "cli", parent_session_id="d")
    assert db.delete_session("s")
    assert list_ids(db) == {"continued", "of d"}
    assert read_column(db, "continued", "parent_session_id") is None
    assert read_column(db, "of d", "parent_session_id") is None


def test_delete_delegate_keeps_parent_and_siblings(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    add_delegate(db, "d", "s")
    add_delegate(db, "e", "s")
    assert db.delete_session("d")
    assert list_ids(db) == {"s", "e"}


def test_delete_session_keeps_ancestors_in_cycle(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("a", "cli")
    add_delegate(db, "b", "a")
    add_delegate(db, "c", "b")
    config = json.dumps({"_delegate_from": "c"})
    foreign.update_rows("sessions", {"id": "a"}, parent_session_id="c", model_config=config)
    assert db.delete_session("c")
    assert list_ids(db) == {"a", "b"}
    assert read_column(db, "a", "parent_session_id") is None
    assert db.delete_session("a")
    assert list_ids(db) == set()


def test_delete_session_with_self_parent(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("s", "cli")
    foreign.update_rows("sessions", {"id": "s"}, parent_session_id="s")
    assert db.delete_session("s")
    assert list_ids(db) == set()


@pytest.mark.parametrize(
    "config", ["{", "[1]", "null", '"_delegate_from"', '{"_delegate_from": null}', "\x00"]
)
def test_delete_session_keeps_child_with_odd_config(
    db: StateDatabase, foreign: ForeignWriter, config: str
) -> None:
    db.create_session("s", "cli")
    db.create_session("child", "cli", parent_session_id="s")
    foreign.update_rows("sessions", {"id": "child"}, model_config=config)
    assert db.delete_session("s")
    assert list_ids(db) == {"child"}


def test_delete_session_removes_large_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": "x" * 400}] * 3000)
    db.create_session("kept", "cli")
    db.append_message("kept", "user", "here")
    assert db.delete_session("s")
    assert list_ids(db) == {"kept"}
    assert db.message_count() == 1


def test_delete_session_rolls_back_with_transaction(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "here")

    def give_up() -> Iterator[None]:
        with db.transaction():
            assert db.delete_session("s")
            assert list_ids(db) == set()
            raise LookupError
        yield

    with pytest.raises(LookupError):
        next(give_up())
    assert list_ids(db) == {"s"}
    assert db.message_count("s") == 1


def test_delete_sessions_returns_count_of_existing(db: StateDatabase) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
        db.append_message(name, "user", "x")
    add_delegate(db, "d", "a")
    assert db.delete_sessions(["a", "d", "nobody", "b", "b"]) == 3
    assert list_ids(db) == {"c"}


def test_delete_session_removes_usage(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="m")
    db.update_token_counts("s", input_tokens=5, model="m")
    db.delete_session("s")
    db.create_session("s", "cli")
    assert db.admin.get_model_usage("s") == []


@pytest.mark.requirement("upkeep:recount")
def test_recount_matches_message_rows(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("s", "cli")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    db.append_message("s", "user", "x")
    db.append_message("s", "assistant", None, tool_calls=[call, call])
    db.append_message("s", "tool", "done", tool_call_id="1")
    foreign.update_rows("sessions", {}, message_count=0, tool_call_count=9)
    assert db.admin.find_drifted_sessions() == ["s"]
    assert db.admin.recount_session("s") is True
    assert (read_column(db, "s", "message_count"), read_column(db, "s", "tool_call_count")) == (
        3,
        2,
    )
    assert db.admin.recount_session("s") is False
    assert db.admin.find_drifted_sessions() == []


def test_recount_ignores_inactive_rows(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("s", "cli")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for text in ("a", "b", "c"):
        db.append_message("s", "assistant", text, tool_calls=[call])
    db.append_message("s", "assistant", "d")
    foreign.update_rows("messages", {"content": "a"}, active=0)
    foreign.update_rows("messages", {"content": "b"}, tool_calls="[{")
    assert db.admin.recount_session("s")
    assert (read_column(db, "s", "message_count"), read_column(db, "s", "tool_call_count")) == (
        3,
        1,
    )


def test_recount_of_unknown_session_raises_not_found(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.admin.recount_session("nobody")


def test_drifted_sessions_respects_limit(db: StateDatabase, foreign: ForeignWriter) -> None:
    for number in range(5):
        db.create_session(f"s{number}", "cli")
    foreign.update_rows("sessions", {}, message_count=7)
    assert len(db.admin.find_drifted_sessions(limit=3)) == 3


@pytest.mark.requirement("upkeep:checks")
def test_integrity_check_of_sound_database_is_empty(db: StateDatabase) -> None:
    assert db.admin.check_integrity(deep=True) == []
    db.create_session("s", "cli")
    db.append_message("s", "user", "hello")
    assert db.admin.check_integrity() == []
    assert db.admin.check_integrity(deep=True) == []


def test_integrity_check_finds_messages_without_session(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": "x"}] * 3)
    db.create_session("child", "cli", parent_session_id="s")
    foreign.delete_rows("sessions", {"id": "s"})
    found = {finding.code: finding.count for finding in db.admin.check_integrity()}
    assert found == {"orphaned_messages": 3, "broken_parents": 1}


@pytest.mark.requirement("upkeep:checks")
def test_sizes_are_estimated_or_counted(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"some words {n}"} for n in range(2000)])
    estimated, exact = db.admin.measure_sizes(), db.admin.measure_sizes(exact=True)
    assert (estimated.exact, exact.exact) == (False, True)
    assert estimated.db == exact.db > 100_000
    assert sum(exact.tables.values()) + exact.free == exact.db
    assert exact.index > 0
    assert estimated.tables["messages"] == pytest.approx(exact.tables["messages"], rel=0.3)
    assert estimated.index == pytest.approx(exact.index, rel=0.4, abs=8192)
