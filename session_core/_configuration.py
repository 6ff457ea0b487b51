"""Where the values of a configuration stand: two files and the environment, none of which is sure.

Nothing here is raised and nothing is written; what cannot be read is left out and said, without a
word of the file itself, in which secrets are.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core._files import read_file

WORDS = {"true": True, "1": True, "yes": True, "on": True}
WORDS |= {"false": False, "0": False, "no": False, "off": False}

_MOST_NODES, _MOST_DEEP, _MOST_DIGITS = 1_000_000, 100, 4_000

Problem = tuple[tuple[str, ...], str]
"""Where the value is that cannot be used, and what of it."""

_IN_YAML = (
    "group_sessions_per_user",
    "thread_sessions_per_user",
    "multiplex_profiles",
    "write_sessions_json",
)
_ONLY_IN_JSON = (
    "default_reset_policy",
    "reset_by_platform",
    "reset_by_type",
    "session_store_max_age_days",
    "sessions_dir",
)
_FRESHNESS = "auto_continue_freshness_s"
_OLD_FRESHNESS = "gateway_auto_continue_freshness"
_OF_POLICY = {"SESSION_IDLE_MINUTES": "idle_minutes", "SESSION_RESET_HOUR": "at_hour"}
_UNREADABLE = (
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    TypeError,
    RecursionError,
)
"""What readers of JSON and YAML raise: a tag on a value that it does not fit may be any of them."""


@dataclass
class Found:
    """The values that were found, where each of them stands, and what cannot be used of them."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add_json(self, path: Path) -> None:
        """Take what the older file says."""
        self.values = self._read(path, json.loads)
        self.places = {(name,): f"{path.name}: {name}" for name in self.values}

    def add_yaml(self, path: Path) -> None:
        """Take what the file says that the older one may have said otherwise."""
        told = self._read(path, _parse_yaml)
        section = told.get("gateway")
        nested = section if isinstance(section, Mapping) else {}
        for name in (*_IN_YAML, "session_reset"):
            where = told if name in told else nested
            if name in where:
                place = f"{path.name}: {name if where is told else f'gateway.{name}'}"
                self._take(name, where[name], place)
        agent = told.get("agent")
        if isinstance(agent, Mapping) and _OLD_FRESHNESS in agent:
            self._take(_FRESHNESS, agent[_OLD_FRESHNESS], f"{path.name}: agent.{_OLD_FRESHNESS}")
        for name in _ONLY_IN_JSON:
            if name in told or name in nested:
                self._say(f"{path.name}: {name} is read from gateway.json alone")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Take what the environment says, where that can be used."""
        for variable, name in _OF_POLICY.items():
            if text := environ.get(variable):
                self._set_of_policy(name, text, variable)
        freshness = environ.get("HERMES_AUTO_CONTINUE_FRESHNESS")
        if freshness and _FRESHNESS not in self.values:  # here the file comes first
            self._take(_FRESHNESS, freshness, "HERMES_AUTO_CONTINUE_FRESHNESS")
        word = environ.get("GATEWAY_MULTIPLEX_PROFILES", "").strip().lower()
        if word in WORDS:
            self.values["multiplex_profiles"] = WORDS[word]
        elif word:
            self._say(f"GATEWAY_MULTIPLEX_PROFILES cannot be {shown(word)}")

    def sentences(self) -> tuple[str, ...]:
        """Return the problems with the places where the values stand."""
        return tuple(f"{self._place(path)} {what}".strip() for path, what in self.problems)

    def _read(self, path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
        try:
            told = parse(read_file(path).decode()) or {}
        except FileNotFoundError:
            return {}
        except _UNREADABLE as error:
            line = getattr(error, "lineno", None)
            where = f", see line {line}" if line else ""
            why = f": {error.strerror}" if isinstance(error, OSError) else ""
            self._say(f"{path.name} cannot be read{where}{why}")
            return {}
        if not isinstance(told, dict):
            self._say(f"{path.name} has no keys")
            return {}
        return told

    def _take(self, name: str, value: Any, place: str) -> None:
        if name == "session_reset":
            name = "default_reset_policy"
            if not value or not isinstance(value, Mapping):
                if value:
                    self._say(f"{place} cannot be {shown(value)}")
                return
        self.values[name] = value
        self.places[(name,)] = place

    def _set_of_policy(self, name: str, text: str, variable: str) -> None:
        try:
            number = int(text)
        except ValueError:
            self._say(f"{variable} cannot be {shown(text)}")
            return
        policy = self.values.get("default_reset_policy")
        known = policy if isinstance(policy, Mapping) else {}
        self.values["default_reset_policy"] = {**known, name: number}
        self.places["default_reset_policy", name] = variable

    def _say(self, what: str) -> None:
        self.problems.append(((), what))

    def _place(self, path: tuple[str, ...]) -> str:
        for depth in range(len(path), 0, -1):
            if place := self.places.get(path[:depth]):
                return ".".join((place, *path[depth:]))
        return ".".join(path)


def _parse_yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 -- only a home with such a file needs it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _require_small(yaml.parse(text, loader))
        return yaml.load(text, loader)  # noqa: S506 -- both are safe
    except yaml.YAMLError as error:
        found = ValueError("no YAML")
        mark = getattr(error, "problem_mark", None)
        found.lineno = mark.line + 1 if mark else None  # type: ignore[attr-defined]
        raise found from None


def _require_small(events: Iterable[Any]) -> None:
    """Refuse YAML that is nested too deep, or too large once its aliases are written out.

    The C loader overflows its stack on the former, and merged aliases double with each line.
    """
    size = 0
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    for event in events:
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_nodes.append((event.anchor, size))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, before = open_nodes.pop()
            sizes[anchor] = size - before
        size += sizes.get(event.anchor, 0) if kind == "AliasEvent" else 1
        if size > _MOST_NODES or len(open_nodes) > _MOST_DEEP or _is_endless_number(event):
            raise ValueError("too large or nested too deep")


def _is_endless_number(event: Any) -> bool:
    """Return True for a number of base 60 that takes minutes to read."""
    text = getattr(event, "value", "")
    return len(text) > _MOST_DIGITS and not text.strip("0123456789:_.+-")


_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxlevel, _BRIEFLY.maxstring, _BRIEFLY.maxlong, _BRIEFLY.maxother = 4, 200, 100, 200


def shown(given: Any) -> str:
    """Return enough of a value to find it by."""
    try:
        text = _BRIEFLY.repr(given)
    except ValueError:  # a number with more digits than are written
        text = "a very large number"
    return text if len(text) <= 40 else f"{text[:39]}…"  # noqa: PLR2004 -- enough to find it by
