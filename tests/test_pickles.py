"""Values and errors of the library can be copied and sent to another process."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mcp_serve
import session_core
from session_core import (
    Busy,
    GatewayConfig,
    NotFound,
    Platform,
    Revision,
    SessionEntry,
    SessionFilter,
    SessionResetPolicy,
    SessionSource,
    TitleTaken,
)
from session_core.compression import CompressionLimits, NotCompressed
from session_core.maintenance import PlanRequest
from session_core.types import AppendResult, Page
from tests.public_names import list_values

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda value, protocol=protocol: pickle.loads(  # noqa: S301 -- ours
            pickle.dumps(value, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copied_id_keeps_revisions(copied: Callable[[Any], Any]) -> None:
    before, after = Revision(0, 0, 0, 0, None), Revision(7, 1, 0, 0, None)
    copy = copied(AppendResult(7, before, after))
    assert (type(copy), copy, copy.before, copy.after) == (AppendResult, 7, before, after)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copied_error_keeps_message(copied: Callable[[Any], Any]) -> None:
    for error in (
        TitleTaken("Trip", "s"),
        Busy("held", holders=["hermes (pid 7)"]),
        NotFound("no session s", nearest=["t"]),
    ):
        copy = copied(error)
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# -- every public error and value ------------------------------------------------------------

SERVICES = {
    *(
        "AgentCache",
        "AgentTurn",
        "AsyncCompressor",
        "AsyncMaintenance",
        "AsyncOpenedHome",
        "AsyncSessionDB",
        "AsyncSessionStore",
        "CachedTurn",
    ),
    *(
        "Compressor",
        "DeliveryMarks",
        "ExpiryWatcher",
        "Hooks",
        "TranscriptCopies",
        "Labels",
        "Ledger",
        "MachineFolder",
        "Maintenance",
        "MergedSearch",
        "OpenedHome",
        "SessionDB",
    ),
    *(
        "MetaStorage",
        "SessionRuntime",
        "SessionStore",
        "RouteStorage",
        "RawSource",
        "RowStorage",
        "SdkStorage",
        "SessionHooks",
        "StateAdmin",
        "StateDatabase",
        "StateFolder",
        "StopSignal",
        "StoreBlock",
        "StateStorage",
        "StoreSearch",
        "TranscriptStore",
    ),
}
"""Public classes that hold a database, a file or a lock."""

MADE: dict[str, Any] = {
    "AppendResult": AppendResult(7, Revision(0, 0, 0, 0, None), Revision(7, 1, 0, 0, None)),
    "GatewayConfig": GatewayConfig(sessions_dir=Path("x"), of_the_future=5),
    "CompressionLimits": CompressionLimits(),
    "Page": Page([1, 2], "next"),
    "Platform": Platform.TELEGRAM,
    "SessionEntry": SessionEntry.from_dict(
        {
            "session_key": "k",
            "session_id": "s",
            "of_the_future": 5,
            **dict.fromkeys(("created_at", "updated_at"), "2026-11-19T00:00:00"),
        }
    ),
    "SessionFilter": SessionFilter(project="x"),
    "SessionResetPolicy": SessionResetPolicy(mode="idle"),
    "SessionSource": SessionSource("telegram", "42", extra={"of_the_future": 5}),
    "PlanRequest": PlanRequest("sessions"),
}


SDK_MODULES = ("adapters.adk", "adapters.pydantic_ai")
"""Modules that import an SDK, which has an environment of its own."""


def list_public_values() -> dict[str, Any]:
    return {name: value for values in list_values().values() for name, value in values.items()}


def list_error_classes() -> list[type[Exception]]:
    """Return all classes of errors of both packages, and the public warnings."""
    for package in (session_core, mcp_serve):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", *SDK_MODULES)):
                importlib.import_module(module.name)
    public = list_public_values().values()
    found: list[type[Exception]] = [
        each for each in public if isinstance(each, type) and issubclass(each, Exception)
    ]
    for item in found:
        found += [child for child in item.__subclasses__() if child not in found]
    return sorted(found, key=lambda each: each.__qualname__)


def make_error(kind: type[Any]) -> Any:
    """Return an instance whose arguments are their names."""
    if issubclass(kind, Exception) and not inspect.isfunction(kind.__init__):
        return kind("why")
    if issubclass(kind, dict):
        return kind(id="id")
    parameters = list(inspect.signature(kind).parameters.values())
    words = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    named = {each.name: [each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    return kind(*words, **named)


def values() -> list[str]:
    """Return the names of all public classes that are neither an error nor a service."""
    return [
        name
        for name, each in list_public_values().items()
        if isinstance(each, type) and not issubclass(each, Exception) and name not in SERVICES
    ]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_every_error_survives_copy(copied: Callable[[Any], Any]) -> None:
    for kind in list_error_classes():
        error = make_error(kind)
        copy = copied(error)
        assert type(copy) is kind
        assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


MODERN = {name: copied for name, copied in COPIES.items() if name not in {"pickle 0", "pickle 1"}}
"""The two oldest protocols do not support slots, and are never the default."""


@pytest.mark.parametrize("copied", MODERN.values(), ids=MODERN)
def test_every_value_survives_copy(copied: Callable[[Any], Any]) -> None:
    for name in values():
        value = MADE[name] if name in MADE else make_error(list_public_values()[name])
        copy = copied(value)
        assert type(copy) is type(value), name
        assert repr(copy) == repr(value), name
        assert copy == value, name


def raise_compression_error(code: str) -> None:
    raise NotCompressed(code, "nothing to win")


def test_process_pool_survives_compression_error() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(NotCompressed, match="nothing to win") as raised:
            pool.submit(raise_compression_error, "small").result(timeout=60)
        assert raised.value.code == "small"
        assert pool.submit(len, "ab").result(timeout=60) == 2
