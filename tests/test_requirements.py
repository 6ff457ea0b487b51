"""Check that every requirement has a test, and that every mark on a test has a requirement."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PROOFS = ("contract", "interop", "faults", "serve", "wire", "security", "tasks")
"""Folders in which each test file proves a requirement."""

_LINE = re.compile(r"- `(?P<name>[a-z]+:[a-z-]+)`: (?P<behaviour>.+\.)")


def required_names() -> list[str]:
    """Return the names of `requirements.md`, in order."""
    lines = (TESTS / "requirements.md").read_text(encoding="utf-8").splitlines()
    matches = [_LINE.fullmatch(line) for line in lines if line.startswith("-")]
    assert None not in matches
    return [match["name"] for match in matches if match]


def marked_names(path: Path) -> Iterator[str]:
    """Yield the requirement of every marked test in a file."""
    code = path.read_text(encoding="utf-8")
    if "requirement" not in code:
        return  # a file without marks need not be parsed
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(
                        func=ast.Attribute(attr="requirement"), args=[ast.Constant(value=str(name))]
                    ):
                        assert node.name.startswith("test_")
                        yield name


def test_requirement_names_are_unique() -> None:
    assert max(Counter(required_names()).values()) == 1


def test_every_requirement_has_a_test() -> None:
    marked = {name for path in TESTS.rglob("test_*.py") for name in marked_names(path)}
    assert marked == set(required_names())


def test_every_proof_file_has_a_requirement() -> None:
    files = [path for folder in PROOFS for path in (TESTS / folder).glob("test_*.py")]
    assert [path.name for path in files if not any(marked_names(path))] == []
