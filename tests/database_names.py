"""The public names of the state database and of its parts, such as `rows.put_images`."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, get_type_hints

PARTS = ("rows", "routes", "admin")


def get_part(engine: type, part: str) -> Any:
    """Return the class of a part of an engine."""
    return get_type_hints(getattr(engine, part).fget)["return"]


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
