"""The configuration of the session store, from `config.yaml`, `gateway.json` and the environment.

No file and no value in a file prevents a start: an invalid value is replaced by its default and
reported in `GatewayConfig.problems`, without the text of the file, which may contain secrets. A
live gateway reads the same files, so values have the same meaning here. An invalid value that code
passes is refused. Only this module loads pydantic.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from session_core._atomic import read_file
from session_core.chats import Platform, parse_platform
from session_core.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Self


RESET_MODES = ("none", "idle", "daily", "both")

_MIN_NAME_SIMILARITY = 0.8
"""The similarity from which an unknown name counts as a misspelling of a known one."""

_POLICY_HINT = "a SessionResetPolicy or a mapping of its values"
_POLICIES_HINT = f"a mapping of names to {_POLICY_HINT}"
_BOOL_HINT = "true or false"
_VALID_VALUES = {
    "mode": f"one of {', '.join(RESET_MODES)}",
    "at_hour": "an integer from 0 to 23",
    "idle_minutes": "a number > 0",
    "default_reset_policy": _POLICY_HINT,
    "reset_by_type": _POLICIES_HINT,
    "reset_by_platform": _POLICIES_HINT,
    "sessions_dir": "a path",
    "write_sessions_json": _BOOL_HINT,
    "group_sessions_per_user": _BOOL_HINT,
    "thread_sessions_per_user": _BOOL_HINT,
    "multiplex_profiles": _BOOL_HINT,
    "session_store_max_age_days": "a number of days, 0 to keep all",
    "auto_continue_freshness_s": "a number of seconds",
}
"""Descriptions of the valid values by field."""


def _parse_bool(value: Any) -> Any:
    """Return words for yes and no as a bool."""
    if isinstance(value, str):
        return BOOL_WORDS.get(value.strip().lower(), value)
    return bool(value) if isinstance(value, (int, float)) else value


def _parse_finite_number(value: Any) -> Any:
    """Return a finite number, and refuse a bool."""
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not a number")  # noqa: TRY004 -- pydantic expects a ValueError
    return value


def _parse_days(value: Any) -> Any:
    """Return whole days >= 0, with 0 for `off`."""
    if value is False:
        return 0
    return max(int(value if isinstance(value, str) else _parse_finite_number(value)), 0)


def _parse_mode(value: Any) -> Any:
    return "none" if value is False else value  # YAML reads `off` as False


def _parse_folder(value: Any) -> Any:
    return None if value == "" else value


def _parse_policies(value: Any, info: ValidationInfo) -> Any:
    """Return policies by name, with the default in place of an invalid policy."""
    if not isinstance(value, Mapping):
        return value
    policies = {}
    for key, policy in value.items():
        # Platforms are compared in lower case, as messages name them.
        name = str(parse_platform(key)) if info.field_name == "reset_by_platform" else str(key)
        if not isinstance(policy, (Mapping, SessionResetPolicy, type(None))):
            _raise_or_collect_problem(info, name, f"cannot be {format_value(policy)}")
        with _prefix_problems(info, name):
            policies[name] = _parse_policy(policy, info)
    return policies


def _parse_policy(value: Any, info: ValidationInfo) -> SessionResetPolicy:
    if info.context is None and isinstance(value, Mapping):
        return SessionResetPolicy(**value)
    return SessionResetPolicy.from_dict(value, info.context)


LenientBool = Annotated[bool, BeforeValidator(_parse_bool)]
FiniteNumber = Annotated[int | float, BeforeValidator(_parse_finite_number)]
Minutes = Annotated[int | float, Field(gt=0), BeforeValidator(_parse_finite_number)]
Hour = Annotated[int, Field(ge=0, le=23), BeforeValidator(_parse_finite_number)]
Days = Annotated[int, BeforeValidator(_parse_days)]
Folder = Annotated[Path | None, BeforeValidator(_parse_folder)]


class _Settings(BaseModel):
    """A group of values, including unknown values of newer gateways.

    If the validation context is a list, an invalid value is replaced by its default and the reason
    is added to the list. Without a list, as in code, it is refused.
    """

    model_config = ConfigDict(extra="allow", populate_by_name=True, validate_assignment=True)

    def __new__(cls, **values: Any) -> Self:
        """Check values from code.

        An `__init__` would also be called by pydantic itself.

        Raises:
            InvalidInput: a value is invalid, or an unknown name resembles a known one.
        """
        for name in values.keys() - cls.model_fields.keys():
            # Unknown names are kept, so only a likely misspelling is refused.
            similar = get_close_matches(name, cls.model_fields, n=1, cutoff=_MIN_NAME_SIMILARITY)
            if similar:
                raise InvalidInput(f"{name} is not a setting; did you mean {similar[0]}?")
        if values:
            with _translate_errors():
                cls.model_validate(values)
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set and check a value from code."""
        with _translate_errors():
            super().__setattr__(name, value)

    @model_validator(mode="before")
    @classmethod
    def _convert_keys_to_text(cls, value: Any) -> Any:
        """Convert keys that YAML has read as numbers or bools to text."""
        return {str(key): value[key] for key in value} if isinstance(value, Mapping) else value

    @field_validator("*", mode="wrap")
    @classmethod
    def _replace_invalid_value(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        name = str(info.field_name)
        if value is not None:  # a key without a value is ignored
            try:
                with _prefix_problems(info, name):
                    return handler(value)
            except ValidationError:
                if info.context is None:
                    raise
                _raise_or_collect_problem(info, name, f"cannot be {format_value(value)}")
        return cls.model_fields[name].get_default(call_default_factory=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the known fields only, since unknown fields may be secret."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for storage as JSON, including unknown values."""
        return self.model_dump(mode="json")


class SessionResetPolicy(_Settings):
    """The rules by which a chat starts a new session by itself.

    `mode` is `none`, `idle` (no message for `idle_minutes`), `daily` (at `at_hour`), or `both`. An
    unknown mode in a file counts as `none`.

    Example:
        >>> from session_core import GatewayConfig, SessionResetPolicy
        >>> idle = SessionResetPolicy(mode="idle", idle_minutes=60)
        >>> config = GatewayConfig(reset_by_platform={"slack": idle})
        >>> config.get_reset_policy("slack").idle_minutes, config.get_reset_policy("telegram").mode
        (60, 'none')
    """

    mode: Annotated[str, BeforeValidator(_parse_mode)] = "none"
    at_hour: Hour = 4
    idle_minutes: Minutes = 1440

    @field_validator("mode")
    @classmethod
    def _report_unknown_mode(cls, mode: str, info: ValidationInfo) -> str:
        if mode not in RESET_MODES:
            _raise_or_collect_problem(info, "mode", f"is {format_value(mode)}, which is like none")
        return mode

    @classmethod
    def from_dict(
        cls, stored: Any, problems: list[ConfigProblem] | None = None
    ) -> SessionResetPolicy:
        """Return a stored policy."""
        if isinstance(stored, SessionResetPolicy):
            return stored
        context = [] if problems is None else problems
        return cls.model_validate(stored if isinstance(stored, Mapping) else {}, context=context)


PoliciesByName = Annotated[dict[str, SessionResetPolicy], BeforeValidator(_parse_policies)]


class GatewayConfig(_Settings):
    """The settings of a session store.

    A policy by platform precedes a policy by chat type, which precedes the default policy. `load`
    reads the settings of a home.
    """

    default_reset_policy: SessionResetPolicy = Field(default_factory=SessionResetPolicy)
    reset_by_type: PoliciesByName = Field(default_factory=dict)
    reset_by_platform: PoliciesByName = Field(default_factory=dict)
    sessions_dir: Folder = None
    write_sessions_json: LenientBool = True
    group_sessions_per_user: LenientBool = True
    thread_sessions_per_user: LenientBool = False
    multiplex_profiles: LenientBool = False
    session_store_max_age_days: Days = 90
    auto_continue_freshness_s: FiniteNumber = 3600

    _problems: tuple[str, ...] = PrivateAttr(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each invalid value of the files or the dict that were loaded."""
        return self._problems

    def get_reset_policy(
        self, platform: Platform | str | None = None, chat_type: str | None = None
    ) -> SessionResetPolicy:
        """Return the policy of a chat: by platform, else by chat type, else the default."""
        name = str(parse_platform(platform)) if platform else ""
        by_type = self.reset_by_type.get(chat_type or "", self.default_reset_policy)
        return self.reset_by_platform.get(name, by_type)

    @classmethod
    def from_dict(cls, stored: Any) -> GatewayConfig:
        """Return a stored configuration."""
        return cls._from_values(ConfigValues(dict(stored) if isinstance(stored, Mapping) else {}))

    @classmethod
    def load(
        cls, home: str | os.PathLike[str], environ: Mapping[str, str] | None = None
    ) -> GatewayConfig:
        """Return the configuration of a home, without raising errors.

        The environment precedes `config.yaml`, which precedes `gateway.json`.
        """
        values = ConfigValues()
        # Later sources replace the values of earlier ones.
        values.add_json(Path(home, "gateway.json"))
        values.add_yaml(Path(home, "config.yaml"))
        values.add_environment(os.environ if environ is None else environ)
        config = cls._from_values(values)
        # Relative to the home: the working folder of the gateway is not known here.
        config.sessions_dir = Path(home, config.sessions_dir or "sessions")
        return config

    @classmethod
    def _from_values(cls, values: ConfigValues) -> GatewayConfig:
        config = cls.model_validate(values.values, context=values.problems)
        config._problems = values.format_problems()  # noqa: SLF001 -- an attribute of this class
        return config


def _raise_or_collect_problem(info: ValidationInfo, name: str, what: str) -> None:
    if info.context is None:
        raise ValueError(what)
    info.context.append(((name,) if name else (), what))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise validation errors of pydantic as `InvalidInput`, with the valid values."""
    try:
        yield
    except ValidationError as error:
        raise InvalidInput("; ".join(map(_format_error, error.errors()))) from None


def _format_error(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, InvalidInput):
        return f"{place}: {inner}"
    valid = _VALID_VALUES.get(str(error["loc"][-1]), "another value")
    return f"{place} must be {valid}, got {format_value(error['input'])}"


@contextmanager
def _prefix_problems(info: ValidationInfo, name: str) -> Iterator[None]:
    """Add a field name to the problems that are reported inside the block."""
    problems = info.context if info.context is not None else []
    before = len(problems)
    yield
    problems[before:] = [((name, *path), what) for path, what in problems[before:]]


BOOL_WORDS = {"true": True, "1": True, "yes": True, "on": True}
BOOL_WORDS |= {"false": False, "0": False, "no": False, "off": False}

_MOST_NODES, _MOST_DEEP, _MOST_DIGITS = 1_000_000, 100, 4_000

ConfigProblem = tuple[tuple[str, ...], str]
"""The path of an invalid value and a description of the problem."""

_YAML_FIELDS = (
    "group_sessions_per_user",
    "thread_sessions_per_user",
    "multiplex_profiles",
    "write_sessions_json",
)
_JSON_ONLY_FIELDS = (
    "default_reset_policy",
    "reset_by_platform",
    "reset_by_type",
    "session_store_max_age_days",
    "sessions_dir",
)
_FRESHNESS_KEY = "auto_continue_freshness_s"
_OLD_FRESHNESS_KEY = "gateway_auto_continue_freshness"
_POLICY_VARIABLES = {"SESSION_IDLE_MINUTES": "idle_minutes", "SESSION_RESET_HOUR": "at_hour"}
_READ_ERRORS = (
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    TypeError,
    RecursionError,
)
"""Exceptions of JSON and YAML readers; a tag on an unsuitable value may raise any of them."""


@dataclass
class ConfigValues:
    """Values from all sources, the place of each, and the problems."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)

    def add_json(self, path: Path) -> None:
        """Add the values of `gateway.json`."""
        self.values = self._read_mapping(path, json.loads)
        self.places = {(name,): f"{path.name}: {name}" for name in self.values}

    def add_yaml(self, path: Path) -> None:
        """Add the values of `config.yaml`, which replace values of `gateway.json`."""
        document = self._read_mapping(path, _parse_yaml)
        section = document.get("gateway")
        nested = section if isinstance(section, Mapping) else {}
        # Hermes accepts these keys at the top level and under `gateway`.
        for name in (*_YAML_FIELDS, "session_reset"):
            mapping = document if name in document else nested
            if name in mapping:
                place = f"{path.name}: {name if mapping is document else f'gateway.{name}'}"
                self._set_value(name, mapping[name], place)
        agent = document.get("agent")
        if isinstance(agent, Mapping) and _OLD_FRESHNESS_KEY in agent:
            self._set_value(
                _FRESHNESS_KEY,
                agent[_OLD_FRESHNESS_KEY],
                f"{path.name}: agent.{_OLD_FRESHNESS_KEY}",
            )
        for name in _JSON_ONLY_FIELDS:
            if name in document or name in nested:
                self._add_problem(f"{path.name}: {name} is read from gateway.json alone")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Add the valid values of environment variables."""
        for variable, name in _POLICY_VARIABLES.items():
            if text := environ.get(variable):
                self._set_policy_value(name, text, variable)
        freshness = environ.get("HERMES_AUTO_CONTINUE_FRESHNESS")
        if freshness and _FRESHNESS_KEY not in self.values:  # here the file comes first
            self._set_value(_FRESHNESS_KEY, freshness, "HERMES_AUTO_CONTINUE_FRESHNESS")
        word = environ.get("GATEWAY_MULTIPLEX_PROFILES", "").strip().lower()
        if word in BOOL_WORDS:
            self.values["multiplex_profiles"] = BOOL_WORDS[word]
        elif word:
            self._add_problem(f"GATEWAY_MULTIPLEX_PROFILES cannot be {format_value(word)}")

    def format_problems(self) -> tuple[str, ...]:
        """Return the problems, each with the place of its value."""
        return tuple(f"{self._find_place(path)} {what}".strip() for path, what in self.problems)

    def _read_mapping(self, path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
        try:
            document = parse(read_file(path).decode()) or {}
        except FileNotFoundError:
            return {}
        except _READ_ERRORS as error:
            line = getattr(error, "lineno", None)
            position = f", see line {line}" if line else ""
            reason = f": {error.strerror}" if isinstance(error, OSError) else ""
            self._add_problem(f"{path.name} cannot be read{position}{reason}")
            return {}
        if not isinstance(document, dict):
            self._add_problem(f"{path.name} is not a mapping")
            return {}
        return document

    def _set_value(self, name: str, value: Any, place: str) -> None:
        if name == "session_reset":
            name = "default_reset_policy"
            if not value or not isinstance(value, Mapping):
                if value:
                    self._add_problem(f"{place} cannot be {format_value(value)}")
                return
        self.values[name] = value
        self.places[(name,)] = place

    def _set_policy_value(self, name: str, text: str, variable: str) -> None:
        try:
            number = int(text)
        except ValueError:
            self._add_problem(f"{variable} cannot be {format_value(text)}")
            return
        policy = self.values.get("default_reset_policy")
        values = policy if isinstance(policy, Mapping) else {}
        self.values["default_reset_policy"] = {**values, name: number}
        self.places["default_reset_policy", name] = variable

    def _add_problem(self, what: str) -> None:
        self.problems.append(((), what))

    def _find_place(self, path: tuple[str, ...]) -> str:
        for depth in range(len(path), 0, -1):
            if place := self.places.get(path[:depth]):
                return ".".join((place, *path[depth:]))
        return ".".join(path)


def _parse_yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 -- only homes with a config.yaml need it

    # PyYAML may be installed without its C library.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Before the load, which would already have taken the memory.
        _check_yaml_size(yaml.parse(text, loader))
        return yaml.load(text, loader)  # noqa: S506 -- both loaders are safe
    except yaml.YAMLError as error:
        invalid = ValueError("invalid YAML")
        mark = getattr(error, "problem_mark", None)
        invalid.lineno = mark.line + 1 if mark else None  # type: ignore[attr-defined]
        raise invalid from None


def _check_yaml_size(events: Iterable[Any]) -> None:
    """Refuse YAML that is nested too deeply, or too large with its aliases expanded.

    The C loader overflows its stack on deep nesting, and merged aliases double with each line.
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
    """Return True for a base-60 number that would take minutes to parse."""
    text = getattr(event, "value", "")
    return len(text) > _MOST_DIGITS and not text.strip("0123456789:_.+-")


_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxlevel, _SHORT_REPR.maxstring, _SHORT_REPR.maxlong, _SHORT_REPR.maxother = (
    4,
    200,
    100,
    200,
)


def format_value(value: Any) -> str:
    """Return a short representation of a value, with which it can be found."""
    try:
        text = _SHORT_REPR.repr(value)
    except ValueError:  # a number with more digits than are written
        text = "a very large number"
    return text if len(text) <= 40 else f"{text[:39]}…"  # noqa: PLR2004 -- long enough to find the value
