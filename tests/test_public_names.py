"""The public names of the library. Its import has no side effects."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import session_core
from session_core import SessionDB, StateDatabase
from session_core.types import MessageColumns, SessionColumns
from tests import homes
from tests.public_names import MODULES, PARTS, find_member, list_public_names, list_values


def find_stub(module: str) -> Path:
    """Return the stub of a package whose names are imported on first use."""
    return Path(str(import_module(module).__file__)).with_suffix(".pyi")


PACKAGES = [name for name in MODULES if find_stub(name).exists()]

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
"""The modules that reading a session must not load."""

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
def import_report() -> dict[str, Any]:
    """Return the modules and files that an import loads in its own process."""
    process = subprocess.run(
        [sys.executable, "-B", "-c", WATCH], capture_output=True, text=True, timeout=60, check=True
    )
    data: dict[str, Any] = json.loads(process.stdout)
    return data


@pytest.mark.requirement("project:names")
@pytest.mark.parametrize("package", PACKAGES)
def test_stub_has_every_public_name(package: str) -> None:
    module = import_module(package)
    stub = ast.parse(find_stub(package).read_text())
    typed = {
        alias.asname: getattr(import_module(str(node.module)), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name: getattr(module, name) for name in module.__all__} == typed


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_name_is_reported(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{package}' has no attribute 'no_such_name'"):
        import_module(package).no_such_name  # noqa: B018


@pytest.mark.requirement("project:names")
def test_public_names_are_listed_once() -> None:
    names = [name for package in PACKAGES for name in import_module(package).__all__]
    assert len(names) == len(set(names))
    assert len(session_core.__all__) <= 60


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_lists_public_names(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))


def test_version_is_that_of_package() -> None:
    assert session_core.__version__ == metadata.version("mcp-sessions")


def list_annotated() -> list[tuple[str, Any]]:
    """Return the public classes and functions, and the public methods of the classes."""
    found: list[tuple[str, Any]] = []
    for values in list_values().values():
        for name, value in values.items():
            if inspect.isclass(value) and value.__module__.startswith("session_core"):
                found += [(name, value), *list_methods(name, value)]
            elif inspect.isfunction(value):
                found.append((name, value))
    return found


def list_methods(name: str, value: type) -> list[tuple[str, Any]]:
    members = [(member, inspect.getattr_static(value, member)) for member in dir(value)]
    functions = [
        (f"{name}.{member}", getattr(found, "__func__", getattr(found, "fget", found)))
        for member, found in members
        if not member.startswith("_") or member in ("__init__", "__enter__", "__exit__")
    ]
    return [
        (label, function)
        for label, function in functions
        if inspect.isfunction(function) and function.__module__.startswith("session_core")
    ]


def test_public_calls_return_one_type() -> None:
    """A caller never has to sort out results. A result may be missing."""
    unions = []
    for name, value in list_annotated():
        result = None if inspect.isclass(value) else get_type_hints(value).get("return")
        if get_origin(result) in (Union, UnionType) and len(set(get_args(result)) - {NoneType}) > 1:
            unions.append(name)
    assert unions == []


def test_type_hints_resolve() -> None:
    annotated = list_annotated()
    assert len(annotated) > 500
    for name, value in annotated:
        try:
            get_type_hints(value)
        except NameError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.parametrize("schema", [None, 16, 30])
def test_rows_have_their_required_keys(tmp_path: Path, schema: int | None) -> None:
    path = tmp_path / "state.db"
    if schema is not None:
        homes.make_hermes_database(path, schema)
    with SessionDB(path) as db:
        db.append_message("s", "user", "hi", create={"source": "cli"})
        assert set(SessionColumns.__annotations__) <= set(db.get_session("s") or {})
        assert set(MessageColumns.__annotations__) <= set(db.get_messages("s")[0])


def test_every_public_name_has_docstring() -> None:
    for values in list_values().values():
        for name, value in values.items():
            # Python 3.10 takes an alias, which has no docstring of its own, for a class.
            is_alias = get_origin(value) is not None
            assert is_alias or not callable(value) or value.__doc__, name


def test_errors_share_base_class() -> None:
    errors = [
        value
        for values in list_values().values()
        for value in values.values()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and not issubclass(value, Warning)
    ]
    assert len(errors) >= 11
    assert all(issubclass(error, session_core.SessionError) for error in errors)


@pytest.mark.requirement("project:names")
def test_import_loads_no_heavy_modules(import_report: dict[str, Any]) -> None:
    assert not set(import_report["modules"]) & set(HEAVY)


@pytest.mark.requirement("project:names")
def test_import_opens_only_code_files(import_report: dict[str, Any]) -> None:
    allowed = (".py", ".pyc", ".so", ".sql", ".pyd", ".zip", ".pth", ".toml")
    for event, target, mode in import_report["opened"]:
        assert event == "open", (event, target)
        assert target.endswith(allowed) or target.isdigit(), (event, target)
        assert "'r" in mode or mode == "(None,)", (target, mode)


INTERNAL_TYPES = {
    *("AgentSlot", "AgentTable", "Index", "Indexer"),
    *("DatabaseLedgerLocation", "LedgerTables", "SessionAccess"),
}
"""Types that only the library makes and passes on."""


def list_signature_types() -> dict[str, Any]:
    """Return the classes, literals and callables of the library that public signatures name."""
    types: dict[str, Any] = {}
    for _, annotated in list_annotated():
        hints = [hint for name, hint in annotated.__annotations__.items() if name[0] != "_"]
        texts = [str(getattr(hint, "__forward_arg__", hint)) for hint in hints]
        names = {name for text in texts for name in find_names(text)}
        values = vars(import_module(annotated.__module__))
        types |= {name: values[name] for name in names if is_own_type(values.get(name))}
    return types


def find_names(annotation: str) -> set[str]:
    names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    return {name for name in names if not name.startswith("_")} - INTERNAL_TYPES


def is_own_type(value: Any) -> bool:
    if get_origin(value) is not None:
        return get_origin(value) in (Literal, Callable)
    return inspect.isclass(value) and value.__module__.startswith("session_core")


def test_types_of_signatures_are_public() -> None:
    public = {id(value) for values in list_values().values() for value in values.values()}
    public |= set(map(id, vars(import_module("session_core.types")).values()))
    types = list_signature_types()
    assert len(types) > 150
    assert {name for name, value in types.items() if id(value) not in public} == set()


def list_contract_methods() -> list[str]:
    return sorted(
        name
        for name in list_public_names(StateDatabase)
        if inspect.isfunction(find_member(StateDatabase, name))
    )


@pytest.mark.parametrize("name", list_contract_methods())
def test_database_has_every_protocol_method(name: str) -> None:
    promised = list(inspect.signature(find_member(StateDatabase, name)).parameters.values())[1:]
    given = list(inspect.signature(find_member(SessionDB, name)).parameters.values())[1:]
    assert [describe_parameter(parameter) for parameter in given] == [
        describe_parameter(parameter) for parameter in promised
    ]


@pytest.mark.requirement("project:names")
def test_database_has_few_public_names() -> None:
    methods = [name for name in list_public_names(SessionDB) if "." not in name]
    assert len([*methods, *PARTS]) <= 65


def describe_parameter(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return parameter.name, parameter.kind, parameter.default
