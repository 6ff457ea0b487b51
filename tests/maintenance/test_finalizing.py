"""Sessions are ended with the right reason, their hooks told once each, and chats begun afresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_core.errors import Denied
from session_core.ledger import undo_log
from session_core.maintenance.planner import PLUGINS_WARNING
from tests.maintenance.changing import Changing, changing, live_gateway
from tests.maintenance.homes import NOW, opened

KEY = "agent:main:telegram:dm:1"
SLACK = "agent:main:slack:dm:1"


def ends(changed: Changing, *ids: str) -> dict[str, tuple[float | None, str | None]]:
    rows = {each: changed.home.db.get_session(each) for each in ids}
    return {each: (row["ended_at"], row["end_reason"]) for each, row in rows.items()}


@pytest.mark.requirement("maintenance:finalize")
def test_a_named_session_is_ended_with_its_reason_and_told_once(changed: Changing) -> None:
    changed.home.session("s", 2)
    planned = changed.plan("sessions", "finalize", ids=("s",), reason="done")
    done = changed.apply(planned)
    assert (done.finalized, done.removed) == (1, 0)
    assert ends(changed, "s") == {"s": (NOW, "done")}
    assert changed.told.calls == [("finalize", "s", "done")]
    changed.apply(planned)
    assert len(changed.told.calls) == 1


@pytest.mark.requirement("maintenance:finalize")
def test_each_kind_ends_with_its_own_reason(restored: Changing) -> None:
    told = {}
    for what in ("abandoned", "orphaned", "expired"):
        restored.told.calls.clear()
        done = restored.plan_and_apply(what, "finalize")
        told[what] = {reason for _, _, reason in restored.told.calls}
        ids = {each for ids in restored.home.of(what).chosen.values() for each in ids}
        assert {each for _, each, _ in restored.told.calls} == ids
        restored.restore(done)
    reasons = {"abandoned", "orphaned_compression", "idle"}
    assert {reason for said in told.values() for reason in said} == reasons


def test_a_hook_is_told_when_it_is_committed(changed: Changing) -> None:
    changed.home.session("s", 2)
    seen: list[float | None] = []
    changed.hooks.add(
        "on_session_finalize",
        lambda session_id: seen.append(changed.home.db.get_session(session_id)["ended_at"]),
    )
    changed.plan_and_apply("sessions", "finalize", ids=("s",))
    assert seen == [NOW]


def test_what_has_ended_is_not_ended_again(changed: Changing) -> None:
    changed.home.session("s", 2, reason="cli_close")
    assert changed.plan("sessions", "finalize", ids=("s",)).outcome == "nothing"


def test_of_a_conversation_only_what_is_open_is_ended(changed: Changing) -> None:
    changed.home.session("root", 5, reason="compression")
    changed.home.session("tip", 2, parent_session_id="root")
    before = ends(changed, "root")
    changed.plan_and_apply("sessions", "finalize", ids=("root",))
    assert ends(changed, "root", "tip") == before | {"tip": (NOW, "finalized")}


@pytest.mark.requirement("maintenance:finalize")
def test_a_chat_begins_afresh_where_that_is_asked_for(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    before = changed.read_everything()
    done = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    assert begun != "chat"
    assert [call[:2] for call in changed.told.calls] == [("finalize", "chat"), ("reset", begun)]
    assert ends(changed, "chat") == {"chat": (NOW, "finalized")}
    changed.restore(done)
    assert changed.read_everything() == before


def test_a_chat_that_its_store_has_told_of_is_put_back_too(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    changed.home.store.hooks = changed.hooks
    before = changed.read_everything()
    done = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    assert [call[:2] for call in changed.told.calls] == [("finalize", "chat"), ("reset", begun)]
    assert changed.restore(done).unfit == ()
    assert changed.read_everything() == before


@pytest.mark.parametrize("by", ["its store", "maintenance"])
def test_a_session_of_two_chats_that_begin_afresh_is_told_once(changed: Changing, by: str) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    changed.home.route("2", "chat", 2)
    if by == "its store":
        changed.home.store.hooks = changed.hooks
    changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    told = [call[:2] for call in changed.told.calls]
    assert told[0] == ("finalize", "chat")
    assert [hook for hook, _ in told] == ["finalize", "reset", "reset"]


def test_a_session_that_another_process_has_reopened_is_told_by_its_store_again(
    changed: Changing,
) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    hooks = changed.home.store.hooks = changed.hooks
    hooks.call_once("on_session_finalize", session_id="chat", reason="before")
    changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    assert [hook for hook, *_ in changed.told.calls] == ["finalize", "finalize", "reset"]


def test_a_chat_that_was_gone_on_with_keeps_its_new_session(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    done = changed.plan_and_apply("sessions", "finalize", ids=("chat",), start_new=True)
    begun = changed.home.store.peek_session_id(KEY)
    changed.home.store.update_session(KEY, 5)
    back = changed.restore(done)
    assert changed.home.store.peek_session_id(KEY) == begun
    assert [(each.what, each.why) for each in back.unfit] == [
        (f"the route of {KEY}", "the chat has gone on since")
    ]
    assert ends(changed, "chat") == {"chat": (None, None)}


def test_the_end_of_a_session_is_not_told_again_with_the_next_message(changed: Changing) -> None:
    changed.home.session("idle", 0.5, source="slack")
    changed.home.route("1", "idle", 0.5, platform="slack")
    changed.plan_and_apply("expired", "finalize")
    store = changed.home.store
    entry = store.get(SLACK)
    assert entry.expiry_finalized
    assert store.is_end_delivered(entry)
    assert changed.told.calls == [("finalize", "idle", "idle")]


def test_what_somebody_has_told_already_is_ended_and_not_told_again(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2, expiry_finalized=True)
    changed.plan_and_apply("sessions", "finalize", ids=("chat",))
    assert ends(changed, "chat") == {"chat": (NOW, "finalized")}
    assert changed.told.calls == []


def test_what_was_taken_back_is_told_again_when_it_ends(changed: Changing) -> None:
    changed.home.session("s", 2)
    changed.restore(changed.plan_and_apply("sessions", "finalize", ids=("s",)))
    changed.plan_and_apply("sessions", "finalize", ids=("s",))
    assert len(changed.told.calls) == 2


@pytest.mark.requirement("maintenance:finalize")
def test_on_a_hermes_home_nothing_is_noted_in_the_entry_and_the_answer_says_so(
    hermes: Changing,
) -> None:
    hermes.home.session("idle", 0.5, source="slack")
    hermes.home.route("1", "idle", 0.5, platform="slack")
    before = hermes.home.store.get(SLACK).stored
    planned = hermes.plan("expired", "finalize")
    done = hermes.apply(planned)
    assert (planned.warnings, done.warnings) == ((PLUGINS_WARNING,), (PLUGINS_WARNING,))
    assert hermes.home.store.get(SLACK).stored == before
    assert hermes.told.calls == [("finalize", "idle", "idle")]
    assert hermes.home.store.is_end_delivered(hermes.home.store.get(SLACK))
    assert not hermes.home.db.get_session("idle")["expiry_finalized"]


def test_a_chat_that_was_used_since_does_not_expire(changed: Changing) -> None:
    changed.home.session("idle", 0.5, source="slack")
    changed.home.route("1", "idle", 0.5, platform="slack")
    planned = changed.plan("expired", "finalize")
    changed.home.store.update_session(SLACK)
    done = changed.apply(planned)
    assert [each.why for each in done.skipped] == ["its chat was used again since"]
    assert ends(changed, "idle") == {"idle": (None, None)}


def test_another_chat_that_came_into_a_session_keeps_it_open(changed: Changing) -> None:
    changed.home.session("s", 2)
    planned = changed.plan("sessions", "finalize", ids=("s",))
    changed.home.route("1", "s", 0)
    done = changed.apply(planned)
    assert [each.why for each in done.skipped] == ["another chat came into it since"]
    assert ends(changed, "s") == {"s": (None, None)}


def test_a_chat_is_not_begun_afresh_beside_a_gateway(changed: Changing) -> None:
    changed.home.session("chat", 2, source="telegram")
    changed.home.route("1", "chat", 2)
    planned = changed.plan("sessions", "finalize", ids=("chat",), start_new=True)
    with live_gateway(changed.home), pytest.raises(Denied, match="stop it"):
        changed.apply(planned)
    assert ends(changed, "chat") == {"chat": (None, None)}
    assert changed.told.calls == []


@pytest.mark.requirement("maintenance:finalize")
@pytest.mark.parametrize("kind", ["own", 22])
def test_an_end_that_a_crash_has_cut_off_from_its_hooks_is_told_by_the_next_start(
    home_path: Path, tmp_path: Path, kind: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(home_path, kind) as home, changing(home, tmp_path / "kept") as changed:
        home.session("s", 2)
        home.session("chat", 2, source="telegram")
        home.route("1", "chat", 2)
        planned = changed.plan("sessions", "finalize", ids=("s", "chat"))
        with monkeypatch.context() as patch:
            patch.setattr("session_core.maintenance.apply.finalize.call_end_hooks", _die)
            patch.setattr(undo_log.UndoLog, "finish_step", _die)
            with pytest.raises(_Killed):
                changed.apply(planned)
        _disown(changed)
        assert changed.told.calls == []
        done = changed.apply(planned)
        assert done.finalized == 2
        assert {each for _, each, _ in changed.told.calls} == {"s", "chat"}


class _Killed(BaseException):
    """The process is gone here."""


def _die(*_: object, **__: object) -> None:
    raise _Killed


def _disown(changed: Changing) -> None:
    """Let a step be that of a process that is gone."""
    changed.ledger._file.write(lambda rows: rows.run_change("UPDATE steps SET pid = 0"))
