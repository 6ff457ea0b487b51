"""The change feed: events, cursors, gaps, and waiting for a commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from session_core import AsyncSessionDB, InvalidInput, StateDatabase
from session_core.types import SessionEvent
from tests.contract.engines import ForeignWriter, require_column

Open = Callable[[], StateDatabase]


def list_events(events: Iterable[SessionEvent]) -> list[tuple[str, str, str | None]]:
    return [(event.type, event.session_id, event.text) for event in events]


def read_feed_texts(db: StateDatabase, cursor: str, **query: Any) -> list[str | None]:
    return [
        event.text for event in db.read_changes(cursor, **query).events if event.type == "message"
    ]


@pytest.mark.requirement("feed:start")
def test_feed_without_cursor_starts_now(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "history")
    db.end_session("s", "done")
    first = db.read_changes()
    assert (first.events, first.gap) == ([], False)
    page = db.read_changes(first.cursor)
    assert (page.events, page.gap) == ([], False)


def test_feed_reports_session_messages_end_once(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    db.create_session("s", "cli")
    db.append_message("s", "user", "hello")
    db.append_message("s", "assistant", "hi")
    db.end_session("s", "cli_close")
    page = db.read_changes(cursor)
    assert list_events(page.events) == [
        ("session_started", "s", None),
        ("message", "s", "hello"),
        ("message", "s", "hi"),
        ("session_ended", "s", None),
    ]
    assert not page.gap
    assert db.read_changes(page.cursor).events == []


def test_feed_event_contains_time_role_reason(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    db.create_session("s", "cli", started_at=5.0)
    db.set_session_title("s", "a title")
    message_id = db.append_message("s", "user", "hello", timestamp=6.0)
    before = time.time()
    db.end_session("s", "cli_close")
    started, message, ended = db.read_changes(cursor).events
    assert started == SessionEvent("session_started", 5.0, "s", title="a title")
    assert message == SessionEvent(
        "message", 6.0, "s", message_id=message_id, role="user", text="hello"
    )
    assert (ended.title, ended.reason) == ("a title", "cli_close")
    assert before <= ended.at <= time.time()


@pytest.mark.requirement("feed:cursor")
def test_feed_cursor_survives_restart(db: StateDatabase, reopen: Open) -> None:
    cursor = db.read_changes().cursor
    db.append_message("s", "user", "before", create={"source": "cli"})
    cursor = db.read_changes(cursor).cursor
    db.append_message("s", "user", "after")
    assert read_feed_texts(reopen(), cursor) == ["after"]


def test_feed_reports_commits_of_different_process(db: StateDatabase, other: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    other.append_message("s", "user", "theirs", create={"source": "cli"})
    assert read_feed_texts(db, cursor) == ["theirs"]


def test_feed_omits_uncommitted_changes(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    cursor = db.read_changes().cursor
    with db.transaction():
        db.append_message("s", "user", "not yet")
        assert db.read_changes(cursor).events == []
    assert read_feed_texts(db, cursor) == ["not yet"]


def test_feed_page_continues_after_last_event(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
        db.append_messages(name, [{"role": "user", "content": f"{name}{n}"} for n in range(4)])
        db.end_session(name, "done")
    whole = list_events(db.read_changes(cursor, limit=100).events)
    for limit in (1, 2, 3, 7):
        pages, following = [], cursor
        while page := db.read_changes(following, limit=limit).events:
            assert len(page) <= limit
            pages += list_events(page)
            following = db.read_changes(following, limit=limit).cursor
        assert pages == whole
    assert len(whole) == 3 + 12 + 3


def test_feed_orders_messages_by_id(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    db.create_session("s", "cli")
    for at, text in ((50.0, "first"), (5.0, "second"), (5.0, "third"), (20.0, "fourth")):
        db.append_message("s", "user", text, timestamp=at)
    assert read_feed_texts(db, cursor) == ["first", "second", "third", "fourth"]


def test_feed_reports_new_message_with_old_time(db: StateDatabase) -> None:
    db.append_message("s", "user", "late", timestamp=9e9, create={"source": "cli"})
    cursor = db.read_changes().cursor
    db.append_message("s", "user", "early", timestamp=5.0)
    assert read_feed_texts(db, cursor) == ["early"]


def test_feed_omits_rewound_messages(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    db.append_message("s", "user", "kept", create={"source": "cli"})
    target = db.append_message("s", "user", "taken back")
    db.append_message("s", "assistant", "taken back too")
    db.rewind_to_message("s", target)
    assert read_feed_texts(db, cursor) == ["kept"]


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("feed:copies")
def test_feed_omits_copies_carried_by_compaction(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    for text in ("old", "tail one", "tail two"):
        db.append_message("s", "user", text)
    cursor = db.read_changes().cursor
    carried = db.get_messages_as_conversation("s")[1:]
    with require_column(db, "compacted"):
        db.archive_and_compact("s", [{"role": "user", "content": "a summary"}, *carried])
        assert read_feed_texts(db, cursor) == ["a summary"]


@pytest.mark.schemas(16, 30)
def test_feed_reports_early_compacted_messages_once(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    cursor = db.read_changes().cursor
    for text in ("one", "two"):
        db.append_message("s", "user", text)
    with require_column(db, "compacted"):
        db.archive_and_compact("s", db.get_messages_as_conversation("s")[1:])
        assert read_feed_texts(db, cursor) == ["one", "two"]


def test_feed_omits_copies_carried_by_continuation(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    for text in ("old", "tail"):
        db.append_message("s", "user", text)
    cursor = db.read_changes().cursor
    carried = db.get_messages_as_conversation("s")[1:]
    db.end_session("s", "compression")
    db.create_session("t", "cli", parent_session_id="s")
    db.append_messages("t", [{"role": "user", "content": "a summary"}, *carried])
    db.append_message("t", "user", "new")
    assert read_feed_texts(db, cursor) == ["a summary", "new"]


def test_feed_reports_repeated_text(db: StateDatabase) -> None:
    db.append_message("s", "user", "yes", create={"source": "cli"})
    cursor = db.read_changes().cursor
    db.append_message("s", "user", "yes")
    assert read_feed_texts(db, cursor) == ["yes"]


def test_feed_reports_messages_copied_to_branch(db: StateDatabase) -> None:
    db.append_message("s", "user", "shared", timestamp=5.0, create={"source": "cli"})
    cursor = db.read_changes().cursor
    db.end_session("s", "branched")
    db.create_session("b", "cli", parent_session_id="s")
    db.append_message("b", "user", "shared", timestamp=5.0)
    assert read_feed_texts(db, cursor) == ["shared"]


def test_feed_text_is_decoded_and_shortened(db: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    db.create_session("s", "cli")
    db.append_message("s", "user", [{"type": "text", "text": "seen"}, {"type": "image_url"}])
    db.append_message("s", "user", "é" * 600)
    db.append_message("s", "assistant", None)
    assert read_feed_texts(db, cursor) == ["seen", "é" * 500, None]


def test_feed_filters_by_session(db: StateDatabase) -> None:
    cursor = db.read_changes(session="s").cursor
    for name in ("other", "s"):
        db.create_session(name, "cli")
        db.append_message(name, "user", name)
        db.end_session(name, "done")
    expected = [("session_started", "s", None), ("message", "s", "s"), ("session_ended", "s", None)]
    page = db.read_changes(cursor, session="s")
    assert list_events(page.events) == list_events(db.read_changes(cursor).events) == expected
    assert db.read_changes(page.cursor).events == []


def test_feed_finds_message_among_thousands(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.create_session("other", "cli")
    cursor = db.read_changes(session="s").cursor
    db.append_messages("other", [{"role": "user", "content": "x"}] * 2000)
    db.append_message("s", "user", "mine")
    assert read_feed_texts(db, cursor, limit=1) == ["mine"]


def test_feed_reports_second_end_of_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    cursor = db.read_changes().cursor
    db.end_session("s", "first")
    cursor, first = (page := db.read_changes(cursor)).cursor, page.events
    db.reopen_session("s")
    db.end_session("s", "second")
    page = db.read_changes(cursor)
    assert [event.reason for event in first + page.events] == ["first", "second"]
    assert db.read_changes(page.cursor).events == []


def test_feed_reports_end_committed_late(db: StateDatabase, foreign: ForeignWriter) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    cursor = db.read_changes().cursor
    foreign.update_rows("sessions", {"id": "a"}, ended_at=time.time() + 1, end_reason="x")
    page = db.read_changes(cursor)
    assert [event.session_id for event in page.events] == ["a"]
    foreign.update_rows("sessions", {"id": "b"}, ended_at=time.time() + 0.5, end_reason="x")
    page = db.read_changes(page.cursor)
    assert [event.session_id for event in page.events] == ["b"]
    assert db.read_changes(page.cursor).events == []


def test_feed_reports_end_after_first_cursor(db: StateDatabase, foreign: ForeignWriter) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    everything, one = db.read_changes().cursor, db.read_changes(session="a").cursor
    # It waited so long for the lock.
    foreign.update_rows("sessions", {}, ended_at=time.time() - 30)
    assert [event.session_id for event in db.read_changes(everything).events] == ["a", "b"]
    assert [event.session_id for event in db.read_changes(one).events] == ["a"]


@pytest.mark.costly
@pytest.mark.parametrize("at", [-1.0, 1e9])
def test_feed_omits_ends_before_first_cursor(
    db: StateDatabase, foreign: ForeignWriter, at: float
) -> None:
    with db.transaction():
        for number in range(900):
            db.create_session(f"s{number}", "cli")
    foreign.update_rows("sessions", {}, ended_at=time.time() + at)
    cursor = db.read_changes().cursor
    db.append_message("s5", "user", "x")
    page = db.read_changes(cursor)
    assert list_events(page.events) == [("message", "s5", "x")]


def test_feed_handles_end_in_future(db: StateDatabase, foreign: ForeignWriter) -> None:
    for name in ("a", "b"):
        db.create_session(name, "cli")
    cursor = db.read_changes().cursor
    foreign.update_rows("sessions", {"id": "a"}, ended_at=9e9)
    page = db.read_changes(cursor)
    db.end_session("b", "done")
    following = db.read_changes(page.cursor)
    assert [event.session_id for event in page.events + following.events] == ["a", "b"]


@pytest.mark.costly
def test_feed_reports_simultaneous_ends_once(db: StateDatabase, foreign: ForeignWriter) -> None:
    with db.transaction():
        for number in range(900):
            db.create_session(f"s{number:03}", "cli")
    cursor = db.read_changes().cursor
    foreign.update_rows("sessions", {}, ended_at=time.time() + 1)
    seen: list[str] = []
    while page := (changes := db.read_changes(cursor, limit=200)).events:
        seen += [event.session_id for event in page]
        cursor = changes.cursor
    assert seen == [f"s{number:03}" for number in range(900)]


def test_feed_has_no_gap_after_deleted_message(db: StateDatabase, foreign: ForeignWriter) -> None:
    for text in ("one", "two"):
        db.append_message("s", "user", text, create={"source": "cli"})
    cursor = db.read_changes().cursor
    foreign.delete_rows("messages", {"content": "two"})
    db.append_message("s", "user", "three")
    page = db.read_changes(cursor)
    assert ([event.text for event in page.events], page.gap) == (["three"], False)


def test_feed_ignores_deleted_session(db: StateDatabase) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
    cursor = db.read_changes().cursor
    db.delete_sessions(["b", "c"])
    db.create_session("d", "cli")
    assert list_events(db.read_changes(cursor).events) == [("session_started", "d", None)]


def test_feed_survives_deletion_of_every_session(db: StateDatabase) -> None:
    names = [f"s{number}" for number in range(10)]
    for name in names:
        db.create_session(name, "cli")
    cursor = db.read_changes().cursor
    db.delete_sessions(names)
    db.append_message("new", "user", "here", create={"source": "cli"})
    page = db.read_changes(cursor)
    assert [event.text for event in page.events if event.type == "message"] == ["here"]
    assert page.gap or ("session_started", "new", None) in list_events(page.events)


@pytest.mark.needs("restored files")
def test_feed_reports_gap_for_future_cursor(db: StateDatabase, foreign: ForeignWriter) -> None:
    for text in ("one", "two", "three"):
        db.append_message("s", "user", text, create={"source": "cli"})
    cursor = db.read_changes().cursor
    for text in ("two", "three"):
        foreign.delete_rows("messages", {"content": text})
    foreign.reset_message_ids(1)
    page = db.read_changes(cursor)
    assert (page.events, page.gap) == ([], True)
    db.append_message("s", "user", "other two")
    following = db.read_changes(page.cursor)
    assert ([event.text for event in following.events], following.gap) == (["other two"], False)


@pytest.mark.needs("restored files")
def test_feed_reports_gap_for_reused_ids(db: StateDatabase, foreign: ForeignWriter) -> None:
    for text in ("one", "two"):
        db.append_message("s", "user", text, create={"source": "cli"})
    cursor = db.read_changes().cursor
    foreign.update_rows("messages", {"content": "two"}, timestamp=5)
    assert db.read_changes(cursor).gap


def test_feed_has_no_gap_after_flag_change(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.append_message("s", "user", "one", create={"source": "cli"})
    cursor = db.read_changes().cursor
    foreign.update_rows("messages", {}, active=0, token_count=5)
    assert not db.read_changes(cursor).gap


@pytest.mark.parametrize("cursor", ["", "x", "WyJ4IiwgMV0", "é", "A" * 20_000])
def test_feed_rejects_malformed_cursor(db: StateDatabase, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        db.read_changes(cursor)


def test_feed_rejects_list_cursor(db: StateDatabase) -> None:
    with db.transaction():
        for name in ("a", "b"):
            db.append_message(name, "user", "x", create={"source": "cli"})
    cursor = db.list_sessions(limit=1).next_cursor
    assert cursor is not None
    with pytest.raises(InvalidInput):
        db.read_changes(cursor)


def test_feed_rejects_cursor_of_different_session(db: StateDatabase) -> None:
    cursor = db.read_changes(session="a").cursor
    with pytest.raises(InvalidInput):
        db.read_changes(cursor, session="b")


def test_feed_rejects_limit_below_minimum(db: StateDatabase) -> None:
    with pytest.raises(InvalidInput):
        db.read_changes(limit=0)


def test_feed_wait_times_out_without_change(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    cursor = db.read_changes().cursor
    assert db.read_changes(cursor, timeout_s=0.06).events == []


@pytest.mark.requirement("feed:waiting")
def test_feed_wait_sees_earlier_commit(db: StateDatabase, other: StateDatabase) -> None:
    db.create_session("s", "cli")
    cursor = db.read_changes().cursor
    other.append_message("s", "user", "meanwhile")
    page = db.read_changes(cursor, timeout_s=20)
    assert [event.text for event in page.events] == ["meanwhile"]
    assert db.read_changes(page.cursor).events == []


@pytest.mark.requirement("feed:waiting")
def test_feed_wait_sees_commit_of_different_thread(db: StateDatabase, other: StateDatabase) -> None:
    db.create_session("s", "cli")
    first, second = db.read_changes().cursor, db.read_changes(session="s").cursor
    other.append_message("s", "user", "for both")
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(db.read_changes, first).result()
    for found in (heard, db.read_changes(second, timeout_s=20)):
        assert [event.text for event in found.events] == ["for both"]


@pytest.mark.requirement("feed:waiting")
@pytest.mark.parametrize("writer", ["other", "db"])
def test_feed_wait_ends_with_any_commit(
    db: StateDatabase, other: StateDatabase, writer: str
) -> None:
    db.create_session("s", "cli")
    ready, heard = _Looks(), []

    def wait() -> None:
        heard.extend(db.read_changes(timeout_s=20, stop=ready).events)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert ready.looked.wait(5)
    {"other": other, "db": db}[writer].append_message("s", "user", "now")
    waiting.join(20)
    assert [event.text for event in heard] == ["now"]


def test_feed_wait_ignores_unrelated_commit(db: StateDatabase, other: StateDatabase) -> None:
    for name in ("s", "t"):
        db.create_session(name, "cli")
    ready, heard = _Looks(), []
    cursor = db.read_changes(session="s").cursor

    def wait() -> None:
        heard.extend(db.read_changes(cursor, timeout_s=20, stop=ready).events)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert ready.looked.wait(5)
    other.append_message("t", "user", "elsewhere")
    ready.looked.clear()
    assert ready.looked.wait(5)
    other.append_message("s", "user", "here")
    waiting.join(20)
    assert [event.text for event in heard] == ["here"]


def test_feed_wait_stops_on_signal(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    stop = threading.Event()
    stop.set()
    page = db.read_changes(timeout_s=float("inf"), stop=stop)
    assert (page.events, page.gap) == ([], False)


def test_feed_wait_sees_first_message_of_home(db: StateDatabase, other: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    assert db.read_changes(cursor).events == []
    other.append_message("s", "user", "first", create={"source": "cli"})
    page = db.read_changes(cursor, timeout_s=20)
    assert [event.text for event in page.events if event.type == "message"] == ["first"]


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_feed_rejects_invalid_timeout(db: StateDatabase, timeout: float) -> None:
    with pytest.raises(InvalidInput, match="timeout_s"):
        db.read_changes(timeout_s=timeout)


def test_feed_wait_inside_transaction_is_refused(db: StateDatabase) -> None:
    with db.transaction():
        db.create_session("s", "cli")
        with pytest.raises(InvalidInput, match="transaction"):
            db.read_changes(timeout_s=1)


@pytest.mark.anyio
async def test_hundred_waiting_coroutines_block_no_caller(
    db: StateDatabase, other: StateDatabase
) -> None:
    face = AsyncSessionDB(db)
    await face.create_session("s", "cli")
    cursor = (await face.read_changes()).cursor
    heard: list[str | None] = []

    async def wait() -> None:
        changes = await face.read_changes(cursor, timeout_s=30)
        heard.extend(event.text for event in changes.events)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(wait)
        await face.append_message("s", "user", "all of you")
    assert heard == ["all of you"] * 100


@pytest.mark.anyio
async def test_waiting_coroutine_is_cancelled_immediately(db: StateDatabase) -> None:
    face = AsyncSessionDB(db)
    with anyio.move_on_after(0.1) as scope:
        await face.read_changes(timeout_s=float("inf"))
    assert scope.cancelled_caught


class _Looks(threading.Event):
    """A stop signal that is never set and records when the caller has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.looked.set()
        return super().wait(timeout)


@pytest.mark.parametrize("same", [False, True])
def test_feed_survives_newest_session_stored_again(db: StateDatabase, same: bool) -> None:
    for number in range(1, 6):
        db.create_session(f"s{number}", "cli", started_at=float(number))
    cursor = db.read_changes().cursor
    db.delete_session("s5")
    db.create_session("s6", "cli")
    db.create_session("s5", "cli", started_at=5.0 if same else 9.0)
    page = db.read_changes(cursor)
    assert ("session_started", "s6", None) in list_events(page.events)
    assert not page.gap


def test_feed_reports_new_session_with_reused_id(db: StateDatabase) -> None:
    for number in range(1, 6):
        db.create_session(f"s{number}", "cli", started_at=float(number))
    cursor = db.read_changes().cursor
    db.delete_session("s5")
    db.create_session("s5", "cli", started_at=9.0)
    assert list_events(db.read_changes(cursor).events) == [("session_started", "s5", None)]


def test_feed_misses_nothing_after_newest_sessions_deleted(
    db: StateDatabase,
) -> None:
    names = [f"s{number}" for number in range(10)]
    for name in names:
        db.create_session(name, "cli")
    cursor = db.read_changes().cursor
    db.delete_sessions(names[-4:])
    db.create_session("new", "cli")
    page = db.read_changes(cursor)
    started = [] if page.gap else [("session_started", "new", None)]
    assert list_events(page.events) == started
    db.create_session("newer", "cli")
    assert list_events(db.read_changes(page.cursor).events) == [("session_started", "newer", None)]
