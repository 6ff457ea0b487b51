"""Changes between a plan and its step, or between the trash and the step, are not lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core.errors import StorageError
from session_core.ledger.execute import discard_step, prepare_step
from session_core.ledger.undo_log import UndoLog
from session_core.maintenance.apply import home_files
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import DAY, NOW, Home

Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Run a function once, as soon as the trash of a step is durable."""

    def later(do: Callable[[], object]) -> None:
        usual, result = UndoLog.prepare_step, []

        def prepare(self: UndoLog, *args: Any, **more: Any) -> list[str]:
            marked = usual(self, *args, **more)
            if not result:
                result.append(do)
                do()
            return marked

        monkeypatch.setattr(UndoLog, "prepare_step", prepare)

    return later


def list_skip_reasons(done) -> dict[str, str]:
    return {item.id: item.why for item in done.skipped}


# -- rows --------------------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:meanwhile")
def test_message_edited_after_trash_is_restored_edited(
    hermes: Changing, meanwhile: Meanwhile
) -> None:
    hermes.home.session("old", 140, reason="idle")
    edited = "UPDATE messages SET content = 'edited' WHERE id = (SELECT min(id) FROM messages)"
    meanwhile(lambda: hermes.home.sql(edited))
    result = hermes.plan_and_apply()
    assert (result.removed, hermes.sessions()) == (1, set())
    hermes.restore(result)
    assert [row["content"] for row in hermes.home.db.get_messages("old")] == [
        "edited",
        "old says 1",
    ]


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:meanwhile")
def test_row_added_after_trash_is_restored(changed: Changing, meanwhile: Meanwhile) -> None:
    changed.home.session("old", 140, reason="idle")
    db = changed.home.db
    meanwhile(lambda: db.record_auxiliary_usage("old", "title_generation", input_tokens=7))
    result = changed.plan_and_apply()
    assert (result.removed, changed.sessions()) == (1, set())
    changed.restore(result)
    assert [row["input_tokens"] for row in db.admin.get_model_usage("old")] == [7]


# -- new activity ------------------------------------------------------------------------------


def set_title(home: Home) -> None:
    home.db.set_session_title("ghost", "My plan")


def count_api_call(home: Home) -> None:
    home.sql("UPDATE sessions SET api_call_count = 7 WHERE id = 'ghost'")


def archive_session(home: Home) -> None:
    home.db.set_session_archived("ghost", archived=True)


SIGNS: dict[Callable[[Home], None], str] = {
    set_title: "session ghost: it has a title since",
    count_api_call: "session ghost: a model was called for it since",
    archive_session: "session ghost: it was archived since",
}


@pytest.mark.requirement("maintenance:meanwhile")
@pytest.mark.parametrize("change", SIGNS, ids=lambda change: change.__name__)
def test_used_ghost_stays(changed: Changing, change: Callable[[Home], None]) -> None:
    for name in ("other", "ghost"):
        changed.home.session(name, 30, reason="idle", messages=0)
    planned = changed.plan("ghosts")
    change(changed.home)
    result = changed.apply(planned)
    assert (result.removed, list_skip_reasons(result)) == (1, {"ghost": SIGNS[change]})
    assert changed.sessions() == {"ghost"}


def test_session_archived_since_plan_stays(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.db.set_session_title("old", "Known before")
    planned = changed.plan()
    changed.home.db.set_session_archived("old", archived=True)
    assert list_skip_reasons(changed.apply(planned)) == {
        "old": "session old: it was archived since"
    }


def add_route(changed: Changing) -> None:
    changed.home.route("1", "old", 0)


def pin_session(changed: Changing) -> None:
    changed.ledger.pins.set_pins({"old": True})


COMES: dict[Callable[[Changing], None], str] = {
    add_route: "session old: a chat is routed to it",
    pin_session: "session old: it is pinned",
}


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:meanwhile")
@pytest.mark.parametrize("come", COMES, ids=lambda come: come.__name__)
@pytest.mark.parametrize("what", ["sessions", "abandoned"])
def test_session_routed_or_pinned_during_step_stays(
    changed: Changing,
    meanwhile: Meanwhile,
    come: Callable[[Changing], None],
    what: str,
) -> None:
    verb, ended = ("prune", "idle") if what == "sessions" else ("finalize", None)
    changed.home.session("other", 140, reason=ended)
    changed.home.session("old", 140, reason=ended)
    planned = changed.plan(what, verb)
    meanwhile(lambda: come(changed))
    result = changed.apply(planned)
    assert (result.removed + result.finalized, list_skip_reasons(result)) == (
        1,
        {"old": COMES[come]},
    )
    assert changed.home.db.get_session("old")["end_reason"] == ended


# -- the log -----------------------------------------------------------------------------------


class _Killed(BaseException):
    """The process ends here."""


def add_large_session(changed: Changing) -> None:
    for number in range(4):
        changed.home.session(f"old_{number}", 140, reason="idle")
        changed.home.clock.now = NOW - 140 * DAY
        changed.home.db.append_message(f"old_{number}", "user", "x" * 80_000)
    changed.home.clock.now = NOW


def list_audit_log(changed: Changing) -> list[tuple[str, Any]]:
    return [(line.what, line.counts) for line in changed.ledger.list_audit_entries().items]


def raise_killed(*_: object) -> bool:
    raise _Killed


def test_interrupted_run_is_in_audit_log(changed: Changing) -> None:
    add_large_session(changed)
    with pytest.raises(_Killed):
        changed.apply(changed.plan(), stop=raise_killed)
    gone = 4 - len(changed.sessions())
    assert gone
    counts = {"removed": gone, "finalized": 0, "skipped": 0, "remaining": 4 - gone}
    assert list_audit_log(changed) == [("prune sessions, in part", counts)]


@pytest.mark.needs_files
def test_failed_first_step_is_logged_as_begun(changed: Changing) -> None:
    add_large_session(changed)
    changed.home.sql(
        "CREATE TRIGGER stop BEFORE DELETE ON messages BEGIN SELECT raise(rollback, 'no'); END"
    )
    with pytest.raises(StorageError):
        changed.plan_and_apply()
    assert list_audit_log(changed) == [("prune sessions, begun", {})]


@pytest.mark.requirement("maintenance:meanwhile")
def test_killed_run_is_logged_before_restore(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_large_session(changed)
    planned = changed.plan()
    with monkeypatch.context() as patch:
        patch.setattr("session_core.maintenance.apply.crash_recovery.log_progress", raise_killed)
        with pytest.raises(_Killed):
            changed.apply(planned, stop=raise_killed)
    gone = 4 - len(changed.sessions())
    assert list_audit_log(changed) == [("prune sessions, begun", {})]
    changed.maintenance.restore(changed.ledger.list_batches().items[0].id)
    counts = {"removed": gone, "finalized": 0, "skipped": 0, "remaining": 4 - gone}
    assert list_audit_log(changed)[1] == ("prune sessions, in part", counts)


@pytest.mark.requirement("maintenance:meanwhile")
def test_audit_log_has_latest_plan_progress(changed: Changing) -> None:
    add_large_session(changed)
    planned = changed.plan()
    parts = 0
    while changed.apply(planned, 0).outcome == "partial":
        (line,) = list_audit_log(changed)
        assert line[0] == "prune sessions, in part"
        assert line[1]["removed"] == 4 - len(changed.sessions())
        parts += 1
    assert parts > 1
    counts = {"removed": 4, "finalized": 0, "skipped": 0, "remaining": 0}
    assert list_audit_log(changed) == [("prune sessions", counts)]


# -- files -------------------------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:meanwhile")
def test_remaining_session_file_is_reported(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    folder = changed.home.file("session_old.json", 140).parent
    (folder / "old.jsonl").symlink_to(folder / "elsewhere")
    result = changed.plan_and_apply()
    assert not (folder / "session_old.json").exists()
    assert [warning.split()[0] for warning in result.warnings] == ["old.jsonl"]
    assert "still exists" in result.warnings[0]


@pytest.mark.needs_files
def test_remaining_files_report_is_bounded(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_files, "_MAX_WARNINGS", 1)
    changed.home.session("old", 140, reason="idle")
    folder = changed.home.store.sessions_dir
    folder.mkdir(exist_ok=True)
    for name in ("old.json", "old.jsonl", "session_old.json"):
        Path(folder / name).symlink_to(folder / "elsewhere")
    first, rest = changed.plan_and_apply().warnings
    assert first.startswith("old.json of a removed session")
    assert rest == "2 more of these files still exist"


def test_aborted_step_of_other_maintainer_is_done(changed: Changing) -> None:
    for number in range(3):
        changed.home.session(f"old_{number}", 140, reason="idle")
    planned = changed.plan()
    assert planned.plan is not None
    batch = changed.ledger.begin_plan(planned.plan).batch_id
    taken = prepare_step(
        changed.ledger, batch, (), [changed.ledger.get_plan(planned.plan).members[1].id]
    )
    part = changed.apply(planned, for_s=0)
    assert (part.outcome, part.removed + part.remaining) == ("partial", 3)
    with ThreadPoolExecutor(1) as other:
        result = other.submit(changed.apply, planned)
        time.sleep(0.2)
        assert not result.done()
        discard_step(changed.ledger, taken)
        assert (result.result().outcome, result.result().removed) == ("applied", 3)
    assert changed.sessions() == set()
