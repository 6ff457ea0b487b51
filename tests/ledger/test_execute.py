"""A step: its trash is durable before the home changes, and it runs once or never."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import GatewayConfig, SessionDB, SessionSource, SessionStore, StateDatabase
from session_core.errors import Changed, Conflict, Denied, InvalidInput, StorageFull, Unsupported
from session_core.ledger.execute import MARK_PREFIX, delete_step_marks, resume_steps, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Member, TrashItem
from tests.cli.fork_server import get_fork_server
from tests.homes import connect, make_own_database
from tests.ledger.conftest import Clock
from tests.ledger.worker import SCRIPT, STAGES, keep


def remove_session(db: StateDatabase) -> dict[str, int]:
    return {"removed": db.delete_sessions(["a"])}


def begin_batch(ledger: Ledger, names: Iterable[str] = "abc") -> str:
    """Begin to apply a plan, by default with the three sessions of the home."""
    plan = ledger.add_plan("sessions", list(map(Member, names)), None)
    return ledger.begin_plan(plan.handle).batch_id


def find_plan(ledger: Ledger, batch: str) -> Any:
    return ledger.get_plan(ledger.get_batch(batch).plan or "")


def list_marks(db: SessionDB) -> list[str]:
    with connect(db.path) as connection:
        sql = "SELECT key FROM state_meta WHERE key LIKE ? ORDER BY key"
        return [key for (key,) in connection.execute(sql, (MARK_PREFIX + "%",))]


def has_session(db: StateDatabase) -> bool:
    return db.get_session("a") is not None


def test_step_keeps_changes_and_returns_result(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)
    kept = list(keep(db))
    result = run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])
    assert result == {"removed": 1}
    assert not has_session(db)
    (step,) = ledger.list_steps(batch)
    assert (step.state, step.members, step.result) == ("done", ("a",), result)
    assert list(ledger.read_trash(step.id)) == kept
    assert [member.id for member in find_plan(ledger, batch).remaining] == ["b", "c"]


@pytest.mark.requirement("ledger:steps")
def test_trash_is_durable_before_change(
    db: SessionDB, ledger: Ledger, open_ledger: Callable[..., Ledger]
) -> None:
    batch = ledger.add_batch("sessions_edit").id
    seen: list[object] = []

    def change(db: StateDatabase) -> None:
        (step,) = open_ledger().list_unsettled_steps()
        seen.extend([step.state, list(open_ledger().read_trash(step.id)), has_session(db)])

    kept = list(keep(db))
    run_step(db, ledger, batch, before=keep, change=change)
    assert seen == ["prepared", kept, True]


def test_mark_is_deleted_by_next_step(db: SessionDB, ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    for number in range(3):
        run_step(db, ledger, batch, before=keep, change=lambda _, n=number: n)
        assert list_marks(db) == [MARK_PREFIX + ledger.list_steps(batch)[-1].id]
    assert [step.result for step in ledger.list_steps(batch)] == [0, 1, 2]
    delete_step_marks(db, ledger)
    assert list_marks(db) == []
    assert ledger.list_obsolete_step_marks() == []


@pytest.mark.needs_files
def test_mark_stays_until_step_is_durable(ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    kept = [TrashItem("row", 1)]
    assert [ledger.prepare_step(step, batch, kept) for step in ("s-1", "s-2")] == [[], []]
    ledger.finish_step("s-1", None)
    assert ledger.prepare_step("s-3", batch, kept) == ["s-1"]
    for step in ("s-2", "s-3"):
        ledger.finish_step(step, None, cleared=["s-1"])
    assert ledger.list_obsolete_step_marks() == ["s-2", "s-3"]


@pytest.mark.requirement("ledger:steps")
def test_changed_members_are_skipped(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)

    def change(db: StateDatabase) -> None:
        db.delete_sessions(["a"])
        raise Changed("session a was written to")

    with pytest.raises(Changed, match="written to"):
        run_step(db, ledger, batch, before=keep, change=change, members=["a"])
    assert has_session(db)
    assert list_marks(db) == []
    assert ledger.list_steps(batch) == ledger.list_unsettled_steps() == []
    assert ledger.count_trash_bytes() == 0
    member = find_plan(ledger, batch).members[0]
    assert (member.step, member.skipped) == (None, "session a was written to")


@pytest.mark.parametrize("error", [ValueError("a fault"), KeyboardInterrupt(), StorageFull("full")])
def test_failed_change_can_be_retried(db: SessionDB, ledger: Ledger, error: BaseException) -> None:
    batch = begin_batch(ledger)

    def change(db: StateDatabase) -> None:
        db.delete_sessions(["a"])
        raise error

    with pytest.raises(type(error)):
        run_step(db, ledger, batch, before=keep, change=change, members=["a"])
    assert has_session(db)
    assert (list_marks(db), ledger.list_unsettled_steps(), ledger.count_trash_bytes()) == (
        [],
        [],
        0,
    )
    assert len(find_plan(ledger, batch).remaining) == 3
    run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])
    assert not has_session(db)


def test_failed_step_is_logged(
    db: SessionDB, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    batch = begin_batch(ledger)

    def change(error: Exception) -> None:
        raise error

    for error in (OSError(5, "Input/output error"), Changed("session a was written to")):
        with pytest.raises(type(error)):
            run_step(
                *(db, ledger, batch),
                before=keep,
                change=lambda _, error=error: change(error),
                members=["a", "b"],
            )
    (record,) = caplog.records
    plan = ledger.get_batch(batch).plan
    assert re.fullmatch(
        rf"sessions: step s-\w+ \(plan {plan}, batch {batch}, 2 members, first 'a'\) failed "
        r"and was rolled back: OSError: \[Errno 5\] Input/output error",
        record.getMessage(),
    )
    assert record.exc_info is None  # the caller gets the error with its traceback


def test_failed_trash_is_logged(
    db: SessionDB, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    batch = begin_batch(ledger)

    def read_rows(error: Exception) -> list[TrashItem]:
        raise error

    for error in (Denied("the trash cannot be written"), Changed("session a was written to")):
        with pytest.raises(type(error)):
            run_step(
                *(db, ledger, batch),
                before=lambda _, error=error: read_rows(error),
                change=remove_session,
                members=["a"],
            )
    (record,) = caplog.records
    assert "failed before it changed the home: Denied: the trash" in record.getMessage()
    assert f"batch {batch}, 1 member, first 'a'" in record.getMessage()
    assert has_session(db)


def test_log_line_escapes_control_characters(
    db: SessionDB, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def change(_: StateDatabase) -> None:
        raise OSError(5, "Input/output error")

    member = "a\n\x1b[2Jb"
    batch = begin_batch(ledger, [member])
    with pytest.raises(OSError, match="Input/output"):
        run_step(db, ledger, batch, before=keep, change=change, members=[member])
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert r"first 'a\n\x1b[2Jb'" in record.getMessage()


def test_failed_read_begins_no_step(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)

    def before(db: StateDatabase) -> Iterator[TrashItem]:
        yield from keep(db, large=True)
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        run_step(db, ledger, batch, before=before, change=remove_session, members=["a"])
    assert has_session(db)
    assert (ledger.list_unsettled_steps(), ledger.count_trash_bytes()) == ([], 0)
    assert len(find_plan(ledger, batch).remaining) == 3


def test_unserializable_result_is_refused(db: SessionDB, ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    with pytest.raises(InvalidInput, match="JSON"):
        run_step(db, ledger, batch, before=keep, change=lambda _: {1, 2})
    assert ledger.list_unsettled_steps() == []


def test_step_refuses_open_transaction(db: SessionDB, ledger: Ledger) -> None:
    batch = ledger.add_batch("sessions_edit").id
    with db.transaction(), pytest.raises(InvalidInput, match="its own transaction"):
        run_step(db, ledger, batch, before=keep, change=remove_session)
    assert has_session(db)


@pytest.mark.parametrize("kind", ["hermes"], indirect=True)
def test_home_without_state_meta_is_refused(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)
    with connect(db.path) as connection:
        connection.execute("DROP TABLE state_meta")
    with pytest.raises(Unsupported, match="state_meta"):
        run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])
    assert has_session(db)
    assert ledger.list_unsettled_steps() == []
    assert resume_steps(db, ledger) == []


def test_concurrent_steps_run_in_sequence(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)
    barrier = threading.Barrier(3)

    def work(name: str) -> int:
        barrier.wait(20)
        return run_step(
            db,
            ledger,
            batch,
            before=lambda db: [TrashItem("sessions", db.get_session(name))],
            change=lambda db: db.delete_sessions([name]),
            members=[name],
        )

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, "abc")) == [1, 1, 1]
    assert ledger.get_batch(batch).count == 3
    assert find_plan(ledger, batch).remaining == ()


# -- a transaction of the caller's -------------------------------------------------------------


@pytest.mark.requirement("ledger:steps")
def test_route_and_session_share_step(db: SessionDB, ledger: Ledger, home_path: Path) -> None:
    source = SessionSource("telegram", "7", user_id="u")
    with SessionStore(home_path / "sessions", config=GatewayConfig(), db=db) as store:
        entry = store.get_or_create_session(source)
        old = entry.session_id
        db.append_message(old, "user", "hello", create=store.build_session_fields(entry))
        batch = ledger.add_batch("sessions_compress").id

        def rotate(db: StateDatabase, *, fail: bool) -> str:
            db.end_session(old, "compression")
            db.create_session("child", "telegram", parent_session_id=old)
            db.append_message("child", "user", "in short: hello")
            store.move_to_continuation(entry.session_key, old, "child")
            if fail:
                raise Changed("said meanwhile")
            return "child"

        def run(*, fail: bool) -> str:
            return run_step(
                db,
                ledger,
                batch,
                before=lambda db: [TrashItem("sessions", db.get_session(old))],
                change=lambda db: rotate(db, fail=fail),
                within=lambda: store.transaction(entry.session_key),
            )

        with pytest.raises(Changed):
            run(fail=True)
        assert (db.get_session("child"), store.get(entry.session_key).session_id) == (None, old)
        assert run(fail=False) == "child"
        assert store.get(entry.session_key).session_id == "child"
    assert len(ledger.list_steps(batch)) == 1


def test_failure_after_commit_keeps_step_done(
    db: SessionDB, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    batch = begin_batch(ledger)

    @contextmanager
    def within() -> Iterator[None]:
        with db.transaction():
            yield
        raise OSError("the mirror cannot be written")

    result = run_step(
        db, ledger, batch, before=keep, change=remove_session, members=["a"], within=within
    )
    assert result == {"removed": 1}
    assert "mirror" in caplog.text
    assert not has_session(db)
    assert [step.result for step in ledger.list_steps(batch)] == [result]
    assert ledger.list_unsettled_steps() == []


def test_interrupt_after_commit_keeps_step_done(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)

    @contextmanager
    def within() -> Iterator[None]:
        with db.transaction():
            yield
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_step(
            db, ledger, batch, before=keep, change=remove_session, members=["a"], within=within
        )
    assert [step.result for step in ledger.list_steps(batch)] == [{"removed": 1}]


class FullLedger(Ledger):
    """A ledger without space after the home has changed."""

    is_full = True

    def finish_step(self, step_id: str, result: Any, *, cleared: Any = ()) -> None:
        """Record a finished step, if there is space."""
        if self.is_full:
            raise StorageFull("no room left for the ledger")
        super().finish_step(step_id, result, cleared=cleared)


def test_full_ledger_loses_no_step(
    db: SessionDB, folder: StateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with FullLedger(folder) as ledger:
        batch = begin_batch(ledger)
        assert run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"]) == {
            "removed": 1
        }
        assert "no room left" in caplog.text
        assert [step.state for step in ledger.list_unsettled_steps()] == ["prepared"]
        ledger.is_full = False
        assert [step.result for step in resume_steps(db, ledger)] == [{"removed": 1}]
        assert list_marks(db) == []


def test_uncleared_marks_are_cleared_later(
    db: SessionDB, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = begin_batch(ledger)
    run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])

    def full(_: object) -> None:
        raise StorageFull("no room left for the ledger")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "forget_step_marks", full)
        delete_step_marks(db, ledger)
    assert len(ledger.list_obsolete_step_marks()) == 1
    delete_step_marks(db, ledger)
    assert ledger.list_obsolete_step_marks() == []


# -- whose ledger ------------------------------------------------------------------------------


@pytest.fixture
def another(tmp_path: Path) -> Iterator[SessionDB]:
    """The database of another home."""
    path = tmp_path / "another" / "state.db"
    path.parent.mkdir()
    make_own_database(path)
    with SessionDB(path) as db:
        yield db


def test_step_refuses_foreign_ledger(db: SessionDB, ledger: Ledger, another: SessionDB) -> None:
    batch = begin_batch(ledger)
    with pytest.raises(InvalidInput, match="another home"):
        run_step(another, ledger, batch, before=keep, change=remove_session)
    assert ledger.list_unsettled_steps() == []


def test_resume_refuses_foreign_ledger(db: SessionDB, ledger: Ledger, another: SessionDB) -> None:
    batch = begin_batch(ledger)
    run_and_kill(db, batch, "committed")
    with pytest.raises(InvalidInput, match="another home"):
        resume_steps(another, ledger)
    assert len(resume_steps(db, ledger)) == 1


def test_linked_home_accepts_ledger(db: SessionDB, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(db.path.parent)
    with SessionDB(tmp_path / "link" / db.path.name) as linked:
        assert resume_steps(linked, ledger) == []


# -- crashes -----------------------------------------------------------------------------------


def run_and_kill(db: SessionDB, batch: str, stage: str) -> None:
    """Run the step in a child process, and kill it at a stage."""
    with get_fork_server().start_script(SCRIPT, db.path, batch, stage) as process:
        assert process.stdout.readline() == "there\n"
        process.kill()


@pytest.mark.requirement("ledger:steps")
@pytest.mark.parametrize("stage", STAGES)
def test_killed_step_is_done_or_absent(db: SessionDB, ledger: Ledger, stage: str) -> None:
    batch = begin_batch(ledger)
    kept = list(keep(db))
    run_and_kill(db, batch, stage)
    was_done = stage in ("committed", "done")
    assert has_session(db) is not was_done
    steps = resume_steps(db, ledger)
    assert len(steps) == (stage == "committed")
    assert has_session(db) is not was_done
    assert ledger.list_unsettled_steps() == []
    if was_done:
        (step,) = ledger.list_steps(batch)
        assert (step.state, step.result) == ("done", {"removed": 1})
        assert list(ledger.read_trash(step.id)) == kept
        assert (len(find_plan(ledger, batch).remaining), list_marks(db)) == (2, [])
    else:
        assert (ledger.list_steps(batch), ledger.count_trash_bytes()) == ([], 0)
        run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])
        assert not has_session(db)
    assert resume_steps(db, ledger) == []


def test_resume_leaves_step_of_running_thread(
    db: SessionDB, ledger: Ledger, open_ledger: Callable[..., Ledger]
) -> None:
    batch = begin_batch(ledger)
    at_work, go_on = threading.Event(), threading.Event()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            run_step,
            db,
            ledger,
            batch,
            before=keep,
            change=_make_slow_change(at_work, go_on),
            members=["a"],
        )
        assert at_work.wait(20)
        with SessionDB(db.path) as other:
            assert resume_steps(other, open_ledger()) == []
        go_on.set()
        assert running.result(20) == {"removed": 1}
    assert len(ledger.list_steps(batch)) == 1


def test_resume_leaves_step_of_other_process(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)
    with get_fork_server().start_script(SCRIPT, db.path, batch, "writing") as process:
        assert process.stdout.readline() == "there\n"
        assert resume_steps(db, ledger) == []
        assert [step.state for step in ledger.list_unsettled_steps()] == ["writing"]
        print(file=process.stdin, flush=True)
        assert process.verb.wait() == 0
    assert [step.result for step in ledger.list_steps(batch)] == [{"removed": 1}]


def _make_slow_change(
    at_work: threading.Event, go_on: threading.Event
) -> Callable[..., dict[str, int]]:
    def change(db: StateDatabase) -> dict[str, int]:
        steps = remove_session(db)
        at_work.set()
        assert go_on.wait(20)
        return steps

    return change


@pytest.mark.requirement("ledger:steps")
def test_aborted_step_is_refused_on_wake(
    db: SessionDB, ledger: Ledger, open_ledger: Callable[..., Ledger], clock: Clock
) -> None:
    batch = begin_batch(ledger)
    other = open_ledger()

    @contextmanager
    def asleep() -> Iterator[None]:
        (step,) = other.list_unsettled_steps()
        with connect(other._make_path()) as connection:
            connection.execute("UPDATE steps SET pid = 0")
        assert resume_steps(db, other) == []
        assert list_marks(db) == [MARK_PREFIX + step.id]
        with db.transaction():
            yield

    with pytest.raises(Conflict, match="aborted"):
        run_step(
            db, ledger, batch, before=keep, change=remove_session, members=["a"], within=asleep
        )
    assert has_session(db)
    assert ledger.list_steps(batch) == []
    assert len(find_plan(ledger, batch).remaining) == 3
    assert len(list_marks(db)) == 1
    clock.now += 86_401
    delete_step_marks(db, ledger)
    assert (list_marks(db), ledger.list_unsettled_steps(), ledger.list_obsolete_step_marks()) == (
        [],
        [],
        [],
    )


def test_step_aborted_during_trash_is_refused(
    db: SessionDB, ledger: Ledger, open_ledger: Callable[..., Ledger]
) -> None:
    batch = begin_batch(ledger)
    other = open_ledger()

    def before(db: StateDatabase) -> Iterator[TrashItem]:
        yield from keep(db, large=True)
        with connect(other._make_path()) as connection:
            connection.execute("UPDATE steps SET pid = 0")
        assert resume_steps(db, other) == []
        yield from keep(db)

    with pytest.raises(Conflict, match="aborted"):
        run_step(db, ledger, batch, before=before, change=remove_session, members=["a"])
    assert has_session(db)
    with connect(ledger._make_path()) as connection:
        assert connection.execute("SELECT count(*) FROM trash").fetchone() == (0,)


def test_step_is_undone_once(db: SessionDB, ledger: Ledger) -> None:
    batch = begin_batch(ledger)
    run_step(db, ledger, batch, before=keep, change=remove_session, members=["a"])
    (step,) = ledger.list_steps(batch)
    undo = ledger.add_batch("sessions_restore").id

    def restore(db: StateDatabase) -> int:
        rows = [kept.value for kept in ledger.read_trash(step.id) if kept.what == "messages"]
        db.append_messages("a", rows, create={"source": "cli"})
        return len(rows)

    def run() -> int:
        return run_step(db, ledger, undo, before=lambda _: [], change=restore, undoes=step.id)

    assert run() == 1
    assert has_session(db)
    assert ledger.get_batch(batch).undone_at is not None
    with pytest.raises(Conflict, match="undone"):
        run()
    assert len(db.get_messages("a")) == 1
