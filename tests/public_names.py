"""The public names of the library, and those of the state database with its parts."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter
from typing import Any, get_type_hints

MODULES = (
    "session_core",
    "session_core.compression",
    "session_core.hooks",
    "session_core.ledger",
    "session_core.lifecycle",
    "session_core.maintenance",
    "session_core.routing",
    "session_core.state",
    "session_core.transcripts",
    "session_core.types",
)
"""The public modules of the library; a name that two of them have is listed with the first."""


def list_values() -> dict[str, dict[str, Any]]:
    """Return the public values of the library by module and name."""
    values: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for module_name in MODULES:
        module = import_module(module_name)
        names = set(getattr(module, "__all__", None) or _list_classes(module)) - seen
        values[module_name] = {name: getattr(module, name) for name in sorted(names)}
        seen |= names
    return values


def _list_classes(module: Any) -> list[str]:
    classes = inspect.getmembers(module, inspect.isclass)
    return [name for name, value in classes if value.__module__ == module.__name__]


PARTS = ("rows", "routes", "admin", "meta", "state", "sdk")


def get_part(engine: type, part: str) -> Any:
    """Return the class of a part of an engine."""
    member = getattr(engine, part, None)
    if member is None:
        return type(getattr(engine("unused.db"), part))
    return get_type_hints(member.fget)["return"]


def list_public_names(engine: type) -> set[str]:
    """Return the public names of an engine and of its parts, without the parts themselves."""
    names = {name for name in dir(engine) if not name.startswith("_")} - set(PARTS)
    for part in PARTS:
        names |= {f"{part}.{name}" for name in dir(get_part(engine, part)) if name[0] != "_"}
    return names


def find_member(engine: type, name: str) -> Any:
    """Return the member of an engine with a name of `list_public_names`."""
    part, dot, member = name.rpartition(".")
    return getattr(get_part(engine, part), member) if dot else attrgetter(name)(engine)
