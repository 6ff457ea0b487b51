"""Who implements the hooks: functions and plugins, from code and from what is installed."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pluggy

from session_core.errors import InvalidInput
from session_core.hooks.calls import IsolatedCall
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
"""Marks an implementation; a function that is named like its hook needs no mark."""


class HookRegistry:
    """The implementations of the hooks by name."""

    def __init__(self, group: str | None, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._group = group
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(SessionHooks)
        self._parts: dict[str, list[str]] = {}

    def add(self, hook: str, function: Callable[..., object], name: str | None = None) -> str:
        """Add one function, which takes the arguments it wants; return the name to remove it by.

        Raises:
            InvalidInput: there is no such hook, or no such argument of it.
        """
        check_function(hook, function)

        def call(**given: Any) -> object:
            return call_with_arguments(hook, function, given)

        label = getattr(function, "__qualname__", type(function).__qualname__)
        plugin = _FunctionPlugin()
        setattr(plugin, hook, hookimpl(call))
        with self._lock:
            name = self._find_free_name(name or label)
            self._manager.register(plugin, name)
        return name

    def register(self, plugin: object, name: str | None = None) -> str:
        """Add a plugin: a function, module, object or class with functions named like hooks.

        They may be marked by `hookimpl`, and need not. Return the name to remove the plugin by.

        Raises:
            InvalidInput: it has no hook, or one that takes what there is not.
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
                self.remove(name)
                raise
        return name

    def remove(self, name: str) -> bool:
        """Remove a plugin or function by its name; return whether it was there."""
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
        """Return who implements a hook, in the order in which pluggy calls them."""
        check_hook(hook)
        with self._lock:
            caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
            return caller.get_hookimpls()[::-1]

    @property
    def is_loaded(self) -> bool:
        """Whether the plugins that are installed are there."""
        return self._group is None

    def load_installed(self) -> list[HookFault]:
        """Load the plugins that are installed, the first time; return which are not there.

        One that takes too long to be imported is there when it has been.
        """
        # Not under the other lock: a plugin may add functions while it is imported elsewhere.
        with self._loading:
            group, self._group = self._group, None
            if group is None:
                return []
            faults = []
            for entry in metadata.entry_points(group=group):
                call = IsolatedCall(partial(self._load_entry, entry), self.timeout_s)
                if call.wait() is not None:
                    how: HookFaultKind = "refused" if call.error else "timed_out"
                    faults.append(HookFault(entry.name, "", how, call.error))
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
                        "hooks of sessions observe, so there is nothing to wrap"
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
    """A plugin of one function."""
