"""What the session store is told by configuration: `config.yaml` and the older `gateway.json`.

No file and no value in a file stops a start: what cannot be used gives way to its default, and
`GatewayConfig.problems` says so. A live gateway reads the same files, so what they say means here
what it means there. A value that code passes and that cannot be used is refused: it is a mistake
of the caller, who is there to mend it. Importing this loads pydantic; nothing else needs it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

from session_core._configuration import WORDS, Found, Problem, shown
from session_core.errors import InvalidInput
from session_core.keys import Platform, as_platform

if TYPE_CHECKING:
    from typing_extensions import Self

MODES = ("none", "idle", "daily", "both")

_NEAR = 0.8
"""A name as near as that to a known one is a mistyped one."""

_POLICY = "a SessionResetPolicy or a mapping of its values"
_POLICIES = f"a mapping of names to {_POLICY}"
_YES_NO = "true or false"
_VALID = {
    "mode": f"one of {', '.join(MODES)}",
    "at_hour": "an integer from 0 to 23",
    "idle_minutes": "a number > 0",
    "default_reset_policy": _POLICY,
    "reset_by_type": _POLICIES,
    "reset_by_platform": _POLICIES,
    "sessions_dir": "a path",
    "write_sessions_json": _YES_NO,
    "group_sessions_per_user": _YES_NO,
    "thread_sessions_per_user": _YES_NO,
    "multiplex_profiles": _YES_NO,
    "session_store_max_age_days": "a number of days, 0 to keep all",
    "auto_continue_freshness_s": "a number of seconds",
}
"""By field, the values that can be used."""


def _truth(given: Any) -> Any:
    """Return what people write for yes and no as a bool."""
    if isinstance(given, str):
        return WORDS.get(given.strip().lower(), given)
    return bool(given) if isinstance(given, (int, float)) else given


def _number(given: Any) -> Any:
    """Return a finite number; yes and no are none."""
    if isinstance(given, str):
        given = float(given)
    if isinstance(given, float) and math.isfinite(given):
        return int(given) if given.is_integer() else given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError("no number")  # noqa: TRY004 -- what a validator may raise
    return given


def _days(given: Any) -> Any:
    """Return whole days: less than none is 0, and so is `off`."""
    if given is False:
        return 0
    return max(int(given if isinstance(given, str) else _number(given)), 0)


def _mode(given: Any) -> Any:
    return "none" if given is False else given  # what YAML makes of `off`


def _folder(given: Any) -> Any:
    return None if given == "" else given


def _policies(given: Any, info: ValidationInfo) -> Any:
    """Return policies by name; one that is broken is like none, and costs no other."""
    if not isinstance(given, Mapping):
        return given
    policies = {}
    for key, policy in given.items():
        name = str(as_platform(key)) if info.field_name == "reset_by_platform" else str(key)
        if not isinstance(policy, (Mapping, SessionResetPolicy, type(None))):
            _report(info, name, f"cannot be {shown(policy)}")
        with _below(info, name):
            policies[name] = _policy(policy, info)
    return policies


def _policy(given: Any, info: ValidationInfo) -> SessionResetPolicy:
    if info.context is None and isinstance(given, Mapping):
        return SessionResetPolicy(**given)
    return SessionResetPolicy.from_dict(given, info.context)


Truth = Annotated[bool, BeforeValidator(_truth)]
Number = Annotated[int | float, BeforeValidator(_number)]
Minutes = Annotated[int | float, Field(gt=0), BeforeValidator(_number)]
Hour = Annotated[int, Field(ge=0, le=23), BeforeValidator(_number)]
Days = Annotated[int, BeforeValidator(_days)]
Folder = Annotated[Path | None, BeforeValidator(_folder)]


class _Settings(BaseModel):
    """Values; unknown ones are kept, as a newer gateway has some.

    If the context is a list, a value that cannot be used gives way to its default, and the list
    gets the reason. Without a list, as in code, it is refused.
    """

    model_config = ConfigDict(extra="allow", populate_by_name=True, validate_assignment=True)

    def __new__(cls, **values: Any) -> Self:
        """Check values from code; pydantic itself passes none, and an `__init__` would get its own.

        Raises:
            InvalidInput: a value cannot be used, or a name looks like a mistyped one.
        """
        for name in values.keys() - cls.model_fields.keys():
            near = get_close_matches(name, cls.model_fields, n=1, cutoff=_NEAR)
            if near:
                raise InvalidInput(f"{name} is not a setting; did you mean {near[0]}?")
        if values:
            with _refused():
                cls.model_validate(values)
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a value from code, as `__init__` takes it."""
        with _refused():
            super().__setattr__(name, value)

    @model_validator(mode="before")
    @classmethod
    def _with_text_keys(cls, given: Any) -> Any:
        """Take a key that YAML made a number or a bool as text, so that it costs no other."""
        return {str(key): given[key] for key in given} if isinstance(given, Mapping) else given

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(
        cls, given: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        name = str(info.field_name)
        if given is not None:  # a key without a value says nothing
            try:
                with _below(info, name):
                    return handler(given)
            except ValidationError:
                if info.context is None:
                    raise
                _report(info, name, f"cannot be {shown(given)}")
        return cls.model_fields[name].get_default(call_default_factory=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Leave out what is not known here: some of it is secret."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)

    def to_dict(self) -> dict[str, Any]:
        """Return what can be stored as JSON, and all that is not known here with it."""
        return self.model_dump(mode="json")


class SessionResetPolicy(_Settings):
    """When a chat starts afresh by itself; a mode in a file that is not known is like none."""

    mode: Annotated[str, BeforeValidator(_mode)] = "none"
    at_hour: Hour = 4
    idle_minutes: Minutes = 1440

    @field_validator("mode")
    @classmethod
    def _say_unknown(cls, mode: str, info: ValidationInfo) -> str:
        if mode not in MODES:
            _report(info, "mode", f"is {shown(mode)}, which is like none")
        return mode

    @classmethod
    def from_dict(cls, stored: Any, problems: list[Problem] | None = None) -> SessionResetPolicy:
        """Return the policy that was stored."""
        if isinstance(stored, SessionResetPolicy):
            return stored
        found = [] if problems is None else problems
        return cls.model_validate(stored if isinstance(stored, Mapping) else {}, context=found)


PoliciesByName = Annotated[dict[str, SessionResetPolicy], BeforeValidator(_policies)]


class GatewayConfig(_Settings):
    """What a session store is told; a policy for a platform comes before one for a type of chat."""

    default_reset_policy: SessionResetPolicy = Field(default_factory=SessionResetPolicy)
    reset_by_type: PoliciesByName = Field(default_factory=dict)
    reset_by_platform: PoliciesByName = Field(default_factory=dict)
    sessions_dir: Folder = None
    write_sessions_json: Truth = True
    group_sessions_per_user: Truth = True
    thread_sessions_per_user: Truth = False
    multiplex_profiles: Truth = False
    session_store_max_age_days: Days = 90
    auto_continue_freshness_s: Number = 3600

    _problems: tuple[str, ...] = PrivateAttr(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be used, a sentence each, when this was loaded or made from a dict."""
        return self._problems

    def policy_for(
        self, platform: Platform | str | None = None, chat_type: str | None = None
    ) -> SessionResetPolicy:
        """Return the policy of a chat: that of its platform, of its type, or the default."""
        name = str(as_platform(platform)) if platform else ""
        by_type = self.reset_by_type.get(chat_type or "", self.default_reset_policy)
        return self.reset_by_platform.get(name, by_type)

    @classmethod
    def from_dict(cls, stored: Any) -> GatewayConfig:
        """Return the configuration that was stored."""
        return cls._of(Found(dict(stored) if isinstance(stored, Mapping) else {}))

    @classmethod
    def load(
        cls, home: str | os.PathLike[str], environ: Mapping[str, str] | None = None
    ) -> GatewayConfig:
        """Return the configuration of a home, which never raises.

        The environment comes before `config.yaml`, and that before `gateway.json`.
        """
        found = Found()
        found.add_json(Path(home, "gateway.json"))
        found.add_yaml(Path(home, "config.yaml"))
        found.add_environment(os.environ if environ is None else environ)
        config = cls._of(found)
        # Relative to the home: the working folder of the gateway is not known here.
        config.sessions_dir = Path(home, config.sessions_dir or "sessions")
        return config

    @classmethod
    def _of(cls, found: Found) -> GatewayConfig:
        config = cls.model_validate(found.values, context=found.problems)
        config._problems = found.sentences()  # noqa: SLF001 -- its own
        return config


def _report(info: ValidationInfo, name: str, what: str) -> None:
    if info.context is None:
        raise ValueError(what)
    info.context.append(((name,) if name else (), what))


@contextmanager
def _refused() -> Iterator[None]:
    """Raise what pydantic refuses as an error of ours, with the values that are valid."""
    try:
        yield
    except ValidationError as error:
        raise InvalidInput("; ".join(map(_sentence, error.errors()))) from None


def _sentence(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, InvalidInput):
        return f"{place}: {inner}"
    valid = _VALID.get(str(error["loc"][-1]), "another value")
    return f"{place} must be {valid}, got {shown(error['input'])}"


@contextmanager
def _below(info: ValidationInfo, name: str) -> Iterator[None]:
    """What is reported meanwhile is in this field."""
    problems = info.context if info.context is not None else []
    before = len(problems)
    yield
    problems[before:] = [((name, *path), what) for path, what in problems[before:]]
