"""Lineage: kinds of links, root, tip and chain, also with damaged links."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from session_core import InvalidInput, StateDatabase
from tests.contract.engines import ForeignWriter


def add_child(db: StateDatabase, parent: str, session_id: str, **fields: Any) -> str:
    return db.create_session(
        session_id, fields.pop("source", "cli"), parent_session_id=parent, **fields
    )


def add_chain(db: StateDatabase, *ids: str) -> None:
    """Make a chain of continuations in which each session began after the one before."""
    with db.transaction():
        db.create_session(ids[0], "cli", started_at=1.0)
        for place, (parent, session_id) in enumerate(pairwise(ids)):
            db.end_session(parent, "compression")
            add_child(db, parent, session_id, started_at=place + 2.0)


def test_resume_goes_to_last_session_with_messages(db: StateDatabase) -> None:
    add_chain(db, "a", "b", "c")
    assert db.sdk.resolve_resume_session_id("a") == "c"
    # A session that began later, by another program, has the following messages.
    add_child(db, "c", "d", started_at=10.0)
    add_child(db, "d", "e", started_at=11.0)
    assert db.sdk.resolve_resume_session_id("b") == "c"
    db.append_message("d", "user", "go on")
    assert db.sdk.resolve_resume_session_id("a") == db.sdk.resolve_resume_session_id("d") == "d"


@pytest.mark.parametrize(
    "fields",
    [
        {"model_config": {"_branched_from": "a"}},
        {"model_config": {"_delegate_from": "a"}},
        {"source": "tool"},
    ],
)
def test_resume_ignores_other_children(db: StateDatabase, fields: dict[str, Any]) -> None:
    db.create_session("a", "cli", started_at=1.0)
    add_child(db, "a", "child", started_at=2.0, **fields)
    db.append_message("child", "user", "elsewhere")
    assert db.sdk.resolve_resume_session_id("a") == "a"


@pytest.mark.requirement("lineage:kinds")
@pytest.mark.parametrize(
    ("reason", "fields", "kind"),
    [
        ("compression", {}, "continuation"),
        ("compression", {"model_config": {"other": 1}}, "continuation"),
        ("compression", {"model_config": "not json"}, "continuation"),
        ("compression", {"model_config": "[1]"}, "continuation"),
        ("compression", {"model_config": {"_branched_from": "p"}}, "branch"),
        ("compression", {"model_config": {"_delegate_from": "p"}}, "delegate"),
        ("compression", {"model_config": {"_delegate_from": "__orphaned__"}}, "delegate"),
        ("compression", {"model_config": {"_delegate_from": ""}}, "delegate"),
        ("compression", {"model_config": {"_delegate_from": False}}, "delegate"),
        ("compression", {"model_config": {"_delegate_from": None}}, "continuation"),
        ("compression", {"model_config": {"_branched_from": ""}}, "branch"),
        ("compression", {"model_config": {"_branched_from": None}}, "continuation"),
        ("compression", {"source": "tool"}, "other"),
        (None, {}, "other"),
        (None, {"model_config": {"_branched_from": "p"}}, "branch"),
        (None, {"model_config": {"_delegate_from": "p"}}, "delegate"),
        (None, {"source": "tool"}, "other"),
        ("branched", {"started_at": 9e9}, "branch"),
        ("branched", {"started_at": 1.0}, "other"),
        ("session_reset", {}, "other"),
    ],
)
def test_link_kind_depends_on_end_and_marks(
    db: StateDatabase, reason: str | None, fields: dict[str, Any], kind: str
) -> None:
    db.create_session("p", "cli")
    if reason is not None:
        db.end_session("p", reason)
    add_child(db, "p", "c", **fields)
    assert db.get_link_kind("c") == kind
    assert db.get_link_kind("p") is None
    same = kind == "continuation"
    assert db.get_compression_tip("p") == ("c" if same else "p")
    assert db.get_conversation_root("c") == ("p" if same else "c")
    assert db.get_compression_lineage("c") == (["p", "c"] if same else ["c"])


def test_single_session_is_own_root_and_tip(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.get_link_kind("s") is None
    assert db.get_compression_tip("s") == db.get_conversation_root("s") == "s"
    assert db.get_compression_lineage("s") == ["s"]
    assert db.list_children("s") == []


def test_unknown_session_has_no_relatives(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.get_link_kind("nobody") is None
    assert db.get_compression_tip("nobody") == db.get_conversation_root("nobody") == "nobody"
    assert db.get_compression_lineage("nobody") == ["nobody"]
    assert db.list_children("nobody") == []


def test_children_are_listed_oldest_first(db: StateDatabase) -> None:
    db.create_session("p", "cli")
    add_child(db, "p", "b", started_at=2.0)
    add_child(db, "p", "a", started_at=2.0, model_config={"_delegate_from": "p"})
    add_child(db, "p", "c", started_at=1.0, model_config={"_branched_from": "p"})
    assert [row["id"] for row in db.list_children("p")] == ["c", "a", "b"]


@pytest.mark.requirement("lineage:tip")
def test_long_chain_has_single_root_and_tip(db: StateDatabase) -> None:
    ids = [f"s{number:03}" for number in range(120)]
    add_chain(db, *ids)
    for session_id in (ids[0], ids[60], ids[-1]):
        assert db.get_compression_tip(session_id) == ids[-1]
        assert db.get_conversation_root(session_id) == ids[0]
        assert db.get_compression_lineage(session_id) == ids
    (line,) = db.list_sessions().items
    assert (line.id, line.root_id, line.started_at) == (ids[-1], ids[0], 1.0)


@pytest.mark.requirement("lineage:tip")
@pytest.mark.parametrize(
    ("name", "states", "tip"),
    [
        ("one that was compressed again before a live one", ["live", "compressed"], 1),
        ("one that was compressed again before an ended one", ["compressed", "ended"], 0),
        ("a live one before an ended one", ["ended", "live", "ended"], 1),
        ("the last message where both live", ["live at 50", "live at 90", "live at 70"], 1),
        ("a message before a later start", ["live at 50", "live"], 0),
        ("the later start where none has messages", ["live", "live"], 1),
        ("the last message where both ended", ["ended at 90", "ended at 80"], 0),
    ],
)
def test_tip_is_chosen_among_several_continuations(
    db: StateDatabase, name: str, states: list[str], tip: int
) -> None:
    add_chain(db, "root", "last")
    db.end_session("last", "compression")
    for place, state in enumerate(states):
        session_id = add_child(db, "last", f"c{place}", started_at=10.0 + place)
        what, _, at = state.partition(" at ")
        if at:
            db.append_message(session_id, "user", "x", timestamp=float(at))
        if what != "live":
            db.end_session(session_id, "compression" if what == "compressed" else "cli_close")
    assert db.get_compression_tip("root") == f"c{tip}"
    assert db.get_compression_lineage("root") == ["root", "last", f"c{tip}"]
    assert [line.id for line in db.list_sessions().items] == [f"c{tip}"]


def test_abandoned_fork_has_own_chain(db: StateDatabase) -> None:
    add_chain(db, "root", "tip")
    add_child(db, "root", "fork", started_at=0.5)
    assert db.get_compression_tip("root") == "tip"
    assert db.get_compression_tip("fork") == "fork"
    assert db.get_compression_lineage("fork") == ["root", "fork"]


def test_early_delegate_is_no_continuation(db: StateDatabase) -> None:
    db.create_session("p", "cli")
    db.end_session("p", "compression")
    add_child(db, "p", "helper", started_at=1.0, model_config={"_delegate_from": "p"})
    add_child(db, "p", "next", started_at=9.0)
    assert db.get_compression_tip("p") == "next"


@pytest.mark.requirement("lineage:delegates")
@pytest.mark.parametrize("mark", ["p", "__orphaned__", "", 0, False, None])
def test_delegate_is_recognized_by_lists_and_delete(db: StateDatabase, mark: Any) -> None:
    db.create_session("p", "cli")
    add_child(db, "p", "c", model_config={"_delegate_from": mark})
    db.append_message("c", "user", "hello")
    is_delegate = db.get_link_kind("c") == "delegate"
    assert is_delegate == ("c" not in [line.id for line in db.list_sessions().items])
    db.delete_session("p")
    assert is_delegate == (db.get_session("c") is None)


# -- parents that would close a circle --------------------------------------------------------


def is_refused(db: StateDatabase, change: Callable[[], Any]) -> bool:
    """Return True if a change is refused and leaves every session unchanged."""
    before = [db.get_session(session_id) for session_id in ("a", "b", "c", "lone")]
    try:
        change()
    except InvalidInput:
        assert [db.get_session(session_id) for session_id in ("a", "b", "c", "lone")] == before
        return True
    return False


@pytest.mark.requirement("lineage:circles")
@pytest.mark.parametrize("parent", ["a", "b", "c"])
def test_session_cannot_become_own_ancestor(db: StateDatabase, parent: str) -> None:
    add_chain(db, "a", "b", "c")
    assert is_refused(
        db, lambda: db.create_session("a", "cli", parent_session_id=parent, model="m")
    )
    assert is_refused(db, lambda: db.update_session("a", parent_session_id=parent, model="m"))
    assert db.get_compression_lineage("c") == ["a", "b", "c"]


@pytest.mark.requirement("lineage:circles")
def test_new_session_cannot_be_own_parent(db: StateDatabase) -> None:
    create = {"source": "cli", "parent_session_id": "new"}
    assert is_refused(db, lambda: db.create_session("new", **create))
    assert is_refused(db, lambda: db.append_message("new", "user", "hello", create=create))
    assert db.get_session("new") is None


def test_root_session_accepts_any_non_descendant_parent(
    db: StateDatabase,
) -> None:
    add_chain(db, "a", "b", "c")
    db.create_session("lone", "cli")
    assert not is_refused(db, lambda: db.create_session("lone", "cli", parent_session_id="c"))
    assert not is_refused(db, lambda: db.update_session("lone", parent_session_id="a"))
    assert not is_refused(db, lambda: db.update_session("c", parent_session_id="lone"))
    assert not is_refused(db, lambda: db.update_session("b", parent_session_id=None))


@pytest.mark.requirement("lineage:circles")
def test_existing_cycle_blocks_no_other_session(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_chain(db, "a", "b", "c")
    foreign.update_rows("sessions", {"id": "a"}, parent_session_id="b")
    db.create_session("lone", "cli")
    assert not is_refused(db, lambda: db.create_session("a", "cli", parent_session_id="b"))
    assert not is_refused(db, lambda: db.update_session("a", parent_session_id="b"))
    assert not is_refused(db, lambda: db.update_session("lone", parent_session_id="a"))
    assert is_refused(db, lambda: db.update_session("a", parent_session_id="c"))
    assert not is_refused(db, lambda: db.update_session("a", parent_session_id=None))
    assert db.get_compression_lineage("c") == ["a", "b", "c"]


# -- damage ----------------------------------------------------------------------------------


def query_lineage(db: StateDatabase, *ids: str) -> None:
    """Call every lineage method for sessions with damaged links."""
    for session_id in ids:
        assert db.get_compression_tip(session_id) in ids
        assert db.get_conversation_root(session_id) in ids
        assert session_id in db.get_compression_lineage(session_id)
        db.get_link_kind(session_id)
        db.list_children(session_id)
        db.summarize_session(session_id)
        db.get_messages_as_conversation(session_id, include_ancestors=True)
        db.set_session_archived(session_id, archived=True)
        db.set_session_archived(session_id, archived=False)
        db.set_session_title(session_id, f"Title of {session_id}")
    for order in ("recent", "started", "size"):
        listed = [line.id for line in db.list_sessions(order=order).items]
        assert listed, "a conversation does not vanish from the list"
        assert len(set(listed)) == len(listed)


@pytest.mark.requirement("lineage:damage")
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("reason", [None, "compression"])
def test_parent_cycle_is_tolerated(
    db: StateDatabase, foreign: ForeignWriter, length: int, reason: str | None
) -> None:
    ids = [f"s{number}" for number in range(length)]
    for place, session_id in enumerate(ids):
        db.create_session(session_id, "cli", started_at=float(place))
        if reason:
            db.end_session(session_id, reason)
    for place, session_id in enumerate(ids):
        parent = ids[place - 1]
        foreign.update_rows("sessions", {"id": session_id}, parent_session_id=parent)
    query_lineage(db, *ids)


def test_chain_ending_in_cycle_is_tolerated(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_chain(db, "a", "b", "c")
    db.end_session("c", "compression")
    foreign.update_rows("sessions", {"id": "b"}, parent_session_id="c")
    query_lineage(db, "b", "c")
    assert db.get_conversation_root("a") == "a"


@pytest.mark.requirement("lineage:damage")
def test_lineage_ends_at_missing_parent(db: StateDatabase, foreign: ForeignWriter) -> None:
    add_chain(db, "a", "b", "c")
    foreign.delete_rows("sessions", {"id": "a"})
    assert db.get_compression_lineage("c") == ["b", "c"]
    assert db.get_conversation_root("c") == "b"
    assert db.get_link_kind("b") == "other"
    query_lineage(db, "b", "c")


def test_damaged_model_config_is_no_delegate_mark(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    add_chain(db, "a", "b")
    for broken in ("{", "[]", "5", '"_delegate_from"', "", b"\xff"):
        foreign.update_rows("sessions", {"id": "b"}, model_config=broken)
        assert db.get_link_kind("b") == "continuation"


def test_lineage_is_reread_after_foreign_change(db: StateDatabase, other: StateDatabase) -> None:
    add_chain(db, "a", "b")
    assert db.get_compression_tip("a") == "b"
    other.end_session("b", "compression")
    add_child(other, "b", "c")
    assert db.get_compression_tip("a") == "c"
    assert db.get_compression_lineage("b") == ["a", "b", "c"]
