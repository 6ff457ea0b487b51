"""Boundary hooks: finalize comes before reset, with both ids, and each exactly once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from session_core.hooks import Hooks, dispatch
from session_core.hooks.specs import FINALIZE, RESET
from tests.lifecycle.runtimes import beside

MOMENT_S = 0.05


def record_calls(hooks: Hooks) -> list[tuple[str, dict[str, Any]]]:
    """Return a list of the calls of a hook."""
    seen: list[tuple[str, dict[str, Any]]] = []
    for hook in ("on_session_start", FINALIZE, RESET):
        hooks.add(hook, lambda _hook=hook, **arguments: seen.append((_hook, arguments)))
    return seen


@pytest.mark.requirement("hooks:boundary")
def test_new_session_finalizes_before_reset(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    hooks.call_boundary("old", "new", "telegram", "new_session")
    both = {
        "platform": "telegram",
        "reason": "new_session",
        "old_session_id": "old",
        "new_session_id": "new",
    }
    assert calls == [
        (FINALIZE, {"session_id": "old", **both}),
        (RESET, {"session_id": "new", **both}),
    ]


@pytest.mark.requirement("hooks:boundary")
def test_expiry_finalizes_with_reason_only(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    report = hooks.call_boundary("s", None, "telegram", "session_expired")
    arguments = {"session_id": "s", "platform": "telegram", "reason": "session_expired"}
    assert calls == [(FINALIZE, arguments)]
    assert report.reset is None


def test_boundary_hooks_get_old_and_new_id(
    hooks: Hooks,
) -> None:
    seen: list[Any] = []
    for hook in (FINALIZE, RESET):
        hooks.add(
            hook,
            lambda old_session_id, new_session_id: seen.append((old_session_id, new_session_id)),
        )
    hooks.call_boundary("old", None, "cli")
    hooks.call_boundary(None, "new", "cli")
    assert seen == [("old", None), (None, "new")]


def test_finalize_without_reason_passes_none(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    hooks.call_boundary("s", None, "tui")
    assert calls == [(FINALIZE, {"session_id": "s", "platform": "tui"})]


def test_first_session_finalizes_nothing(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    report = hooks.call_boundary(None, "new", "cli")
    assert calls == [(RESET, {"session_id": "new", "platform": "cli"})]
    assert report.finalize is None


def test_failing_finalize_does_not_prevent_reset(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    hooks.add(FINALIZE, lambda: 1 / 0)
    report = hooks.call_boundary("old", "new", "cli")
    assert [hook for hook, _ in calls] == [FINALIZE, RESET]
    assert [fault.how for fault in report.failed] == ["raised"]


def test_boundary_fires_once(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    hooks.call_boundary("old", None, "cli", "session_expired")
    report = hooks.call_boundary("old", "new", "cli", "new_session")
    assert [(hook, arguments["reason"]) for hook, arguments in calls] == [
        (FINALIZE, "session_expired"),
        (RESET, "new_session"),
    ]
    assert report.finalize is not None
    assert report.finalize.repeated


@pytest.mark.parametrize("beginning", ["start", "reset", "reopened"])
def test_reopened_session_is_finalized_again(hooks: Hooks, beginning: str) -> None:
    calls = record_calls(hooks)
    hooks.call_boundary("s", None, "cli")
    if beginning == "start":
        hooks.call_once("on_session_start", session_id="s", platform="cli")
    elif beginning == "reset":
        hooks.call_boundary("other", "s", "cli")
    else:
        hooks.mark_reopened("s")
    hooks.call_boundary("s", None, "cli")
    finalized = [
        hook for hook, arguments in calls if arguments["session_id"] == "s" and hook == FINALIZE
    ]
    assert finalized == [FINALIZE, FINALIZE]


def test_switching_back_and_forth_fires_every_boundary(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    for old, new in (("a", "b"), ("b", "a"), ("a", "b")):
        hooks.call_boundary(old, new, "cli")
    assert [(hook, arguments["session_id"]) for hook, arguments in calls] == [
        (FINALIZE, "a"),
        (RESET, "b"),
        (FINALIZE, "b"),
        (RESET, "a"),
        (FINALIZE, "a"),
        (RESET, "b"),
    ]


def test_session_start_fires_once_until_finalized(hooks: Hooks) -> None:
    calls = record_calls(hooks)
    for _ in range(2):
        hooks.call_once("on_session_start", session_id="s", platform="cli", model="m")
    assert calls == [("on_session_start", {"session_id": "s", "platform": "cli", "model": "m"})]


@pytest.mark.requirement("hooks:boundary")
def test_racing_boundaries_fire_once_in_order(hooks: Hooks) -> None:
    order: list[str] = []
    barrier = threading.Barrier(16)
    slow = threading.Event()

    def finalize() -> None:
        slow.wait(MOMENT_S)
        order.append(FINALIZE)

    hooks.add(FINALIZE, finalize)
    hooks.add(RESET, lambda: order.append(RESET))

    def race(number: int) -> None:
        barrier.wait()
        hooks.call_boundary("old", None if number % 2 else "new", "cli")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == [FINALIZE, RESET]


@pytest.mark.requirement("hooks:boundary")
def test_running_boundary_call_is_never_forgotten(
    hooks: Hooks, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_MAX_REMEMBERED", 0)
    begun: list[str] = []
    entered = threading.Event()

    def finalize(session_id: str) -> None:
        begun.append(session_id)
        entered.set()
        gate.wait()

    hooks.add(FINALIZE, finalize)
    with beside(lambda: hooks.call_boundary("old", None, "cli")):
        assert entered.wait(30)
        hooks.call_boundary(None, "another", "cli")
        hooks.mark_reopened("old")
        with beside(lambda: hooks.call_boundary("old", "new", "cli")):
            gate.set()
    assert begun == ["old"]


def test_old_called_hooks_are_forgotten(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MAX_REMEMBERED", 10)
    for number in range(100):
        hooks.call_boundary(str(number), None, "cli")
    assert len(hooks._called_hooks._calls) == 10


def test_least_recently_asked_boundary_is_forgotten_first(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_MAX_REMEMBERED", 2)
    for session_id in ("first", "second", "first", "third"):
        hooks.call_boundary(session_id, None, "cli")
    assert list(hooks._called_hooks._calls) == ["first", "third"]


def test_compression_hook_results_are_ignored(hooks: Hooks) -> None:
    seen: list[Any] = []

    def before(session_id, message_count, in_place):
        seen.append((session_id, message_count, in_place))
        return "another prompt"

    hooks.add("before_compression", before)
    hooks.add("after_compression", lambda **arguments: seen.append(arguments))
    first = hooks.call(
        "before_compression", session_id="s", platform="cli", in_place=True, message_count=40
    )
    hooks.call(
        "after_compression", session_id="t", platform="cli", old_session_id="s", in_place=False
    )
    after = {"session_id": "t", "platform": "cli", "old_session_id": "s", "in_place": False}
    assert seen == [("s", 40, True), after]
    assert first.failed == ()
