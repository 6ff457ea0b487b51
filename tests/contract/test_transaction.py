"""Transactions and threads: atomic changes, snapshots for readers, no lost writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    Busy,
    InvalidInput,
    NotFound,
    Revision,
    SessionError,
    SessionFilter,
    StateDatabase,
    TitleTaken,
)
from tests.contract.engines import Engine, ForeignWriter, has_column, roll_back_at_end

Open = Callable[[], StateDatabase]
WRITERS = 8
EACH = 25


def list_texts(db: StateDatabase, session_id: str = "s") -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


def run_concurrently(*steps: Callable[[], Any]) -> list[Any]:
    """Run the steps in a thread each, begun at one moment, and return their results in order."""
    barrier = threading.Barrier(len(steps))

    def run(step: Callable[[], Any]) -> Any:
        barrier.wait(10)
        return step()

    with ThreadPoolExecutor(len(steps)) as pool:
        return [future.result(60) for future in [pool.submit(run, step) for step in steps]]


# -- all or nothing --------------------------------------------------------------------------


def test_transaction_is_visible_after_commit_only(
    db: StateDatabase, other: StateDatabase, reopen: Open
) -> None:
    with db.transaction():
        db.create_session("s", "cli")
        db.append_message("s", "user", "a")
        assert list_texts(db) == ["a"]
        assert other.get_session("s") is None
    assert list_texts(other) == ["a"]
    assert list_texts(reopen()) == ["a"]


@pytest.mark.requirement("transactions:whole")
def test_transaction_error_rolls_back_every_change(db: StateDatabase, other: StateDatabase) -> None:
    db.append_message("s", "user", "a", create={"source": "cli"})
    before = (db.get_session("s"), db.get_revision("s"), db.list_sessions())
    with roll_back_at_end(db):
        db.append_message("s", "user", "b")
        db.rewind_to_message("s", db.get_messages("s")[0]["id"])
        db.set_session_title("s", "Trip")
        db.end_session("s", "x")
        db.create_session("t", "cli")
        db.set_meta("k", "v")
    for instance in (db, other):
        assert (
            instance.get_session("s"),
            instance.get_revision("s"),
            instance.list_sessions(),
        ) == before
        assert (instance.get_session("t"), instance.get_meta("k")) == (None, None)


@pytest.mark.requirement("transactions:whole")
def test_inner_transaction_rolls_back_alone(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with db.transaction():
        db.append_message("s", "user", "a")
        with roll_back_at_end(db):
            db.append_message("s", "user", "b")
            with db.transaction():
                db.append_message("s", "user", "c")
        with db.transaction():
            db.append_message("s", "user", "d")
    assert list_texts(db) == ["a", "d"]


def test_inner_transaction_rolls_back_with_outer(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with roll_back_at_end(db), db.transaction():
        db.append_message("s", "user", "a")
    assert list_texts(db) == []


def test_refused_change_keeps_rest_of_transaction(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.create_session("t", "cli")
    db.set_session_title("t", "Trip")
    with db.transaction():
        db.append_message("s", "user", "a")
        with pytest.raises(NotFound):
            db.append_message("nobody", "user", "x")
        with pytest.raises(NotFound):
            db.create_session("u", "cli", parent_session_id="nobody")
        with pytest.raises(TitleTaken):
            db.set_session_title("s", "Trip")
        with pytest.raises(InvalidInput):
            db.append_messages("s", [{"role": "user", "content": "x"}, {"role": "user", "no": 1}])
        with pytest.raises(InvalidInput):
            db.append_message("s", "user", "x", token_count=2**70)
        db.append_message("s", "user", "b")
    assert list_texts(db) == ["a", "b"]
    row = db.get_session("s")
    assert row is not None
    assert row["message_count"] == 2


@pytest.mark.requirement("transactions:whole")
def test_revisions_are_correct_after_rollback(db: StateDatabase) -> None:
    first = db.append_message("s", "user", "a", create={"source": "cli"}).after
    with roll_back_at_end(db):
        assert db.append_message("s", "user", "b").before == first
    with db.transaction():
        assert db.get_revision("s") == first
        with roll_back_at_end(db):
            db.append_messages("s", [{"role": "user", "content": "c"}] * 3)
        assert db.append_message("s", "user", "d").before == first
    assert db.get_revision("s") == Revision(first.last_id + 1, 2, 0, 0, None)


def test_rolled_back_session_can_be_created(db: StateDatabase) -> None:
    with roll_back_at_end(db):
        db.append_message("s", "user", "a", create={"source": "cli"})
    with pytest.raises(NotFound):
        db.append_message("s", "user", "a")
    appended = db.append_message("s", "user", "a", create={"source": "cli"})
    assert appended.before == Revision(0, 0, 0, 0, None)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, KeyError])
def test_transaction_rolls_back_on_early_exit(
    db: StateDatabase, error: type[BaseException]
) -> None:
    db.create_session("s", "cli")

    def leave() -> None:
        with db.transaction():
            db.append_message("s", "user", "a")
            raise error

    with pytest.raises(error):
        leave()
    assert list_texts(db) == []
    assert db.append_message("s", "user", "b").after.live == 1


def test_transaction_propagates_caller_exception(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    for error in (ValueError("mine"), OverflowError("mine"), UnicodeError("mine")):
        with pytest.raises(type(error), match="mine") as caught, db.transaction():
            raise error
        assert caught.value is error


# -- threads ---------------------------------------------------------------------------------


@pytest.mark.requirement("transactions:threads")
@pytest.mark.parametrize("instances", [1, 2])
def test_concurrent_writers_lose_no_messages(
    db: StateDatabase, other: StateDatabase, instances: int
) -> None:
    db.create_session("s", "cli")
    chains: list[list[Any]] = [[] for _ in range(WRITERS)]

    def write(writer: int) -> None:
        mine = (db, other)[writer % instances]
        for turn in range(EACH):
            calls = [{"id": f"{writer}.{turn}"}]
            chains[writer].append(
                mine.append_message("s", "user", f"{writer}.{turn}", tool_calls=calls)
            )

    run_concurrently(*(lambda writer=writer: write(writer) for writer in range(WRITERS)))
    total = WRITERS * EACH
    assert sorted(list_texts(db)) == sorted(f"{w}.{t}" for w in range(WRITERS) for t in range(EACH))
    row = db.get_session("s")
    assert row is not None
    assert (row["message_count"], row["tool_call_count"]) == (total, total)
    appended = sorted((item for chain in chains for item in chain), key=int)
    assert all(first.after == second.before for first, second in pairwise(appended))
    assert appended[-1].after == db.get_revision("s") == other.get_revision("s")


def test_concurrent_writers_create_own_sessions_lazily(db: StateDatabase) -> None:
    def write(writer: int) -> None:
        for turn in range(EACH):
            db.append_message(f"s{writer}", "user", str(turn), create={"source": "cli"})

    run_concurrently(*(lambda writer=writer: write(writer) for writer in range(WRITERS)))
    for writer in range(WRITERS):
        assert list_texts(db, f"s{writer}") == [str(turn) for turn in range(EACH)]
    assert len(db.find_sessions(SessionFilter(ids=tuple(f"s{n}" for n in range(WRITERS))))) == 8


@pytest.mark.requirement("transactions:threads")
def test_failed_thread_keeps_changes_of_other_threads(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.create_session("t", "cli")
    db.set_session_title("t", "Trip")

    def good(writer: int) -> None:
        for turn in range(EACH):
            db.append_message("s", "user", f"{writer}.{turn}")

    def bad(verb: Callable[[], Any], error: type[SessionError]) -> None:
        for _ in range(EACH):
            with pytest.raises(error):
                verb()

    run_concurrently(
        *(lambda writer=writer: good(writer) for writer in range(4)),
        lambda: bad(lambda: db.append_message("nobody", "user", "x"), NotFound),
        lambda: bad(lambda: db.set_session_title("s", "Trip"), TitleTaken),
        lambda: bad(lambda: db.append_message("s", "user", "x", bogus=1), InvalidInput),
        lambda: bad(lambda: db.create_session("u", "cli", parent_session_id="no"), NotFound),
    )
    assert sorted(list_texts(db)) == sorted(f"{w}.{t}" for w in range(4) for t in range(EACH))
    assert db.get_revision("s").live == 4 * EACH


def test_concurrent_threads_get_unique_title(db: StateDatabase, other: StateDatabase) -> None:
    names = [f"s{number}" for number in range(WRITERS)]
    for name in names:
        db.create_session(name, "cli")

    def claim(name: str, instance: StateDatabase) -> bool:
        try:
            return instance.set_session_title(name, "Trip")
        except TitleTaken:
            return False

    won = run_concurrently(
        *(
            lambda name=name, place=place: claim(name, (db, other)[place % 2])
            for place, name in enumerate(names)
        )
    )
    assert won.count(True) == 1
    assert (db.get_session_by_title("Trip") or {})["id"] == names[won.index(True)]


def test_expected_revision_succeeds_for_single_thread(
    db: StateDatabase, other: StateDatabase
) -> None:
    expected = db.append_message("s", "user", "a", create={"source": "cli"}).after

    def attempt(instance: StateDatabase) -> bool:
        try:
            instance.append_message("s", "user", "b", expect=expected)
        except SessionError:
            return False
        return True

    won = run_concurrently(*(lambda n=n: attempt((db, other)[n % 2]) for n in range(WRITERS)))
    assert won.count(True) == 1
    assert list_texts(db) == ["a", "b"]


def test_transaction_belongs_to_single_thread(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    written, looked = threading.Event(), threading.Event()

    def hold() -> None:
        with roll_back_at_end(db):
            db.append_message("s", "user", "mine")
            written.set()
            assert looked.wait(10)

    def look() -> list[Any]:
        assert written.wait(10)
        texts = list_texts(db)
        looked.set()
        db.append_message("s", "user", "theirs")
        return texts

    assert run_concurrently(hold, look)[1] == []
    assert list_texts(db) == ["theirs"]


def test_waiting_thread_raises_busy_after_timeout(engine: Engine, home_path: Path) -> None:
    impatient = engine(home_path, patience_s=0.2)
    try:
        impatient.create_session("s", "cli")
        with ThreadPoolExecutor(1) as pool, impatient.transaction():
            impatient.append_message("s", "user", "mine")
            with pytest.raises(Busy, match="this process"):
                pool.submit(impatient.append_message, "s", "user", "theirs").result(20)
            with pytest.raises(Busy, match="this process"):
                pool.submit(lambda: impatient.transaction().__enter__()).result(20)
        impatient.append_message("s", "user", "after it")
        assert list_texts(impatient) == ["mine", "after it"]
    finally:
        impatient.close()


@pytest.mark.parametrize("patience", [-1.0, float("nan")])
def test_invalid_lock_timeout_is_rejected(engine: Engine, home_path: Path, patience: float) -> None:
    with pytest.raises(InvalidInput, match="patience_s"):
        engine(home_path, patience_s=patience)


def test_reader_sees_consistent_snapshot(db: StateDatabase, other: StateDatabase) -> None:
    db.create_session("s", "cli")
    done = threading.Event()

    def write() -> None:
        for _ in range(EACH):
            with other.transaction():
                other.append_message("s", "user", "x")
                other.append_message("s", "user", "y")
        done.set()

    def read() -> None:
        while not done.is_set():
            assert len(db.get_messages("s")) % 2 == 0
            assert db.get_revision("s").live % 2 == 0
            assert db.list_sessions().items[0].messages % 2 == 0

    run_concurrently(write, read, read)


# -- closing ---------------------------------------------------------------------------------


@pytest.mark.requirement("transactions:close")
def test_closed_database_raises_error(db: StateDatabase) -> None:
    db.append_message("s", "user", "x", create={"source": "cli"})
    db.close()
    db.close()
    for verb in (
        lambda: db.get_session("s"),
        lambda: db.append_message("s", "user", "x"),
        db.list_sessions,
        lambda: db.kind,
        lambda: db.transaction().__enter__(),
    ):
        with pytest.raises(InvalidInput, match="closed"):
            verb()


def test_close_inside_transaction_is_refused(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with db.transaction():
        db.append_message("s", "user", "x")
        with pytest.raises(InvalidInput):
            db.close()
    assert list_texts(db) == ["x"]


@pytest.mark.requirement("transactions:close")
def test_committed_changes_survive_close(db: StateDatabase, reopen: Open) -> None:
    db.create_session("s", "cli")
    acknowledged: list[int] = []
    begun = threading.Event()

    def write() -> None:
        try:
            while True:
                acknowledged.append(db.append_message("s", "user", "x"))
                begun.set()
        except InvalidInput:
            return

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(write) for _ in range(4)]
        assert begun.wait(10)
        reopened = reopen()
        assert not wait(futures, 10).not_done
    for future in futures:
        future.result()
    stored = [row["id"] for row in reopened.get_messages("s")]
    assert stored == sorted(acknowledged)


def test_unused_database_can_be_closed(db: StateDatabase) -> None:
    db.close()


def test_database_instances_are_independent(db: StateDatabase, other: StateDatabase) -> None:
    db.append_message("s", "user", "x", create={"source": "cli"})
    assert list_texts(other) == ["x"]
    db.close()
    other.append_message("s", "user", "y")
    assert list_texts(other) == ["x", "y"]


FORK = """
import os, sys
from pathlib import Path
from session_core import Unsupported
from tests.contract.engines import ENGINES

engine, home = ENGINES[sys.argv[1]], Path(sys.argv[2])
db = engine(home)
db.append_message("s", "user", "parent", create={"source": "cli"})
child = os.fork()
if child == 0:
    for verb in (lambda: db.get_session("s"), lambda: db.append_message("s", "user", "child")):
        try:
            verb()
        except Unsupported:
            continue
        os._exit(1)
    db.close()
    mine = engine(home)
    mine.append_message("s", "user", "child")
    mine.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
db.append_message("s", "user", "parent again")
print([row["content"] for row in db.get_messages("s")])
"""


@pytest.mark.needs("processes")
@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("transactions:fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_cannot_use_inherited_database(engine: Engine, home_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", FORK, engine.name, str(home_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.stderr, process.stdout) == ("", "['parent', 'child', 'parent again']\n")


LEAVE = """
import sys, threading
from pathlib import Path
from tests.contract.engines import ENGINES

db = ENGINES[sys.argv[1]](Path(sys.argv[2]))
db.append_message("s", "user", "kept", create={"source": "cli"})
inside, never = threading.Event(), threading.Event()

def hold():
    with db.transaction():
        db.append_message("s", "user", "never committed")
        inside.set()
        never.wait()

threading.Thread(target=hold, daemon=True).start()
inside.wait(10)
"""


@pytest.mark.needs("processes")
@pytest.mark.schemas(16, 30)
def test_process_exits_despite_daemon_thread_in_transaction(
    engine: Engine, home_path: Path, open_again: Open
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LEAVE, engine.name, str(home_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert list_texts(open_again()) == ["kept"]


@pytest.mark.schemas(16, 30)
@pytest.mark.needs("foreign columns")
def test_dropped_column_is_detected(db: StateDatabase, foreign: ForeignWriter) -> None:
    db.create_session("s", "cli")
    assert not has_column(db, "brand_new")
    if db.kind == "hermes":
        foreign.add_column("messages", "brand_new", "TEXT")
        message_id = db.append_message("s", "user", "x", brand_new="y")
        assert dict(db.get_message(message_id) or {})["brand_new"] == "y"
