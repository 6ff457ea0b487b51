"""A snapshot: all reads of one task see one moment, and nothing else is affected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from session_core import AsyncSessionDB, InvalidInput, SessionFilter, StateDatabase


def list_texts(db: StateDatabase) -> list[Any]:
    return [row["content"] for row in db.get_messages("s")]


@pytest.fixture(autouse=True)
def _filled(db: StateDatabase) -> None:
    db.append_message("s", "user", "first", create={"source": "cli"})


@pytest.mark.requirement("transactions:snapshot")
def test_snapshot_reads_see_one_moment(db: StateDatabase, other: StateDatabase) -> None:
    with db.snapshot():
        before = db.get_revision("s")
        other.append_message("s", "user", "second needle")
        other.set_session_title("s", "Later")
        other.create_session("new", "cli")
        assert (db.get_revision("s"), list_texts(db)) == (before, ["first"])
        assert db.get_session_title("s") is None
        assert db.search("needle").hits == []
        assert db.find_sessions(SessionFilter()) == ["s"]
        assert [item.id for item in db.admin.list_inventory()] == ["s"]
        assert [image.table for image in db.rows.read_session_images("new")] == []
    assert list_texts(db) == ["first", "second needle"]
    assert len(db.search("needle").hits) == 1


@pytest.mark.requirement("transactions:snapshot")
def test_snapshot_begins_at_entry(db: StateDatabase, other: StateDatabase) -> None:
    with db.snapshot():
        other.append_message("s", "user", "second")
        assert list_texts(db) == ["first"]


def test_nested_snapshot_joins_outer_one(db: StateDatabase, other: StateDatabase) -> None:
    with db.snapshot():
        other.append_message("s", "user", "second")
        with db.snapshot():
            assert list_texts(db) == ["first"]
        other.append_message("s", "user", "third")
        assert list_texts(db) == ["first"]
    assert list_texts(db) == ["first", "second", "third"]


def test_snapshot_in_transaction_sees_its_changes(db: StateDatabase) -> None:
    with db.transaction(), db.snapshot():
        db.append_message("s", "user", "second")
        assert list_texts(db) == ["first", "second"]
    assert list_texts(db) == ["first", "second"]


@pytest.mark.requirement("transactions:snapshot")
def test_change_in_snapshot_is_refused(db: StateDatabase) -> None:
    with db.snapshot():
        with pytest.raises(InvalidInput, match="snapshot"):
            db.append_message("s", "user", "second")
        with pytest.raises(InvalidInput, match="snapshot"), db.transaction():
            raise AssertionError
        with pytest.raises(InvalidInput, match="snapshot"):
            db.admin.vacuum()
        assert list_texts(db) == ["first"]
    db.append_message("s", "user", "second")
    assert list_texts(db) == ["first", "second"]


def test_close_in_snapshot_is_refused(db: StateDatabase) -> None:
    with db.snapshot():
        with pytest.raises(InvalidInput, match="snapshot"):
            db.close()
        assert list_texts(db) == ["first"]


def test_error_in_snapshot_ends_it(db: StateDatabase, other: StateDatabase) -> None:
    with pytest.raises(KeyError), db.snapshot():
        raise KeyError
    other.append_message("s", "user", "second")
    assert list_texts(db) == ["first", "second"]
    db.append_message("s", "user", "third")


@pytest.mark.requirement("transactions:snapshot")
def test_snapshot_leaves_other_threads_alone(db: StateDatabase) -> None:
    with ThreadPoolExecutor(1) as pool, db.snapshot():
        pool.submit(db.append_message, "s", "user", "second").result()
        assert pool.submit(list_texts, db).result() == ["first", "second"]
        assert list_texts(db) == ["first"]


def test_snapshots_of_two_threads_differ(db: StateDatabase, other: StateDatabase) -> None:
    def read_later() -> list[Any]:
        with db.snapshot():
            return list_texts(db)

    with ThreadPoolExecutor(1) as pool, db.snapshot():
        other.append_message("s", "user", "second")
        assert pool.submit(read_later).result() == ["first", "second"]
        assert list_texts(db) == ["first"]


@pytest.mark.anyio
@pytest.mark.requirement("transactions:snapshot")
async def test_snapshot_leaves_other_tasks_alone(db: StateDatabase) -> None:
    opened, leave = anyio.Event(), anyio.Event()

    async def hold() -> None:
        with db.snapshot():
            opened.set()
            await leave.wait()
            assert list_texts(db) == ["first"]

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await opened.wait()
        db.append_message("s", "user", "second")
        assert list_texts(db) == ["first", "second"]
        leave.set()


@pytest.mark.anyio
async def test_snapshot_in_function_serves_coroutines(db: StateDatabase) -> None:
    def read_twice(inner: StateDatabase) -> tuple[list[Any], list[Any]]:
        with inner.snapshot():
            before = list_texts(inner)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(inner.append_message, "s", "user", "second").result()
            return before, list_texts(inner)

    assert await AsyncSessionDB(db).run(read_twice) == (["first"], ["first"])


@pytest.mark.requirement("transactions:snapshot")
def test_feed_in_snapshot_loses_no_event(db: StateDatabase, other: StateDatabase) -> None:
    cursor = db.read_changes().cursor
    with db.snapshot():
        other.append_message("s", "user", "second")
        other.end_session("s", "cli_close")
        page = db.read_changes(cursor)
        assert page.events == []
        started = db.read_changes()
        assert started.events == []
    for held in (cursor, page.cursor, started.cursor):
        types = [event.type for event in db.read_changes(held).events]
        assert types == ["message", "session_ended"], held


def test_feed_in_snapshot_does_not_wait(db: StateDatabase) -> None:
    with db.snapshot(), pytest.raises(InvalidInput, match="snapshot"):
        db.read_changes(timeout_s=0.1)
