"""An entry of the ledger: what is promised, where that was said, and the tests that prove it."""

from __future__ import annotations

from typing import NamedTuple


class Requirement(NamedTuple):
    """One promised behaviour."""

    source: str
    behaviour: str
    tests: tuple[str, ...]


def of(source: str, behaviour: str, file: str, *names: str) -> Requirement:
    """Return an entry whose tests are in one file below `tests/`, named without `test_`."""
    return Requirement(source, behaviour, tuple(f"{file}.py::test_{name}" for name in names))
