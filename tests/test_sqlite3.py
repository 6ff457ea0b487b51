"""The SQLite library is chosen once, in one module, before the first connection."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import session_core
from session_core import _sqlite3, describe_sqlite
from session_core.types import Driver

ROOT = Path(session_core.__file__).parents[1]
PACKAGES = [folder for name in ("session_core", "mcp_serve") if (folder := ROOT / name).is_dir()]
LIBRARIES = ("sqlite3", "pysqlite3", "apsw", "_sqlite3")

MAY_IMPORT = {
    "session_core/_sqlite3.py": "it decides",
    "session_core/state/sqlite/admin/sizes_child.py": "a process of its own, that counts pages",
    "tests/cli/fork_server.py": "it imports what the verbs that it forks may choose",
    "tests/bench/scripts/on_hermes.py": "what Hermes itself runs on",
    "tests/bench/scripts/on_openai.py": "what the peer itself runs on",
    "tests/bench/scripts/on_sdk.py": "what the peers run on, whose settings it reads",
}

needs_bundled = pytest.mark.skipif(find_spec("pysqlite3") is None, reason="it has no wheel here")


def run(script: str) -> str:
    """Run a script in its own process, in which no library is chosen yet."""
    begin = "from session_core import *\nfrom session_core import _sqlite3 as driver\n"
    process = subprocess.run(
        [sys.executable, "-c", begin + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stderr == ""
    return process.stdout.strip()


@pytest.mark.requirement("project:driver")
def test_sqlite_library_choice_can_be_read() -> None:
    description = describe_sqlite()
    version = tuple(int(part) for part in description.version.split("."))
    assert description == Driver(
        description.name, description.version, version >= _sqlite3.FIXED_VERSION
    )


def test_sqlite_library_defaults_to_standard_module() -> None:
    assert run("print(describe_sqlite().name)") == "standard"
    assert run("SessionDB('x/none.db').kind; print(describe_sqlite().name)") == "standard"


def test_reading_sqlite_library_keeps_choice_open() -> None:
    assert run("describe_sqlite(); print(choose_sqlite('standard').name)") == "standard"


@needs_bundled
def test_sqlite_library_can_change_before_first_connection() -> None:
    script = "describe_sqlite(); choose_sqlite('standard'); told = choose_sqlite('bundled')\n"
    assert run(script + "print(told.name, told.fixed, told == describe_sqlite())") == (
        "bundled True True"
    )


@needs_bundled
def test_chosen_sqlite_library_opens_database() -> None:
    script = """
choose_sqlite("bundled")
connection = driver.connect("file::memory:", busy_timeout_s=1)
version, = connection.execute("SELECT sqlite_version()").fetchone()
print(type(connection).__module__.split(".")[0], version == describe_sqlite().version)
connection.close()
"""
    assert run(script) == "pysqlite3 True"


@pytest.mark.requirement("project:driver")
@pytest.mark.parametrize("chosen", ["standard", pytest.param("bundled", marks=needs_bundled)])
def test_sqlite_library_is_fixed_after_connection(chosen: str) -> None:
    script = f"""
choose_sqlite({chosen!r})
driver.connect("file::memory:", busy_timeout_s=1).close()
print(choose_sqlite({chosen!r}).name)
try:
    choose_sqlite("bundled" if {chosen!r} == "standard" else "standard")
except Conflict as error:
    print({chosen!r} in str(error), describe_sqlite().name)
"""
    assert run(script).splitlines() == [chosen, f"True {chosen}"]


def test_unknown_sqlite_library_is_rejected() -> None:
    script = """
try:
    choose_sqlite("oracle")
except InvalidInput:
    print(describe_sqlite().name)
"""
    assert run(script) == "standard"


def test_missing_sqlite_library_is_unsupported() -> None:
    script = """
import sys
sys.modules["pysqlite3"] = None
try:
    choose_sqlite("bundled")
except Unsupported:
    print(describe_sqlite().name)
"""
    assert run(script) == "standard"


def iter_sources() -> Iterator[Path]:
    for folder in (*PACKAGES, ROOT / "tests"):
        yield from folder.rglob("*.py")


@pytest.mark.requirement("project:driver")
def test_sqlite_library_is_imported_in_single_file() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in iter_sources()
        if any(name.split(".")[0] in LIBRARIES for name in list_imports(path))
    }
    assert "session_core/_sqlite3.py" in found
    assert found <= set(MAY_IMPORT)


def list_imports(path: Path) -> Iterator[str]:
    """Return the imports of a file, by statement or by a call with the name as text."""
    code = path.read_text(encoding="utf-8")
    if not any(word in code for word in (*LIBRARIES, "import_module", "__import__")):
        return  # most files need not be parsed
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and get_called_name(node) in (
            "import_module",
            "__import__",
        ):
            yield from (arg.value for arg in node.args if _is_text(arg))  # type: ignore[attr-defined]


def get_called_name(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
