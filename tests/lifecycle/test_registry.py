"""Hook registration: arguments, sources and errors of implementations."""

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


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:arguments")
def test_hook_may_take_two_arguments(hooks: Hooks) -> None:
    seen = []
    hooks.add(FINALIZE, lambda session_id, platform: seen.append((session_id, platform)))
    report = hooks.call(FINALIZE, session_id="s", platform="cli", reason="shutdown")
    assert seen == [("s", "cli")]
    assert (len(report.called), report.failed) == (1, ())


def test_hook_with_kwargs_gets_every_argument(hooks: Hooks) -> None:
    seen: list[dict[str, Any]] = []
    hooks.add(FINALIZE, lambda **arguments: seen.append(arguments))
    hooks.call(FINALIZE, session_id="s", platform="cli", extra=1)
    assert seen == [{"session_id": "s", "platform": "cli", "extra": 1}]


@pytest.mark.requirement("hooks:arguments")
def test_hook_gets_reason_and_both_ids(hooks: Hooks) -> None:
    seen = []

    def implementation(reason, new_session_id, old_session_id, session_id, **rest):
        seen.append((session_id, reason, old_session_id, new_session_id, sorted(rest)))

    hooks.add(FINALIZE, implementation)
    hooks.call_boundary("old", "new", "cli", "new_session")
    assert len(seen) == 1
    assert seen[0][:4] == ("old", "new_session", "old", "new")


def test_hook_gets_none_for_unknown_values(hooks: Hooks) -> None:
    seen = []
    hooks.add("on_session_end", lambda task_id, completed=True: seen.append((task_id, completed)))
    hooks.call("on_session_end", session_id="s", platform="cli")
    assert seen == [(None, True)]


def test_hook_accepts_positional_and_partial_functions(hooks: Hooks) -> None:
    seen = []

    def implementation(mark, session_id, /, *, platform):
        seen.append((mark, session_id, platform))

    hooks.add(RESET, partial(implementation, "mark"))
    hooks.call(RESET, session_id="s", platform="tui")
    assert seen == [("mark", "s", "tui")]


def test_hook_gets_platform_as_string(hooks: Hooks) -> None:
    seen: list[Any] = []
    hooks.add(RESET, lambda platform, **_: seen.append(platform))
    hooks.call(RESET, session_id="s", platform=Platform.TELEGRAM)
    assert seen == ["telegram"]
    assert type(seen[0]) is str


def test_hook_call_with_unknown_argument_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="no argument 'user_id'"):
        hooks.add(RESET, lambda user_id: user_id)
    assert hooks.list_names() == []


def test_unknown_hook_name_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="'on_session_stop' does not exist"):
        hooks.add("on_session_stop", lambda: None)


# -- where implementations come from -----------------------------------------------------------


class Marked:
    """A plugin with pluggy markers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    @hookimpl(tryfirst=True)
    def on_session_reset(self, session_id: str) -> None:
        """Take the first place in the order of calls."""
        self.seen.append((RESET, session_id))

    @hookimpl(specname="on_session_finalize")
    def farewell(self, session_id: str, platform: str) -> None:
        """Implement a hook under another name."""
        self.seen.append((FINALIZE, session_id, platform))


class NamedPlugin:
    """A plugin that implements hooks by function name only."""

    seen: list[str] = []  # noqa: RUF012 -- shared on purpose, to be looked at

    def on_session_start(self, session_id: str) -> None:
        """Implement the hook of this name."""
        self.seen.append(session_id)

    def something_else(self) -> None:
        """Implement no hook."""
        raise AssertionError


def test_plugin_with_marked_functions_is_called(hooks: Hooks) -> None:
    plugin = Marked()
    assert hooks.register(plugin) == "Marked"
    hooks.call_boundary("old", "new", "cli")
    assert plugin.seen == [(FINALIZE, "old", "cli"), (RESET, "new")]


def test_plugin_with_hook_names_needs_no_marks(hooks: Hooks) -> None:
    NamedPlugin.seen.clear()
    hooks.register(NamedPlugin)
    hooks.call("on_session_start", session_id="s", platform="cli")
    assert NamedPlugin.seen == ["s"]


def test_function_named_like_hook_registers_directly(hooks: Hooks) -> None:
    seen = []

    @hooks.register
    def on_session_reset(session_id: str) -> None:
        seen.append(session_id)

    hooks.call(RESET, session_id="s", platform="cli")
    assert seen == ["s"]


def test_plugin_without_hooks_is_refused(hooks: Hooks) -> None:
    with pytest.raises(InvalidInput, match="has no hook"):
        hooks.register(object())
    assert hooks.list_names() == []


def test_plugin_with_unknown_argument_is_refused_whole(hooks: Hooks) -> None:
    class Wrong:
        @hookimpl
        def on_session_reset(self, session_id):
            """Have a valid signature."""

        @hookimpl
        def on_session_finalize(self, user_id):
            """Have an unknown argument."""

    with pytest.raises(InvalidInput, match="is refused"):
        hooks.register(Wrong())
    assert hooks.list_names() == []
    assert hooks.call(RESET, session_id="s", platform="cli").called == ()


def test_plugin_with_misspelt_mark_is_refused(hooks: Hooks) -> None:
    class Misspelt:
        @hookimpl
        def on_session_finalise(self, session_id):
            """Implement no existing hook."""

    with pytest.raises(InvalidInput, match="on_session_finalise"):
        hooks.register(Misspelt())


def test_hook_wrapper_is_refused(hooks: Hooks) -> None:
    class Wrapper:
        @hookimpl(wrapper=True)
        def on_session_reset(self):
            return (yield)

    with pytest.raises(InvalidInput, match="observe"):
        hooks.register(Wrapper())
    assert hooks.list_names() == []


def test_plugin_registers_once(hooks: Hooks) -> None:
    plugin = Marked()
    hooks.register(plugin)
    with pytest.raises(InvalidInput):
        hooks.register(plugin)
    hooks.call(RESET, session_id="s", platform="cli")
    assert plugin.seen == [(RESET, "s")]


def test_removed_plugin_is_not_called(hooks: Hooks) -> None:
    seen: list[str] = []
    names = [hooks.add(RESET, noting(seen)) for _ in range(2)]
    names.append(hooks.register(NamedPlugin))
    assert len(set(names)) == 3
    assert [hooks.remove(name) for name in names] == [True, True, True]
    assert not hooks.remove(names[0])
    hooks.call(RESET, session_id="s", platform="cli")
    assert (seen, hooks.list_names()) == ([], [])


def entry_points(*found: metadata.EntryPoint) -> Callable[..., metadata.EntryPoints]:
    return lambda *, group: metadata.EntryPoints(found).select(group=group)


def test_broken_installed_plugin_is_reported_once(
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


class SlowPlugin(metadata.EntryPoint):
    """A plugin whose import waits until the test opens the gate."""

    gate: threading.Event

    def load(self) -> Any:
        """Wait at the gate."""
        self.gate.wait()
        return Marked


@pytest.mark.requirement("hooks:imports")
def test_hanging_plugin_import_is_reported_then_registered(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    SlowPlugin.gate = gate
    slow = SlowPlugin("slow", "somewhere", "mcp_sessions")
    monkeypatch.setattr(metadata, "entry_points", entry_points(slow))
    hooks = Hooks(timeout_s=SHORT_S, report=lambda *_: None)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert [(fault.plugin, fault.how) for fault in report.failed] == [("slow", "timed_out")]
    gate.set()
    deadline = time.monotonic() + 5
    while hooks.list_names() != ["slow"] and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert hooks.call(RESET, session_id="t", platform="cli").called == ("slow",)


def test_installed_entry_points_load_without_fault() -> None:
    assert Hooks().call(RESET, session_id="s", platform="cli").failed == ()
