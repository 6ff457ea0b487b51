"""The public names of the library, and what importing it does: nothing."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import session_core
from session_core import SessionDB, StateDatabase

HEAVY = (
    "asyncio",
    "concurrent",
    "http",
    "httpx",
    "hypothesis",
    "mcp",
    "mcp_serve",
    "multiprocessing",
    "psycopg",
    "pydantic",
    "pysqlite3",
    "pytest",
    "rich",
    "ssl",
    "typer",
    "yaml",
)
"""What nobody should pay for who only wants to read a session."""

WATCH = """
import json, sys
seen = []

def watch(event, arguments):
    if event in ("open", "sqlite3.connect", "socket.connect", "subprocess.Popen", "os.mkdir"):
        seen.append((event, str(arguments[0]), str(arguments[1:2])))

before = set(sys.modules)
sys.addaudithook(watch)
import session_core
opened = list(seen)
print(json.dumps({
    "modules": sorted({name.split(".")[0] for name in set(sys.modules) - before}),
    "opened": opened,
    "path": session_core.__file__,
}))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What an import in a process of its own loaded and opened."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCH], capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_public_names_are_said_once() -> None:
    names = session_core.__all__
    assert len(names) == len(set(names))


@pytest.mark.requirement("project:names")
def test_the_public_names_are_all_that_is_public() -> None:
    public = {
        name
        for name, value in vars(session_core).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    of_typing = {"TYPE_CHECKING", "Any", "import_module"}
    on_demand = set(session_core._LATER)
    assert public - of_typing | on_demand == set(session_core.__all__)
    assert all(hasattr(session_core, name) for name in on_demand)


def test_every_public_name_has_a_docstring() -> None:
    for name in session_core.__all__:
        value = getattr(session_core, name)
        assert not callable(value) or value.__doc__, name


def test_the_errors_are_one_tree() -> None:
    errors = [
        value
        for name in session_core.__all__
        if inspect.isclass(value := getattr(session_core, name))
        and issubclass(value, Exception)
        and not issubclass(value, Warning)
    ]
    assert len(errors) >= 11
    assert all(issubclass(error, session_core.SessionError) for error in errors)


@pytest.mark.requirement("project:names")
def test_importing_loads_nothing_heavy(imported: dict[str, Any]) -> None:
    assert not set(imported["modules"]) & set(HEAVY)


@pytest.mark.requirement("project:names")
def test_importing_opens_no_file_but_code(imported: dict[str, Any]) -> None:
    allowed = (".py", ".pyc", ".so", ".sql", ".pyd", ".zip", ".pth", ".toml")
    for event, target, mode in imported["opened"]:
        assert event == "open", (event, target)
        assert target.endswith(allowed) or target.isdigit(), (event, target)
        assert "'r" in mode or mode == "(None,)", (target, mode)


def contract() -> list[str]:
    return [
        name for name, _ in inspect.getmembers(StateDatabase, inspect.isfunction) if name[0] != "_"
    ]


@pytest.mark.parametrize("name", contract())
def test_the_database_has_the_methods_of_the_contract(name: str) -> None:
    promised = list(inspect.signature(getattr(StateDatabase, name)).parameters.values())[1:]
    given = list(inspect.signature(getattr(SessionDB, name)).parameters.values())[1:]
    assert [shape(parameter) for parameter in given] == [shape(parameter) for parameter in promised]


def shape(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return parameter.name, parameter.kind, parameter.default
