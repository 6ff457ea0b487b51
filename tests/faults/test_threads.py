"""Threads, interrupts, forks and closes in the middle: no wait without end, nothing done twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_core import _sqlite3
from session_core.errors import Busy, InvalidInput, SessionError, StorageError, Unsupported
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import state, template
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

WAIT_S = 20.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    template.build_home(path, "own")
    return path


@pytest.fixture
def db(home: Path) -> Iterator[SessionDB]:
    with SessionDB(home / "state.db") as opened:
        yield opened


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_first_write_is_visible_to_earlier_readers(tmp_path):
    with SessionDB(tmp_path / "new" / "state.db") as db:
        assert db.get_messages("chat") == []

        db.append_message("chat", "user", "hello", create={"source": "cli"})

        assert [row["content"] for row in db.get_messages("chat")] == ["hello"]


def test_replaced_database_file_is_reopened(home):
    with SessionDB(home / "state.db") as db, SessionDB(home / "other.db") as other:
        db.set_meta("whose", "the old one")
        assert db.get_meta("whose") == "the old one"
        other.set_meta("whose", "the new one")
        for end in ("", "-wal", "-shm"):
            (home / f"other.db{end}").replace(home / f"state.db{end}")

        assert db.get_meta("whose") == "the new one"
        with pytest.raises(StorageError, match="open it again"):
            db.set_meta("lost", "in a file without a name")


def test_deleted_database_is_not_read_as_empty(db, home):
    assert db.get_messages("chat")
    (home / "state.db").unlink()
    with pytest.raises(StorageError, match="is gone"):
        db.get_messages("chat")


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt, also in a process that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.requirement("faults:threads")
@pytest.mark.usefixtures("interrupts")
def test_interrupted_waiting_caller_stops_no_caller(db, pool):
    with _hold_transaction(db, pool):
        main = threading.get_ident()
        pool.submit(_run_when_queued, db, 1, lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            db.set_meta("interrupted", "yes")
    assert db.get_meta("interrupted") is None

    pool.submit(db.set_meta, "next", "yes").result(timeout=WAIT_S)

    assert db.get_meta("next") == "yes"


def test_interrupted_step_is_rolled_back(db):
    def interrupted(handle) -> None:
        handle.execute_update("DELETE FROM messages")
        raise KeyboardInterrupt

    before = len(db.get_messages("chat"))
    with pytest.raises(KeyboardInterrupt):
        db._write(interrupted)

    assert len(db.get_messages("chat")) == before
    db.set_meta("next", "yes")


def test_callers_sharing_interrupted_commit_lose_no_write(db, pool):
    def interrupted(_handle) -> None:
        raise KeyboardInterrupt

    with _hold_transaction(db, pool):
        first = pool.submit(db._write, interrupted)
        _wait_until_queued(db, 1)
        second = pool.submit(db.set_meta, "second", "yes")
        _wait_until_queued(db, 2)
    assert isinstance(first.exception(timeout=WAIT_S), KeyboardInterrupt)
    assert second.exception(timeout=WAIT_S) is None
    assert db.get_meta("second") == "yes"


def test_signal_error_reaches_only_main_thread(db, pool):
    main = threading.get_ident()

    def ring(*_: object) -> None:
        raise TimeoutError

    def step(handle) -> None:
        if threading.get_ident() == main:
            signal.raise_signal(signal.SIGUSR1)
        handle.execute_update("INSERT INTO state_meta VALUES ('theirs', 'yes')")

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with _hold_transaction(db, pool) as let_go:
            theirs = pool.submit(_run_when_queued, db, 1, lambda: db._write(step))
            pool.submit(_run_when_queued, db, 2, let_go)
            db.set_meta("mine", "yes")
        theirs.result(timeout=WAIT_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (db.get_meta("mine"), db.get_meta("theirs")) == ("yes", "yes")


def test_signal_handler_can_write_during_waiting_call(db, pool):
    outcomes = []

    def write(*_: object) -> None:
        try:
            outcomes.append(db.set_meta("from the handler", "yes"))
        except Busy as error:
            outcomes.append(error)

    before = signal.signal(signal.SIGUSR1, write)
    try:
        with _hold_transaction(db, pool) as let_go:
            main = threading.get_ident()
            pool.submit(_run_when_queued, db, 1, lambda: signal.pthread_kill(main, signal.SIGUSR1))
            pool.submit(_run_when_queued, db, 2, let_go)
            db.set_meta("interrupted", "yes")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert outcomes == [None]
    assert (db.get_meta("from the handler"), db.get_meta("interrupted")) == ("yes", "yes")


def test_transaction_of_ended_thread_is_released(db):
    kept = []

    def begin() -> None:
        kept.append(db.transaction())
        kept[0].__enter__()
        db.set_meta("lost", "yes")

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join(WAIT_S)
    db.set_meta("next", "yes")
    assert (db.get_meta("lost"), db.get_meta("next")) == (None, "yes")


def test_change_after_sqlite_rollback_is_refused(db):
    transaction = db.transaction()
    transaction.__enter__()
    db.set_meta("first", "yes")
    db._store.pool.writer.current.connection.execute("ROLLBACK")  # as on a full disk
    with pytest.raises(StorageError, match="rolled back"):
        db.set_meta("second", "yes")
    with pytest.raises(StorageError):
        transaction.__exit__(None, None, None)
    assert (db.get_meta("first"), db.get_meta("second")) == (None, None)


def test_error_after_begin_leaves_no_transaction(db, monkeypatch):
    db.set_meta("opened", "yes")
    handle = db._store.pool.writer._handle

    def broken() -> None:
        raise _sqlite3.load_library().OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(handle, "forget_if_changed", broken)
        with pytest.raises(StorageError):
            db.set_meta("refused", "yes")
    db.set_meta("next", "yes")
    assert (db.get_meta("refused"), db.get_meta("next")) == (None, "yes")


def test_close_waits_for_running_write(home, pool):
    db = SessionDB(home / "state.db")
    with _hold_transaction(db, pool):
        waiting = pool.submit(db.set_meta, "queued before", "yes")
        _wait_until_queued(db, 1)
        closing = pool.submit(db.close)
        _wait_until_queued(db, 2)
    closing.result(timeout=WAIT_S)
    assert waiting.result(timeout=WAIT_S) is None
    with pytest.raises(InvalidInput, match="closed"):
        db.set_meta("later", "yes")
    with SessionDB(home / "state.db", read_only=True) as reader:
        assert reader.get_meta("queued before") == "yes"


def test_write_after_close_opens_no_unguarded_connection(home):
    db = SessionDB(home / "state.db")
    db.set_meta("opened", "yes")
    writer = db._store.pool.writer
    db.close()
    with pytest.raises(InvalidInput, match="closed"):
        writer.run_in_transaction(lambda handle: handle.fetch_value("SELECT 1"))
    assert writer._handle is None


def test_writers_during_close_get_answer_or_error(home, pool):
    db = SessionDB(home / "state.db")
    started = threading.Barrier(5)
    futures = [pool.submit(_append_until_closed, db, started) for _ in range(4)]
    started.wait(WAIT_S)
    while not any(_count_messages(home)):
        pass
    db.close()
    acknowledged = {number for future in futures for number in future.result(timeout=WAIT_S)}
    with state.open_connection(home / "state.db") as reader:
        rows = reader.execute("SELECT id FROM messages WHERE content = 'until closed'")
        assert {number for (number,) in rows} == acknowledged


def test_close_inside_transaction_is_refused(db):
    with db.transaction():
        db.set_meta("inside", "yes")
        with pytest.raises(InvalidInput, match="transaction"):
            db.close()
    assert db.get_meta("inside") == "yes"


def test_nested_public_call_joins_transaction(db):
    def step(_handle) -> list[str | None]:
        db.set_meta("nested", "yes")
        return [db.get_meta("nested")]

    assert db._write(step) == ["yes"]


def test_forked_child_ignores_connections_of_parent(home):
    with ChildProcess("forker", home / "state.db") as process:
        assert process.read_line() == Unsupported.__name__
        assert process.read_line() == "child ended with 0"
        assert process.read_line() == "parent wrote"
        assert process.end() == 0
    assert state.find_damage(home) == []


@pytest.mark.parametrize("kind", ["own", "hermes"])
def test_short_lived_connections_bound_log_size(tmp_path, kind):
    home = tmp_path / kind
    template.build_home(home, kind)
    big = "needle " * 40_000
    sizes = []
    for _ in range(40):
        with SessionDB(home / "state.db") as db:
            db.append_message("chat", "user", big)
        sizes.append((home / "state.db-wal").stat().st_size)
    assert max(sizes) < 12 << 20


def test_dropped_instance_leaves_no_file_open(home):
    def use() -> None:
        db = SessionDB(home / "state.db")
        db.append_message("chat", "user", "hello")
        db.read_changes(timeout_s=0.001)

    use()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        use()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _append_until_closed(db: SessionDB, started: threading.Barrier) -> list[int]:
    started.wait(WAIT_S)
    added = []
    while True:
        try:
            added.append(int(db.append_message("chat", "user", "until closed")))
        except SessionError:
            return added


def _count_messages(home: Path) -> tuple[int, ...]:
    with state.open_connection(home / "state.db") as reader:
        sql = "SELECT count(*) FROM messages WHERE content = 'until closed'"
        return tuple(reader.execute(sql).fetchone())


@contextmanager
def _hold_transaction(db: SessionDB, pool: ThreadPoolExecutor) -> Iterator[Callable[[], None]]:
    """Hold a transaction in another thread, so that writers queue up."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction():
            begun.set()
            over.wait(WAIT_S)

    holding: Future[None] = pool.submit(hold)
    assert begun.wait(WAIT_S)
    try:
        yield over.set
    finally:
        over.set()
        holding.result(timeout=WAIT_S)


def _run_when_queued(db: SessionDB, count: int, then: Callable[[], object]) -> None:
    _wait_until_queued(db, count)
    then()


def _wait_until_queued(db: SessionDB, count: int) -> None:
    pause = threading.Event()
    for _ in range(4000):
        if len(db._store.pool.writer._queue.queue) >= count:
            return
        pause.wait(0.005)
    raise AssertionError("the threads do not queue up")
