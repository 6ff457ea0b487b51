"""Registration of hook implementations: functions, plugins, and installed entry points."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pluggy

from session_core.errors import InvalidInput
from session_core.hooks.foreign_calls import IsolatedCall
from session_core.hooks.specs import (
    GROUP,
    HOOKS,
    HookFault,
    HookFaultKind,
    SessionHooks,
    call_with_arguments,
    check_function,
    check_hook,
)

hookimpl = pluggy.HookimplMarker(GROUP)
"""Marks an implementation; a function with the name of its hook needs no mark."""


class HookRegistry:
    """The implementations of the hooks, by plugin name."""

    def __init__(self, group: str | None, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._group = group
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(SessionHooks)
        self._parts: dict[str, list[str]] = {}

    def add(self, hook: str, function: Callable[..., object], name: str | None = None) -> str:
        """Add a function as implementation of a hook.

        Return the name by which to remove it. The function takes any of the arguments of the hook.

        Raises:
            InvalidInput: the hook does not exist, or has no such argument.
        """
        check_function(hook, function)

        def call_function(**arguments: Any) -> object:
            return call_with_arguments(hook, function, arguments)

        label = getattr(function, "__qualname__", type(function).__qualname__)
        plugin = _FunctionPlugin()
        setattr(plugin, hook, hookimpl(call_function))
        with self._lock:
            name = self._find_free_name(name or label)
            self._manager.register(plugin, name)
        return name

    def register(self, plugin: object, name: str | None = None) -> str:
        """Add a plugin, and return the name by which to remove it.

        A plugin is a function, module, object or class with functions that have names of hooks. A
        function declares only the arguments that it needs. `hookimpl` marks are optional.

        Args:
            plugin: the plugin.
            name: the name of the plugin; by default, its own name.

        Raises:
            InvalidInput: the plugin has no hook, or a hook with an unknown argument.

        Example:
            >>> from session_core import Hooks
            >>> def on_session_finalize(session_id, reason):
            ...     print(session_id, reason)
            >>> hooks = Hooks(group=None)
            >>> hooks.register(on_session_finalize)
            'on_session_finalize'
            >>> _ = hooks.call("on_session_finalize", session_id="s1", reason="closed")
            s1 closed
        """
        if inspect.isroutine(plugin):
            return self.add(plugin.__name__, plugin, name)
        if inspect.isclass(plugin):
            plugin = plugin()
        label = getattr(plugin, "__name__", type(plugin).__qualname__)
        with self._lock:
            name = self._find_free_name(name or str(label))
            self._parts[name] = []
            try:
                marked = self._register_marked(plugin, name)
                self._register_named(plugin, name, marked)
            except BaseException:
                # A plugin is added as a whole or not at all.
                self.remove(name)
                raise
        return name

    def remove(self, name: str) -> bool:
        """Remove a plugin or function by its name.

        Return whether it existed.
        """
        with self._lock:
            for part in self._parts.pop(name, ()):
                self._manager.unregister(name=part)
            if self._manager.get_plugin(name) is None:
                return False
            self._manager.unregister(name=name)
            return True

    def list_names(self) -> list[str]:
        """Return the names of all plugins and functions."""
        with self._lock:
            return [name for name, plugin in self._manager.list_name_plugin() if plugin]

    def list_implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Return the implementations of a hook, in the order in which pluggy calls them."""
        check_hook(hook)
        with self._lock:
            caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
            return caller.get_hookimpls()[::-1]

    @property
    def is_loaded(self) -> bool:
        """True if the installed plugins were loaded."""
        return self._group is None

    def load_installed(self) -> list[HookFault]:
        """Load the installed plugins at the first call.

        Return the faults. A plugin that exceeds the time limit is added when its import ends.
        """
        # Not under self._lock: a plugin may add functions while it is imported in another thread.
        with self._loading:
            group, self._group = self._group, None
            if group is None:
                return []
            faults = []
            for entry in metadata.entry_points(group=group):
                call = IsolatedCall(partial(self._load_entry, entry), self.timeout_s)
                if call.wait() is not None:
                    fault_kind: HookFaultKind = "refused" if call.error else "timed_out"
                    faults.append(HookFault(entry.name, "", fault_kind, call.error))
            return faults

    def _load_entry(self, entry: metadata.EntryPoint) -> None:
        self.register(entry.load(), entry.name)

    def _register_marked(self, plugin: object, name: str) -> set[str]:
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise InvalidInput(f"plugin {name} is refused: {error}") from error
        callers = self._manager.get_hookcallers(plugin) or []
        for caller in callers:
            for implementation in caller.get_hookimpls():
                if implementation.hookwrapper or implementation.wrapper:
                    raise InvalidInput(
                        f"plugin {implementation.plugin_name} wraps {caller.name}; "
                        "session hooks observe and cannot be wrapped"
                    )
        return {caller.name for caller in callers}

    def _register_named(self, plugin: object, name: str, marked: set[str]) -> None:
        parts = self._parts[name]
        for hook in HOOKS:
            function = getattr(plugin, hook, None)
            if hook not in marked and callable(function):
                parts.append(self.add(hook, function, f"{name}.{hook}"))
        if not marked and not parts:
            raise InvalidInput(f"plugin {name} has no hook; hooks are {', '.join(HOOKS)}")

    def _find_free_name(self, label: str) -> str:
        name, number = label, 1
        while self._manager.has_plugin(name):
            number += 1
            name = f"{label}#{number}"
        return name


class _FunctionPlugin:
    """A plugin that holds one function."""
