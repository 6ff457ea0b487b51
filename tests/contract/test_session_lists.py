"""Lists: one line a conversation, every filter, every order, pages that are complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import InvalidInput, NotFound, SessionFilter, StateDatabase
from session_core.state import cursors
from session_core.types import SessionOrder, SessionSummary
from tests.contract.engines import ForeignWriter, has_column, require_column
from tests.contract.listing import add_session_at, list_session_ids, walk_list

ORDERS = ("recent", "started", "size", "cost", "tokens")


# -- one line ------------------------------------------------------------------------------


def test_list_of_empty_home_is_empty(db: StateDatabase) -> None:
    for order in ORDERS:
        page = db.list_sessions(order=order)  # type: ignore[arg-type]
        assert (page.items, page.next_cursor) == ([], None)
    assert db.find_sessions(SessionFilter()) == []


@pytest.mark.requirement("lists:lines")
def test_summary_describes_conversation(db: StateDatabase) -> None:
    add_session_at(
        *(db, "a", 10.0, 30.0, 20.0),
        started_at=5.0,
        cwd="/srv/app",
        source="tui",
        model="big",
        git_branch="feat",
        display_name="Ann",
    )
    db.set_session_title("a", "Trip")
    db.update_token_counts("a", input_tokens=10, output_tokens=5, estimated_cost_usd=0.5)
    expected = SessionSummary(
        id="a",
        root_id="a",
        title="Trip",
        preview="at 10.0",
        source="tui",
        status="open",
        started_at=5.0,
        last_active_at=30.0,
        ended_at=None,
        end_reason=None,
        messages=3,
        project="/srv/app",
        pinned=False,
        preview_id=db.get_messages("a")[0]["id"],
        chat="Ann",
        branch="feat",
        model="big",
        tokens=15,
        cost=0.5,
    )
    assert db.list_sessions().items == [expected]
    assert db.summarize_session("a") == expected


def test_summary_reports_status(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    db.end_session("a", "cli_close")
    line = db.summarize_session("a")
    assert (line.status, line.end_reason, line.ended_at is None) == ("ended", "cli_close", False)
    db.set_session_archived("a", archived=True)
    assert db.summarize_session("a").status == "archived"


@pytest.mark.schemas(16, 30)
def test_summary_shows_pin_if_column_exists(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    with require_column(db, "pinned"):
        db.update_session("a", pinned=1)
        assert db.summarize_session("a").pinned


@pytest.mark.schemas(16, 30)
def test_summary_project_prefers_repository_to_folder(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0, cwd="/srv/app/sub", git_repo_root="/srv/app")
    expected = "/srv/app" if has_column(db, "git_repo_root") else "/srv/app/sub"
    assert db.summarize_session("a").project == expected


def test_empty_session_uses_start_as_activity(db: StateDatabase) -> None:
    add_session_at(db, "a", started_at=7.0)
    line = db.summarize_session("a")
    assert (line.last_active_at, line.messages, line.preview) == (7.0, 0, "")


def test_summary_counts_live_messages_despite_counter(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    add_session_at(db, "a", 1.0, 2.0, 3.0)
    db.rewind_to_message("a", db.get_messages("a")[1]["id"])
    foreign.update_rows("sessions", {}, message_count=99)
    assert db.summarize_session("a").messages == 1
    assert db.list_sessions().items[0].messages == 1


@pytest.mark.requirement("lists:preview")
@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ("hello", "hello"),
        ("two\nlines\t and  spaces", "two lines and spaces"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ([{"type": "text", "text": "parts"}, {"type": "image_url"}], "parts"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one two"),
        ("数据库" * 30, "数据库" * 20 + "..."),
        (b"raw", "raw"),
        (None, "second"),
    ],
)
def test_preview_is_start_of_first_user_message(
    db: StateDatabase, content: Any, preview: str
) -> None:
    db.create_session("a", "cli")
    db.append_message("a", "system", "no", timestamp=1.0)
    db.append_message("a", "assistant", "no", timestamp=2.0)
    db.append_message("a", "user", content, timestamp=3.0)
    db.append_message("a", "user", "second", timestamp=4.0)
    assert db.list_sessions().items[0].preview == preview


@pytest.mark.requirement("lists:preview")
def test_preview_uses_first_stored_message(
    db: StateDatabase,
) -> None:
    rows = [{"role": "user", "content": f"number {n}", "timestamp": 900.0 - n} for n in range(300)]
    db.append_messages("a", rows, create={"source": "cli"})
    assert db.summarize_session("a").preview == "number 0"


def test_preview_omits_rewound_message(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    db.rewind_to_message("a", db.get_messages("a")[0]["id"])
    db.append_message("a", "user", "instead", timestamp=2.0)
    assert db.summarize_session("a").preview == "instead"


@pytest.mark.schemas(16, 30)
def test_preview_survives_compaction(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    with require_column(db, "compacted"):
        db.archive_and_compact("a", [{"role": "user", "content": "summary", "timestamp": 2.0}])
        assert db.summarize_session("a").preview == "at 1.0"


def test_summary_of_unknown_session_raises_not_found(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.summarize_session("nobody")


@pytest.mark.requirement("lists:lines")
def test_list_shows_conversation_once(db: StateDatabase) -> None:
    add_session_at(db, "root", 1.0, started_at=1.0)
    db.end_session("root", "compression")
    add_session_at(db, "tip", 9.0, started_at=8.0, parent_session_id="root")
    add_session_at(
        db, "branch", 3.0, parent_session_id="root", model_config={"_branched_from": "root"}
    )
    add_session_at(
        db, "helper", 4.0, parent_session_id="tip", model_config={"_delegate_from": "tip"}
    )
    add_session_at(db, "tool", 5.0, parent_session_id="tip", source="tool")
    add_session_at(db, "plain", 2.0, parent_session_id="tip")
    lines = {line.id: line for line in db.list_sessions().items}
    assert list(lines) == ["tip", "branch", "plain"]
    tip = lines["tip"]
    assert (tip.root_id, tip.started_at, tip.last_active_at) == ("root", 1.0, 9.0)
    assert lines["branch"].root_id == "branch"


def test_compression_parent_without_child_stays_listed(db: StateDatabase) -> None:
    add_session_at(db, "a", 1.0)
    db.end_session("a", "compression")
    assert list_session_ids(db) == ["a"]


# -- orders and cursors ----------------------------------------------------------------------


@pytest.fixture
def seven_conversations(db: StateDatabase) -> StateDatabase:
    """Make seven conversations whose orders differ, with ties."""
    with db.transaction():
        add_session_at(db, "a", 10.0, started_at=7.0)
        add_session_at(db, "b", 50.0, 20.0, started_at=6.0)
        add_session_at(db, "c", 30.0, 30.0, 30.0, started_at=5.0)
        add_session_at(db, "d", 50.0, started_at=4.0)
        add_session_at(db, "e", started_at=3.0)
        add_session_at(db, "f", 5.0, 5.0, started_at=3.0)
        add_session_at(db, "g", 1.0, started_at=60.0)
    return db


@pytest.mark.requirement("lists:cursors")
@pytest.mark.parametrize(
    ("order", "expected"), [("recent", "dbcafeg"), ("started", "gabcdfe"), ("size", "cfbgdae")]
)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_list_pages_follow_order(
    seven_conversations: StateDatabase, order: str, expected: str, limit: int
) -> None:
    assert "".join(list_session_ids(seven_conversations, order=order, limit=limit)) == expected
    everything = SessionFilter(status="all")
    assert (
        "".join(list_session_ids(seven_conversations, everything, order=order, limit=limit))
        == expected
    )


@pytest.mark.requirement("lists:lines")
def test_list_orders_by_conversation_start(db: StateDatabase) -> None:
    add_session_at(db, "root", 1.0, started_at=1.0)
    db.end_session("root", "compression")
    add_session_at(db, "tip", 2.0, started_at=100.0, parent_session_id="root")
    add_session_at(db, "other", 3.0, started_at=50.0)
    lines = walk_list(db, order="started", limit=1)
    assert [(line.id, line.started_at) for line in lines] == [("other", 50.0), ("tip", 1.0)]


@pytest.mark.requirement("lists:cursors")
@pytest.mark.parametrize("order", ORDERS)
def test_list_pages_are_complete_during_writes(
    seven_conversations: StateDatabase, other: StateDatabase, order: Any
) -> None:
    page = seven_conversations.list_sessions(order=order, limit=2)
    shown = [line.id for line in page.items]
    still = set("abcdefg") - set(shown)
    while page.next_cursor is not None:
        for session_id in shown:
            other.append_message(session_id, "user", "more", timestamp=99.0)
        add_session_at(other, f"new{len(shown)}", 98.0, started_at=98.0)
        page = seven_conversations.list_sessions(order=order, limit=2, cursor=page.next_cursor)
        shown += [line.id for line in page.items]
    assert len(set(shown)) == len(shown)
    assert still <= set(shown)


def test_list_cursor_survives_restart(
    seven_conversations: StateDatabase, reopen: Callable[[], StateDatabase]
) -> None:
    cursor = seven_conversations.list_sessions(limit=3).next_cursor
    rest = reopen().list_sessions(limit=10, cursor=cursor).items
    assert "".join(line.id for line in rest) == "afeg"


@pytest.mark.requirement("lists:cursors")
@pytest.mark.parametrize(
    "arguments",
    [
        {"order": "started"},
        {"order": "size"},
        {"where": SessionFilter(source=("cli",))},
        {"where": SessionFilter(status="all")},
    ],
)
def test_list_rejects_cursor_of_different_list(
    seven_conversations: StateDatabase, arguments: Any
) -> None:
    cursor = seven_conversations.list_sessions(limit=3).next_cursor
    with pytest.raises(InvalidInput):
        seven_conversations.list_sessions(limit=3, cursor=cursor, **arguments)
    foreign = seven_conversations.list_sessions(limit=3, **arguments).next_cursor
    with pytest.raises(InvalidInput):
        seven_conversations.list_sessions(limit=3, cursor=foreign)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("position", [None, 5, [], [1.0], ["a", "b"], [1.0, 2], [1.0, "a", 3]])
def test_list_rejects_forged_cursor(
    seven_conversations: StateDatabase, order: Any, position: Any
) -> None:
    cursor = cursors.encode_cursor("list", [order, repr(SessionFilter())], position)
    with pytest.raises(InvalidInput):
        seven_conversations.list_sessions(order=order, cursor=cursor)


@pytest.mark.parametrize(
    "arguments",
    [
        {"cursor": "nonsense"},
        {"cursor": ""},
        {"order": "title"},
        {"limit": 0},
        {"limit": -3},
        {"where": SessionFilter(status="closed")},  # type: ignore[arg-type]
        {"where": SessionFilter(title_like="x" * 100_000)},
        {"where": SessionFilter(min_tokens=2**70)},
        {"where": SessionFilter(user_id=object())},  # type: ignore[arg-type]
        {"where": SessionFilter(source="cli")},  # type: ignore[arg-type]
        {"where": SessionFilter(exclude_source="cli")},  # type: ignore[arg-type]
        {"where": SessionFilter(titled="yes")},  # type: ignore[arg-type]
        {"where": SessionFilter(project=tuple(f"/srv/{number}" for number in range(201)))},
        {"where": SessionFilter(ids="one")},  # type: ignore[arg-type]
        {"where": SessionFilter(words="a " * 1500)},
    ],
)
def test_list_rejects_invalid_arguments(seven_conversations: StateDatabase, arguments: Any) -> None:
    with pytest.raises(InvalidInput):
        seven_conversations.list_sessions(**arguments)


# -- filters ---------------------------------------------------------------------------------


def test_list_cursor_accepts_equivalent_filter(seven_conversations: StateDatabase) -> None:
    names = ["cli", "tui", "cron"]
    first = seven_conversations.list_sessions(SessionFilter(source=tuple(names)), limit=2)
    spelled: list[Any] = [set(names), names[::-1], (name for name in names), [*names, "cli"]]
    for source in spelled:
        where = SessionFilter(source=source)
        for _ in range(2):
            page = seven_conversations.list_sessions(where, limit=2, cursor=first.next_cursor)
            assert len(page.items) == 2


@pytest.mark.requirement("lists:filters")
@pytest.mark.parametrize("order", ["cost", "tokens"])
def test_amounts_add_up_over_conversation(db: StateDatabase, order: SessionOrder) -> None:
    spent = {"root": 3, "middle": 4, "tip": 1, "lone": 7, "branch": 2}
    parents = {"middle": "root", "tip": "middle", "branch": "root"}
    for place, (session_id, amount) in enumerate(spent.items()):
        config = {"_branched_from": "root"} if session_id == "branch" else None
        parent = parents.get(session_id)
        add_session_at(db, session_id, 10.0 + place, parent_session_id=parent, model_config=config)
        db.update_token_counts(session_id, input_tokens=amount, actual_cost_usd=amount / 10)
        if session_id in ("root", "middle"):
            db.end_session(session_id, "compression")
    lines = walk_list(db, order=order, limit=1)
    assert [line.id for line in lines] == ["tip", "lone", "branch"]
    assert [line.tokens for line in lines] == [8, 7, 2]
    assert [line.cost for line in lines] == pytest.approx([0.8, 0.7, 0.2])
    edge = (lines[0].cost if order == "cost" else lines[0].tokens, "tip")
    assert [line.id for line in db.list_sessions(order=order, below=edge).items] == [
        "lone",
        "branch",
    ]


@pytest.mark.schemas(16, 30)
def test_sources_and_folders_are_listed(db: StateDatabase) -> None:
    assert (db.admin.list_sources(), db.admin.list_folders()) == ([], [])
    add_session_at(db, "a", source="tui", cwd="/srv/app", git_repo_root="/srv")
    add_session_at(db, "b", source="cli", cwd="/srv/app")
    add_session_at(db, "c", source="cli")
    assert db.admin.list_sources() == ["cli", "tui"]
    folders = ["/srv", "/srv/app"] if has_column(db, "git_repo_root") else ["/srv/app"]
    assert db.admin.list_folders() == folders


@pytest.mark.requirement("lists:cursors")
@pytest.mark.parametrize("order", ORDERS)
def test_list_begins_below_any_position(db: StateDatabase, order: SessionOrder) -> None:
    for session_id in ("a", "b", "c"):
        add_session_at(db, session_id, 20.0, started_at=5.0)
        db.update_token_counts(session_id, input_tokens=7, actual_cost_usd=0.1)
    value = {"recent": 20.0, "started": 5.0, "size": 1, "cost": 0.1, "tokens": 7}[order]
    for below, expected in (
        ((value, "b"), ["a"]),
        ((value, ""), []),
        ((value, "z"), ["c", "b", "a"]),
        ((value - 1, "z"), []),
        ((value + 1, ""), ["c", "b", "a"]),
    ):
        page = db.list_sessions(order=order, below=below)
        assert [line.id for line in page.items] == expected
