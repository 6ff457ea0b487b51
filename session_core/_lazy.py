"""Import the names of a package on first use, so that reading a session does not load the rest.

The types of the names are in the `__init__.pyi` next to each `__init__.py`; a test compares both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def export_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from its names by module."""
    modules_by_name = {name: module for module, names in modules.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in modules_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{modules_by_name[name]}")
        value = vars(sys.modules[package])[name] = getattr(module, name)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules_by_name})

    return sorted(modules_by_name), import_name, list_names
