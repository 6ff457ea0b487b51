"""The ledger and the tests name each other: nothing is promised without a proof that is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import PARTS, REQUIREMENTS, Requirement

TESTS = Path(__file__).parent
PROOFS = ("contract", "interop", "faults", "serve", "wire", "security", "tasks")
"""The folders in which each file proves something that is promised."""


@cache
def names(file: str) -> frozenset[str]:
    """Return the tests that a file below `tests/` defines."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.mark.parametrize("key", REQUIREMENTS)
def test_what_is_promised_has_a_test_that_is_there(key: str) -> None:
    requirement = REQUIREMENTS[key]
    assert requirement.tests
    for node in requirement.tests:
        file, _, name = node.partition("::")
        assert name in names(file), f"{key} names {node}, which is not there"


def test_each_file_of_proofs_proves_something_that_is_promised() -> None:
    named = {node.partition("::")[0] for entry in REQUIREMENTS.values() for node in entry.tests}
    files = {
        path.relative_to(TESTS).as_posix()
        for folder in PROOFS
        for path in (TESTS / folder).glob("test_*.py")
    }
    assert files - named == set()


def test_entries_are_well_formed() -> None:
    for key, requirement in REQUIREMENTS.items():
        assert re.fullmatch(r"[a-z]+:[a-z-]+", key), key
        assert isinstance(requirement, Requirement)
        assert requirement.source
        assert requirement.behaviour.endswith("."), key


def test_a_promise_stands_in_one_part_of_the_ledger() -> None:
    assert sum(map(len, PARTS)) == len(REQUIREMENTS)


def test_a_test_proves_one_promise() -> None:
    nodes = [node for requirement in REQUIREMENTS.values() for node in requirement.tests]
    assert len(set(nodes)) == len(nodes)
