"""Hooks: who is called with what, and where implementations come from."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pytest

from session_core.chats import Platform
from session_core.errors import InvalidInput
from session_core.hooks import Hooks, hookimpl
from session_core.hooks.specs import FINALIZE, RESET
from tests.lifecycle.agents import noting

SHORT_S = 0.05


# -- what an implementation is given -----------------------------------------------------------


@pytest.mark.requirement("hooks:arguments")
def test_an_implementation_may_take_only_session_id_and_platform(hooks: Hooks) -> None:
    seen = []
    hooks.add(FINALIZE, lambda session_id, platform: seen.append((session_id, platform)))
    report = hooks.call(FINALIZE, session_id="s", platform="cli", reason="shutdown")
    assert seen == [("s", "cli")]
    assert (len(report.called), report.failed) == (1, ())


def test_an_implementation_with_kwargs_gets_all_that_is_given(hooks: Hooks) -> None:
    seen: list[dict[str, Any]] = []
    hooks.add(FINALIZE, lambda **given: seen.append(given))
    hooks.call(FINALIZE, session_id="s", platform="cli", extra=1)
    assert seen == [{"session_id": "s", "platform": "cli", "extra": 1}]


@pytest.mark.requirement("hooks:arguments")
def test_reason_and_both_ids_are_there_for_those_that_ask(hooks: Hooks) -> None:
    seen = []

    def implementation(reason, new_session_id, old_session_id, session_id, **rest):
        seen.append((session_id, reason, old_session_id, new_session_id, sorted(rest)))

    hooks.add(FINALIZE, implementation)
    hooks.call_boundary("old", "new", "cli", "new_session")
    assert len(seen) == 1
    assert seen[0][:4] == ("old", "new_session", "old", "new")


def test_what_is_not_known_at_this_moment_is_none(hooks: Hooks) -> None:
    seen = []
    hooks.add("on_session_end", lambda task_id, completed=True: seen.append((task_id, completed)))
    hooks.call("on_session_end", session_id="s", platform="cli")
    assert seen == [(None, True)]


def test_positional_only_and_partial_functions_are_called(hooks: Hooks) -> None:
    seen = []

    def implementation(mark, session_id, /, *, platform):
        seen.append((mark, session_id, platform))

    hooks.add(RESET, partial(implementation, "mark"))
    hooks.call(RESET, session_id="s", platform="tui")
    assert seen == [("mark", "s", "tui")]


def test_a_platform_is_given_as_its_string(hooks: Hooks) -> None:
    seen: list[Any] = []
    hooks.add(RESET, lambda platform, **_: seen.append(platform))
    hooks.call(RESET, session_id="s", platform=Platform.TELEGRAM)
    assert seen == ["telegram"]
    assert type(seen[0]) is str


def test_an_argument_that_no_hook_has_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="no argument 'user_id'"):
        hooks.add(RESET, lambda user_id: user_id)
    assert hooks.list_names() == []


def test_a_hook_that_is_not_there_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="no hook 'on_session_stop'"):
        hooks.add("on_session_stop", lambda: None)


# -- where implementations come from -----------------------------------------------------------


class Marked:
    """A plugin as pluggy has them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    @hookimpl(tryfirst=True)
    def on_session_reset(self, session_id: str) -> None:
        """Be called first."""
        self.seen.append((RESET, session_id))

    @hookimpl(specname="on_session_finalize")
    def farewell(self, session_id: str, platform: str) -> None:
        """Be called by another name."""
        self.seen.append((FINALIZE, session_id, platform))


class Named:
    """A plugin that only has functions of the right names."""

    seen: list[str] = []  # noqa: RUF012 -- shared on purpose, to be looked at

    def on_session_start(self, session_id: str) -> None:
        """Be called by its name."""
        self.seen.append(session_id)

    def something_else(self) -> None:
        """Never be called."""
        raise AssertionError


def test_a_plugin_with_marked_functions_is_called(hooks: Hooks) -> None:
    plugin = Marked()
    assert hooks.register(plugin) == "Marked"
    hooks.call_boundary("old", "new", "cli")
    assert plugin.seen == [(FINALIZE, "old", "cli"), (RESET, "new")]


def test_a_plugin_with_named_functions_needs_no_marks(hooks: Hooks) -> None:
    Named.seen.clear()
    hooks.register(Named)
    hooks.call("on_session_start", session_id="s", platform="cli")
    assert Named.seen == ["s"]


def test_a_function_named_like_its_hook_registers_as_it_is(hooks: Hooks) -> None:
    seen = []

    @hooks.register
    def on_session_reset(session_id: str) -> None:
        seen.append(session_id)

    hooks.call(RESET, session_id="s", platform="cli")
    assert seen == ["s"]


def test_a_plugin_without_hooks_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="has no hook"):
        hooks.register(object())
    assert hooks.list_names() == []


def test_a_plugin_that_asks_for_what_there_is_not_is_refused_whole(hooks: Hooks) -> None:
    class Wrong:
        @hookimpl
        def on_session_reset(self, session_id):
            """Be right."""

        @hookimpl
        def on_session_finalize(self, user_id):
            """Be wrong."""

    with pytest.raises(InvalidInput, match="is refused"):
        hooks.register(Wrong())
    assert hooks.list_names() == []
    assert hooks.call(RESET, session_id="s", platform="cli").called == ()


def test_a_misspelt_mark_is_refused(hooks: Hooks) -> None:
    class Misspelt:
        @hookimpl
        def on_session_finalise(self, session_id):
            """Never be called."""

    with pytest.raises(InvalidInput, match="on_session_finalise"):
        hooks.register(Misspelt())


def test_a_wrapper_is_refused_since_hooks_observe(hooks: Hooks) -> None:
    class Wrapper:
        @hookimpl(wrapper=True)
        def on_session_reset(self):
            return (yield)

    with pytest.raises(InvalidInput, match="observe"):
        hooks.register(Wrapper())
    assert hooks.list_names() == []


def test_the_same_plugin_is_registered_once(hooks: Hooks) -> None:
    plugin = Marked()
    hooks.register(plugin)
    with pytest.raises(InvalidInput):
        hooks.register(plugin)
    hooks.call(RESET, session_id="s", platform="cli")
    assert plugin.seen == [(RESET, "s")]


def test_what_is_removed_is_not_called_any_more(hooks: Hooks) -> None:
    seen: list[str] = []
    names = [hooks.add(RESET, noting(seen)) for _ in range(2)]
    names.append(hooks.register(Named))
    assert len(set(names)) == 3
    assert [hooks.remove(name) for name in names] == [True, True, True]
    assert not hooks.remove(names[0])
    hooks.call(RESET, session_id="s", platform="cli")
    assert (seen, hooks.list_names()) == ([], [])


def entry_points(*found: metadata.EntryPoint) -> Callable[..., metadata.EntryPoints]:
    return lambda *, group: metadata.EntryPoints(found).select(group=group)


def test_installed_plugins_are_called_and_a_broken_one_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = type(sys)("a_plugin_module")
    module.seen = []  # type: ignore[attr-defined]
    module.on_session_reset = noting(module.seen)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_plugin_module", module)
    installed = [
        metadata.EntryPoint("broken", "no_such_module_at_all", "mcp_sessions"),
        metadata.EntryPoint("works", "a_plugin_module", "mcp_sessions"),
        metadata.EntryPoint("foreign", "a_plugin_module", "another_group"),
    ]
    monkeypatch.setattr(metadata, "entry_points", entry_points(*installed))
    hooks = Hooks(report=lambda *_: None)
    first = hooks.call(RESET, session_id="s", platform="cli")
    assert (first.called, module.seen) == (("works.on_session_reset",), ["s"])
    assert [(fault.plugin, fault.how) for fault in first.failed] == [("broken", "refused")]
    assert hooks.call(RESET, session_id="t", platform="cli").failed == ()


class Slow(metadata.EntryPoint):
    """A plugin whose import hangs until the test opens the gate."""

    gate: threading.Event

    def load(self) -> Any:
        """Hang."""
        self.gate.wait()
        return Marked


@pytest.mark.requirement("hooks:imports")
def test_a_plugin_whose_import_hangs_is_reported_and_there_once_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    Slow.gate = gate
    slow = Slow("slow", "somewhere", "mcp_sessions")
    monkeypatch.setattr(metadata, "entry_points", entry_points(slow))
    hooks = Hooks(timeout_s=SHORT_S, report=lambda *_: None)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert [(fault.plugin, fault.how) for fault in report.failed] == [("slow", "timed_out")]
    gate.set()
    deadline = time.monotonic() + 5
    while hooks.list_names() != ["slow"] and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert hooks.call(RESET, session_id="t", platform="cli").called == ("slow",)


def test_the_entry_point_group_of_this_environment_is_read_without_a_fault() -> None:
    assert Hooks().call(RESET, session_id="s", platform="cli").failed == ()
