"""Conversations are grouped as a whole, also in broken homes: checked on forests and cycles."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import SessionDB
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.types import InventoryItem, LinkKind, Revision
from tests.homes import add_session, connect, make_own_database

INSIDE = ("continuation", "delegate")


def make_row(
    session_id: str,
    parent: str | None = None,
    link: LinkKind | None = None,
    started_at: float = 0.0,
    active_at: float | None = 0.0,
    **fields,
) -> InventoryItem:
    given = {"title": None, "ended_at": None, "end_reason": None, "rows": 0, **fields}
    return InventoryItem(
        id=session_id, source="cli", parent_id=parent, link=link, session_key=None,
        started_at=started_at, archived=False, pinned=False, api_calls=0,
        expiry_finalized=False, last_active_at=active_at, live=0, counted=0,
        revision=Revision(0, 0, 0, 0, None), **given,
    )  # fmt: skip


def list_ids(sessions) -> list[str]:
    return [session.id for session in sessions]


@st.composite
def make_rows(draw: st.DrawFn) -> list[InventoryItem]:
    """Return sessions with any parents: earlier, later, themselves or missing ones."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    parents = st.one_of(st.none(), st.sampled_from([*names, "nobody"]))
    links: st.SearchStrategy[LinkKind] = st.sampled_from(
        ["continuation", "continuation", "delegate", "branch", "other"]
    )
    times = st.integers(0, 5).map(float)
    return [
        make_row(name, parent, draw(links) if parent else None, draw(times), draw(times),
              end_reason=draw(st.sampled_from([None, "compression", "cli_close"])))
        for name in names
        for parent in [draw(parents)]
    ]  # fmt: skip


@pytest.mark.requirement("maintenance:conversations")
@given(make_rows())
def test_each_session_has_single_conversation(given_: list[InventoryItem]) -> None:
    conversations = ConversationIndex(given_)
    ids = [session.id for conversation in conversations.all for session in conversation.sessions]
    assert sorted(ids) == sorted(list_ids(given_))
    assert all(item in conversations.find_conversation(item.id).sessions for item in given_)


@given(make_rows())
def test_continuation_and_delegate_join_parent_conversation(
    given_: list[InventoryItem],
) -> None:
    conversations = ConversationIndex(given_)
    for item in given_:
        if item.parent_id in conversations.sessions:
            same = conversations.find_conversation(item.id) is conversations.find_conversation(
                item.parent_id
            )
            assert same or item.link not in INSIDE


@given(make_rows())
def test_other_links_join_no_conversations(given_: list[InventoryItem]) -> None:
    for conversation in ConversationIndex(given_).all:
        inside = {conversation.root.id}
        for session in conversation.sessions[1:]:
            assert session.link in INSIDE
            assert session.parent_id in inside
            inside.add(session.id)


@pytest.mark.requirement("maintenance:conversations")
@given(make_rows())
def test_child_precedes_parent_except_in_cycle(given_: list[InventoryItem]) -> None:
    for conversation in ConversationIndex(given_).all:
        order = list_ids(conversation.removal_order)
        assert order[-1] == conversation.id
        for session in conversation.sessions[1:]:
            assert order.index(session.id) < order.index(session.parent_id)


@given(make_rows())
def test_left_behind_are_children_of_removed(
    given_: list[InventoryItem],
) -> None:
    conversations = ConversationIndex(given_)
    for conversation in conversations.all:
        gone = set(list_ids(conversation.sessions))
        left = {item.id for item in given_ if item.parent_id in gone} - gone
        assert set(list_ids(conversations.list_left_behind(conversation.sessions))) == left


@pytest.mark.requirement("maintenance:conversations")
@given(make_rows())
def test_named_delegate_excludes_its_parent(
    given_: list[InventoryItem],
) -> None:
    conversations = ConversationIndex(given_)
    for item in given_:
        named = conversations.find_removed_together(item.id)
        whole = conversations.find_conversation(item.id)
        assert item in named.sessions
        assert set(list_ids(named.sessions)) <= set(list_ids(whole.sessions))
        if named.id != whole.id:
            assert named.root.link == "delegate"
            assert named.root.parent_id not in list_ids(named.sessions)


@given(make_rows())
def test_cycles_are_found_for_any_link(given_: list[InventoryItem]) -> None:
    parents = {item.id: item.parent_id for item in given_}
    for name in parents:
        walked: list[str] = []
        here: str | None = name
        while here in parents and here not in walked:
            walked.append(here)
            here = parents[here]
        is_in = here == name
        assert is_in == any(name in list_ids(circle) for circle in ConversationIndex(given_).cycles)


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_root_and_tip_match_database(chance: random.Random) -> None:
    """Grouping finds the same tip as `get_compression_tip` in real rows."""
    import tempfile  # noqa: PLC0415 -- a folder for each example

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.db")
        make_own_database(path)
        fill(path, chance)
        with SessionDB(path) as db:
            conversations = ConversationIndex(db.admin.list_inventory())
            for name in conversations.sessions:
                conversation = conversations.find_removed_together(name)
                assert conversation is not None
                assert db.get_conversation_root(name) == conversation.root.id
                assert db.get_compression_tip(conversation.id) == conversation.tip.id


def fill(path: Path, chance: random.Random) -> None:
    with connect(path) as connection:
        names: list[str] = []
        for number in range(chance.randint(1, 9)):
            parent = chance.choice([None, *names])
            marks = [None, '{"_delegate_from": "x"}', '{"_branched_from": "x"}']
            ended_at = chance.choice([None, number + 1.5])
            add_session(
                connection, f"s{number}", parent_session_id=parent, started_at=float(number),
                source=chance.choice(["cli", "cli", "tool"]),
                model_config=chance.choice([None, None, *marks]),
                ended_at=ended_at,
                end_reason=ended_at and chance.choice(["compression", "compression", "branched"]),
            )  # fmt: skip
            names.append(f"s{number}")


# -- single shapes -------------------------------------------------------------------------


def test_removal_order_is_tip_then_delegates() -> None:
    given_ = [
        make_row("root"),
        make_row("tip", "root", "continuation", 1.0, 1.0),
        make_row("of_root", "root", "delegate", 2.0, 2.0),
        make_row("of_tip", "tip", "delegate"),
        make_row("below", "of_root", "delegate"),
    ]
    (conversation,) = ConversationIndex(given_).all
    assert list_ids(conversation.removal_order) == ["of_tip", "tip", "below", "of_root", "root"]


def test_conversation_age_is_latest_activity() -> None:
    given_ = [make_row("a", active_at=1.0), make_row("b", "a", "delegate", active_at=9.0)]
    assert ConversationIndex(given_).all[0].last_active_at == 9.0
    unknown = [*given_, make_row("c", "b", "delegate", active_at=None)]
    assert ConversationIndex(unknown).all[0].last_active_at is None


def test_conversation_title_is_latest() -> None:
    given_ = [
        make_row("a", title="Old"),
        make_row("b", "a", "continuation", title="New"),
        make_row("c", "b", "continuation"),
        make_row("d", "c", "delegate", title="Of a delegate"),
    ]
    assert ConversationIndex(given_).all[0].title == "New"


@pytest.mark.parametrize("link", ["continuation", "delegate"])
def test_self_parent_session_is_conversation(link: LinkKind) -> None:
    conversations = ConversationIndex(
        [make_row("a", "a", link), make_row("b", "a", "continuation")]
    )
    assert [list_ids(conversation.sessions) for conversation in conversations.all] == [["a", "b"]]
    assert [list_ids(cycle) for cycle in conversations.cycles] == [["a"]]


def test_named_delegate_in_cycle_is_whole_conversation() -> None:
    given_ = [make_row("a", "b", "continuation"), make_row("b", "a", "delegate")]
    conversations = ConversationIndex(given_)
    assert list_ids(conversations.find_removed_together("b").sessions) == ["a", "b"]


def test_missing_parent_is_reported() -> None:
    conversations = ConversationIndex(
        [make_row("a", "nobody", "delegate"), make_row("b", "a", "delegate")]
    )
    assert list_ids(conversations.parentless_sessions) == ["a"]
    assert [list_ids(conversation.sessions) for conversation in conversations.all] == [["a", "b"]]


@pytest.mark.requirement("maintenance:conversations")
@pytest.mark.parametrize("circle", [False, True])
def test_long_chain_is_single_conversation(circle: bool) -> None:
    count = 50_000
    first = make_row("s0", f"s{count - 1}" if circle else None, "continuation" if circle else None)
    chain = [make_row(f"s{n}", f"s{n - 1}", "continuation", float(n)) for n in range(1, count)]
    shuffled = [first, *chain]
    random.Random(1).shuffle(shuffled)
    conversations = ConversationIndex(shuffled)
    (conversation,) = conversations.all
    assert (conversation.root.id, conversation.tip.id) == ("s0", f"s{count - 1}")
    assert list_ids(conversation.removal_order) == [f"s{n}" for n in reversed(range(count))]
    assert conversations.find_removed_together("s777") is conversation
    assert len(conversations.cycles) == circle
