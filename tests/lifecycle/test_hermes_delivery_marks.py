"""Stored marks of delivered ends for a Hermes home: damaged, denied, moved or shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, ExpiryWatcher, StorageError
from session_core.ledger.hermes_delivery_marks import PersistentMarks
from tests.homes import connect, make_hermes_database
from tests.lifecycle.runtimes import IDLE, Gate, World, beside, of
from tests.routing.chats import KEY, file_entries

Start = Callable[[], World]


@pytest.fixture(params=["own", "hermes"])
def start(request: pytest.FixtureRequest, home_path: Path) -> Iterator[Start]:
    """Start a process with a runtime on a home."""
    if request.param == "hermes":
        make_hermes_database(home_path / "state.db")
    yield from make_starter(home_path)


@pytest.fixture
def start_hermes(home_path: Path) -> Iterator[Start]:
    """Start a process with a runtime on a Hermes home."""
    make_hermes_database(home_path / "state.db")
    yield from make_starter(home_path)


def make_starter(home: Path) -> Iterator[Start]:
    started: list[World] = []

    def start() -> World:
        started.append(World(home, config=IDLE))
        return started[-1]

    yield start
    for world in started:
        world.close()


def tick(world: World) -> list[str]:
    return ExpiryWatcher(world.runtime, report=lambda what, _: world.reported.append(what)).tick()


def list_finalized(*worlds: World) -> list[str]:
    """Return the sessions with a reported end."""
    return [session_id for world in worlds for _, session_id in world.names("finalize")]


def kept(world: World) -> PersistentMarks:
    marks = world.store.marks
    assert isinstance(marks, PersistentMarks)
    return marks


def raise_busy(*_: Any, **__: Any) -> Any:
    raise Busy("the write lock is held")


# Each end once


@pytest.mark.requirement("runtime:told-once")
@pytest.mark.parametrize("then", ["a tick", "a message", "a close", "a reset"])
def test_shutdown_end_is_not_delivered_after_restart(start: Start, then: str) -> None:
    first = start()
    session_id = first.say().session_id
    first.agent = gate = Gate()
    with beside(first.say):
        gate.entered.wait(30)
        first.runtime.shutdown()
        gate.opened.set()
    second = start()
    second.clock.advance(hours=2)
    ways: dict[str, Callable[[], Any]] = {
        "a tick": lambda: tick(second),
        "a message": second.say,
        "a close": lambda: second.runtime.finalize(KEY),
        "a reset": lambda: second.runtime.reset(KEY),
    }
    ways[then]()
    assert list_finalized(first) == [session_id]
    assert session_id not in list_finalized(second) or then == "a tick"
    assert list_finalized(second) == []


@pytest.mark.requirement("runtime:told-once")
@pytest.mark.parametrize("by", ["reset", "finalize"])
def test_close_beaten_by_other_process_calls_nothing(
    start: Start, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = start(), start()
    session_id = one.say().session_id
    look, others = one.db.get_session, iter([1])

    def get_session(session_id: str) -> Any:
        row = look(session_id)
        for _ in others:
            getattr(other.runtime, by)(KEY)
        return row

    monkeypatch.setattr(one.db, "get_session", get_session)
    one.runtime.finalize(KEY)
    assert (list_finalized(one), list_finalized(other)) == ([], [session_id])


@pytest.mark.requirement("runtime:told-once")
def test_delivered_end_is_known_after_home_move(
    start: Start, home_path: Path, tmp_path: Path
) -> None:
    first = start()
    first.say()
    first.clock.advance(hours=2)
    assert len(tick(first)) == 1
    first.close()
    home_path.rename(tmp_path / "moved")
    second = World(tmp_path / "moved", config=IDLE)
    second.clock.advance(hours=2)
    assert tick(second) == []
    second.close()


@pytest.mark.requirement("runtime:told-once")
def test_closed_session_finalizes_once_despite_late_write(
    start_hermes: Start,
) -> None:
    world = start_hermes()
    session_id = world.say().session_id
    world.runtime.finalize(KEY)
    world.clock.advance(seconds=5)
    world.store.update_session(KEY)
    entry = world.store.get(KEY)
    assert entry is not None
    assert world.store.is_end_delivered(entry)
    world.runtime.reset(KEY)
    assert list_finalized(world) == [session_id]


def test_eight_chats_sharing_session_have_separate_marks(start_hermes: Start) -> None:
    world = start_hermes()
    session_id = world.say().session_id
    chats = range(43, 51)
    for chat_id in chats:
        world.clock.advance(seconds=1)
        world.say(chat_id=chat_id)
        entry = world.store.get(of(chat_id))
        assert entry is not None
        entry.session_id = session_id
        world.store.save(entry)
    for chat_id in (42, *chats):
        world.store.set_end_delivered(of(chat_id), session_id)
    delivered = [world.store.is_end_delivered(entry) for entry in world.store.list_sessions()]
    assert delivered == [True] * 8 + [False]  # the one that was used last first


# Failures


@pytest.mark.requirement("runtime:marks")
@pytest.mark.parametrize(
    "noted", ["x", "[]", "null", '{"told": 3}', '{"told": null}', '{"told": [3]}']
)
def test_unreadable_mark_is_ignored_and_rewritten(start_hermes: Start, noted: str) -> None:
    world = start_hermes()
    session_id = world.say().session_id
    world.clock.advance(hours=2)
    tick(world)
    path = kept(world)._find_path()
    assert path is not None
    with connect(path) as connection:
        connection.execute("UPDATE marks SET noted = ?", (noted,))
    other = start_hermes()
    other.clock.advance(hours=2)
    assert tick(other) == [session_id]
    assert tick(other) == tick(world) == []
    assert any("cannot be read" in what for what in other.reported)


def test_damaged_mark_file_is_reported(start_hermes: Start) -> None:
    world = start_hermes()
    world.say()
    world.clock.advance(hours=2)
    tick(world)
    marks = kept(world)
    marks.close()
    path = marks._find_path()
    assert path is not None
    path.write_bytes(b"no database" * 1000)
    errors: list[BaseException] = []
    marks._report = lambda _, error: errors.append(error)  # type: ignore[assignment, arg-type, return-value]
    marks.get("s")
    assert "file of hook deliveries" in str(errors[0])
    assert "trash" not in str(errors[0])


@pytest.mark.requirement("runtime:marks")
def test_failed_mark_does_not_hide_later_marks(
    start_hermes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start_hermes()
    session_id = world.say().session_id
    world.clock.advance(hours=2)
    with monkeypatch.context() as patch:
        patch.setattr(kept(world)._file, "write", raise_busy)
        assert tick(world) == [session_id]
    other = start_hermes()
    other.clock.advance(hours=2)
    assert tick(world) == []
    assert world.store.set_end_delivered(KEY, session_id) is False
    entry = other.store.get(KEY)
    assert entry is not None
    assert world.store.is_end_delivered(entry)


@pytest.mark.requirement("runtime:marks")
def test_unwritten_mark_is_saved_with_next_mark(
    start_hermes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = kept(start_hermes())
    with monkeypatch.context() as patch:
        patch.setattr(marks._file, "write", raise_busy)
        marks.change("s", lambda noted: {**noted, "told": ["a"]})
    assert marks.get("s") == {"told": ["a"]}
    marks.change("s", lambda noted: {**noted, "told": [*noted["told"], "b"]})
    other = kept(start_hermes())
    assert other.get("s") == {"told": ["a", "b"]}
    other.change("s", lambda _: {"told": ["c"]})
    assert marks.get("s") == {"told": ["c"]}


def test_marks_in_memory_are_forgotten_with_stored(
    start_hermes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = kept(start_hermes())
    monkeypatch.setattr(marks._file, "write", raise_busy)
    for session_id in ("gone", "other", "kept"):
        marks.change(session_id, lambda _: {"told": ["a"]})
    marks.forget("gone")
    assert [bool(marks.get(name)) for name in ("gone", "other", "kept")] == [False, True, True]
    marks.keep_only(["kept"])
    assert [bool(marks.get(name)) for name in ("other", "kept")] == [False, True]


@pytest.mark.requirement("runtime:marks")
def test_refused_state_folder_does_not_fail_verbs(
    start_hermes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start_hermes()
    first = world.say().session_id
    world.runtime.reset(KEY)
    second = world.say().session_id

    def denied() -> None:
        raise PermissionError("the folder may not be looked at")

    with monkeypatch.context() as patch:
        patch.setattr(kept(world)._folder, "find", denied)
        patch.setattr(kept(world)._folder, "make", denied)
        world.runtime.switch(KEY, first)
        assert world.store.peek_session_id(KEY) == first
        world.clock.advance(hours=2)
        assert tick(world) == [first]
        world.runtime.finalize(KEY)
        world.runtime.shutdown()
    assert list_finalized(world) == [first, second, first]


@pytest.mark.requirement("runtime:marks")
def test_failure_after_change_does_not_stop_rest(
    start_hermes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start_hermes()
    first = world.say().session_id
    world.runtime.reset(KEY)
    second = world.say().session_id

    def fails(*_: Any) -> None:
        raise StorageError("no disk")

    monkeypatch.setattr(world.store.marks, "forget", fails)
    world.runtime.switch(KEY, first)
    assert file_entries(world.folder)[KEY]["session_id"] == first
    assert world.boundaries[-2:] == [("finalize", second), ("reset", first)]
    assert any("after a route change" in message for message in world.reported)


def test_watcher_forgets_marks_without_chat(start_hermes: Start) -> None:
    world = start_hermes()
    delivered = world.say().session_id
    world.runtime.reset(KEY)
    marks = kept(world)
    marks._clock = lambda: 1e12
    assert marks.get(delivered) != {}
    tick(world)
    assert marks.get(delivered) == {}


@pytest.mark.requirement("runtime:told-once")
def test_reset_skips_end_of_closed_session(
    start: Start,
) -> None:
    world = start()
    session_id = world.say().session_id
    world.runtime.finalize(session_id)
    world.runtime.reset(KEY)
    assert list_finalized(world) == [session_id]
