"""Shares of long tables of cases: the fast command runs a share, `-m thorough` the rest."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def take_share(cases: Iterable[Any], parts: int) -> list[Any]:
    """Return the cases. All but about one in `parts` are marked `thorough`.

    The text of a case decides, so that the share stays the same when others are added.
    """
    return [case if is_in_share(case, parts) else mark_thorough(case) for case in cases]


def mark_thorough(case: Any) -> Any:
    """Return a case that the fast command leaves out."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)


def is_in_share(case: Any, parts: int) -> bool:
    """Return True for about one case in `parts`."""
    return zlib.crc32(repr(case).encode()) % parts == 0


def share_kinds(
    items: Iterable[pytest.Item], fixtures: Iterable[str], parts: Mapping[Any, int]
) -> None:
    """Mark the cases of these kinds `thorough`, except for about one in so many.

    `fixtures` names the parameters that are kinds. The name of a test with its case decides, but
    every test keeps a case.
    """
    tests: dict[tuple[Any, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thorough") is None:
            name = getattr(item, "originalname", item.name)
            tests.setdefault((item.parent, name), []).append(item)
    for cases in tests.values():
        left_out = [case for case in cases if not _is_kept(case, fixtures, parts)]
        for case in left_out[len(left_out) == len(cases) :]:
            case.add_marker(pytest.mark.thorough)


def _is_kept(item: pytest.Item, fixtures: Iterable[str], parts: Mapping[Any, int]) -> bool:
    given = getattr(getattr(item, "callspec", None), "params", {})
    kinds = [given[name] for name in fixtures if name in given]
    return all(is_in_share(item.name, parts[kind]) for kind in kinds if kind in parts)


def take_main_kinds(kinds: Iterable[Any]) -> list[Any]:
    """Return the kinds of homes. Those of other schemas than 22 and 30 are marked `thorough`."""
    return [kind if kind in _MAIN_KINDS else mark_thorough(kind) for kind in kinds]


_MAIN_KINDS = ("own", "hermes", 22, 30)
