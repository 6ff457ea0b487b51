"""Finalized sessions: end reasons, one hook call each, and new sessions of chats."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.errors import Denied
from session_core.ledger import undo_log
from session_core.maintenance.planner import PLUGINS_WARNING
from tests.maintenance.changed_homes import Changing, changing, live_gateway
from tests.maintenance.homes import NOW, opened

KEY = "agent:main:telegram:dm:1"
SLACK = "agent:main:slack:dm:1"


def list_end_calls(changed: Changing, *ids: str) -> dict[str, tuple[float | None, str | None]]:
    rows = {id_: changed.home.db.get_session(id_) for id_ in ids}
    return {each: (row["ended_at"], row["end_reason"]) for each, row in rows.items()}


@pytest.mark.requirement("maintenance:finalize")
def test_named_session_ends_and_calls_hook_once(changed: Changing) -> None:
    changed.home.session("s", 2)
    planned = changed.plan("sessions", "finalize", ids=("s",), reason="done")
    result = changed.apply(planned)
    assert (result.finalized, result.removed) == (1, 0)
    assert list_end_calls(changed, "s") == {"s": (NOW, "done")}
    assert changed.told.calls == [("finalize", "s", "done")]
    changed.apply(planned)
    assert len(changed.told.calls) == 1


@pytest.mark.requirement("maintenance:finalize")
def test_each_kind_sets_end_reason(restored: Changing) -> None:
    reports = {}
    for what in ("abandoned", "orphaned", "expired"):
        restored.told.calls.clear()
        result = restored.plan_and_apply(what, "finalize")
        reports[what] = {reason for _, _, reason in restored.told.calls}
        ids = {id_ for ids in restored.home.of(what).chosen.values() for id_ in ids}
        assert {each for _, each, _ in restored.told.calls} == ids
        restored.restore(result)
    reasons = {"abandoned", "orphaned_compression", "idle"}
    assert {reason for said in reports.values() for reason in said} == reasons


def test_hook_is_called_after_commit(changed: Changing) -> None:
    changed.home.session("s", 2)
    visited: list[float | None] = []
    changed.hooks.add(
        "on_session_finalize",
        lambda session_id: visited.append(changed.home.db.get_session(session_id)["ended_at"]),
    )
    changed.plan_and_apply("sessions", "finalize", ids=("s",))
    assert visited == [NOW]


def test_ended_session_is_not_ended_again(changed: Changing) -> None:
    changed.home.session("s", 2, reason="cli_close")
    assert changed.plan("sessions", "finalize", ids=("s",)).outcome == "nothing"


def test_only_open_sessions_are_ended(changed: Changing) -> None:
    changed.home.session("root", 5, reason="compression")
    changed.home.session("tip", 2, parent_session_id="root")
    before = list_end_calls(changed, "root")
    changed.plan_and_apply("sessions", "finalize", ids=("root",))
    assert list_end_calls(changed, "root", "tip") == before | {"tip": (NOW, "finalized")}


@pytest.mark.requirement("maintenance:finalize")
def test_start_new_resets_chat(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    before = changed.read_everything()
    result = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    assert begun != "chat"
    assert [call[:2] for call in changed.told.calls] == [("finalize", "chat"), ("reset", begun)]
    assert list_end_calls(changed, "chat") == {"chat": (NOW, "finalized")}
    changed.restore(result)
    assert changed.read_everything() == before


def test_restore_covers_chat_reset_by_store(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    changed.home.store.hooks = changed.hooks
    before = changed.read_everything()
    result = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    assert [call[:2] for call in changed.told.calls] == [("finalize", "chat"), ("reset", begun)]
    assert changed.restore(result).unfit == ()
    assert changed.read_everything() == before


@pytest.mark.parametrize("by", ["its store", "maintenance"])
def test_two_reset_chats_call_hook_once(changed: Changing, by: str) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    changed.home.route("2", "chat", 2)
    if by == "its store":
        changed.home.store.hooks = changed.hooks
    changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    reports = [call[:2] for call in changed.told.calls]
    assert reports[0] == ("finalize", "chat")
    assert [hook for hook, _ in reports] == ["finalize", "reset", "reset"]


def test_reopened_session_calls_hook_again(
    changed: Changing,
) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    hooks = changed.home.store.hooks = changed.hooks
    hooks.call_once("on_session_finalize", session_id="chat", reason="before")
    changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    assert [hook for hook, *_ in changed.told.calls] == ["finalize", "finalize", "reset"]


def test_continued_chat_keeps_new_session(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    result = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    changed.home.store.update_session(KEY, 5)
    restored = changed.restore(result)
    assert changed.home.store.peek_session_id(KEY) == begun
    assert [(item.what, item.why) for item in restored.unfit] == [
        (f"the route of {KEY}", "the chat was used since")
    ]
    assert list_end_calls(changed, "chat") == {"chat": (None, None)}


def test_next_message_repeats_no_end_hook(changed: Changing) -> None:
    changed.home.session("idle", 0.5, source="slack")
    changed.home.route("1", "idle", 0.5, platform="slack")
    changed.plan_and_apply("expired", "finalize")
    store = changed.home.store
    entry = store.get(SLACK)
    assert entry.expiry_finalized
    assert store.is_end_delivered(entry)
    assert changed.told.calls == [("finalize", "idle", "idle")]


def test_already_called_hook_is_not_repeated(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2, expiry_finalized=True)
    changed.plan_and_apply("sessions", "finalize", ids=("chat",))
    assert list_end_calls(changed, "chat") == {"chat": (NOW, "finalized")}
    assert changed.told.calls == []


def test_restored_session_calls_hook_at_next_end(changed: Changing) -> None:
    changed.home.session("s", 2)
    changed.restore(changed.plan_and_apply("sessions", "finalize", ids=("s",)))
    changed.plan_and_apply("sessions", "finalize", ids=("s",))
    assert len(changed.told.calls) == 2


@pytest.mark.requirement("maintenance:finalize")
def test_hermes_entry_is_unchanged_and_warned(
    hermes: Changing,
) -> None:
    hermes.home.session("idle", 0.5, source="slack")
    hermes.home.route("1", "idle", 0.5, platform="slack")
    before = hermes.home.store.get(SLACK).stored
    planned = hermes.plan("expired", "finalize")
    result = hermes.apply(planned)
    assert (planned.warnings, result.warnings) == ((PLUGINS_WARNING,), (PLUGINS_WARNING,))
    assert hermes.home.store.get(SLACK).stored == before
    assert hermes.told.calls == [("finalize", "idle", "idle")]
    assert hermes.home.store.is_end_delivered(hermes.home.store.get(SLACK))
    assert not hermes.home.db.get_session("idle")["expiry_finalized"]


def test_chat_used_since_plan_stays_open(changed: Changing) -> None:
    changed.home.session("idle", 0.5, source="slack")
    changed.home.route("1", "idle", 0.5, platform="slack")
    planned = changed.plan("expired", "finalize")
    changed.home.store.update_session(SLACK)
    result = changed.apply(planned)
    assert [item.why for item in result.skipped] == ["its chat was used again since"]
    assert list_end_calls(changed, "idle") == {"idle": (None, None)}


def test_new_chat_keeps_session_open(changed: Changing) -> None:
    changed.home.session("s", 2)
    planned = changed.plan("sessions", "finalize", ids=("s",))
    changed.home.route("1", "s", 0)
    result = changed.apply(planned)
    assert [item.why for item in result.skipped] == ["another chat was routed to it since"]
    assert list_end_calls(changed, "s") == {"s": (None, None)}


@pytest.mark.needs_files
def test_no_chat_reset_while_gateway_runs(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    planned = changed.plan("sessions", "finalize", ids=("chat",), start_new=True)
    with live_gateway(changed.home), pytest.raises(Denied, match="stop it"):
        changed.apply(planned)
    assert list_end_calls(changed, "chat") == {"chat": (None, None)}
    assert changed.told.calls == []


@pytest.mark.requirement("maintenance:finalize")
@pytest.mark.parametrize("kind", ["own", 22])
def test_next_start_calls_hook_after_crash(
    home_path: Path, tmp_path: Path, kind: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(home_path, kind) as home, changing(home, tmp_path / "kept") as changed:
        home.session("s", 2)
        home.session("chat", 2, source="telegram")
        home.route("1", "chat", 2)
        planned = changed.plan("sessions", "finalize", ids=("s", "chat"))
        with monkeypatch.context() as patch:
            patch.setattr(
                "session_core.maintenance.apply.session_finalizer.call_end_hooks", raise_killed
            )
            patch.setattr(undo_log.UndoLog, "finish_step", raise_killed)
            with pytest.raises(_Killed):
                changed.apply(planned)
        assign_dead_owner(changed)
        assert changed.told.calls == []
        result = changed.apply(planned)
        assert result.finalized == 2
        assert {each for _, each, _ in changed.told.calls} == {"s", "chat"}


class _Killed(BaseException):
    """The process ends here."""


def raise_killed(*_: object, **__: object) -> None:
    raise _Killed


def assign_dead_owner(changed: Changing) -> None:
    """Assign a step to a dead process."""
    changed.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
