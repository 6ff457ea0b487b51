"""The table of plan kinds is complete: every function exists, and every part has an executor."""

from __future__ import annotations

import re

import pytest

from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.maintenance import kinds
from session_core.maintenance.apply.session_finalizer import SessionFinalizer
from session_core.maintenance.apply.session_remover import SessionRemover
from session_core.maintenance.kinds import PLAN_KINDS, PlanKind, PlanPart
from session_core.maintenance.types import PlanRequest
from tests.maintenance.changed_homes import Changing
from tests.maintenance.test_session_selectors import CHOOSERS
from tests.peers import ROOT

_NAMED_KINDS = ("finalize sessions", "delete sessions")
"""They select what callers name, whatever the home has, and have tests of their own."""

_SELECTING_KINDS = [
    kind for kind in PLAN_KINDS.values() if kind.part and kind.name not in _NAMED_KINDS
]


@pytest.mark.parametrize("kind", list(PLAN_KINDS.values()), ids=lambda kind: kind.name)
def test_functions_of_kind_exist(kind: PlanKind) -> None:
    paths = [kind.select, kind.apply, kind.plan if kind.summary else ""]
    assert all(callable(kinds.load_function(path)) for path in paths if path)


@pytest.mark.parametrize("kind", list(kinds.list_requestable()), ids=lambda kind: kind.name)
def test_requestable_kind_is_complete(kind: PlanKind) -> None:
    assert kind.name == PlanRequest(kind.what, kind.tool).kind == f"{kind.tool} {kind.what}"
    assert kind.select or kind.plan != kinds.MAKE_PLAN
    assert not kind.part or kind.part in kinds.PART_ORDER


@pytest.mark.parametrize("kind", list(PLAN_KINDS.values()), ids=lambda kind: kind.name)
def test_kind_declares_deletion_of_rows(kind: PlanKind) -> None:
    if kind.part:
        assert kind.deletes_rows == bool(kinds.PLAN_PARTS[kind.part].deletes_from)


@pytest.mark.parametrize("page", ["docs/how-to/tidy-a-home.md", "session_core/README.md"])
def test_page_names_every_kind(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    code = re.findall(r"`.+?`|^mcp-sessions .+$", text, re.MULTILINE)
    words = set(re.findall(r"\w+", " ".join(code)))
    assert words.issuperset(kind.what for kind in kinds.list_requestable())


def test_card_has_noun_of_every_kind() -> None:
    script = (ROOT / "mcp_serve" / "card" / "plan.js").read_text(encoding="utf-8")
    (table,) = re.findall(r"NOUNS = \{(.+?)\}", script, re.DOTALL)
    nouns = re.findall(r"(\w+):", table)
    requestable = {kind.what for kind in kinds.list_requestable()}
    assert requestable.difference(nouns) == {"trash", "all"}


@pytest.mark.parametrize("kind", _SELECTING_KINDS, ids=lambda kind: kind.name)
def test_selector_of_part_is_tested(kind: PlanKind) -> None:
    assert kind.what in CHOOSERS, f"add {kind.name!r} to CHOOSERS of test_session_selectors.py"
    request, chooser = CHOOSERS[kind.what]
    assert request.kind == kind.name
    assert chooser is kinds.load_function(kind.select)


@pytest.mark.parametrize("part", kinds.PART_ORDER)
def test_executor_of_part_drafts_steps(part: str) -> None:
    assert hasattr(kinds.load_function(kinds.PLAN_PARTS[part].executor), "draft_step")


@pytest.mark.parametrize("part", kinds.PLAN_PARTS.values(), ids=kinds.PLAN_PARTS)
def test_part_declares_changes_of_sessions(part: PlanPart) -> None:
    executor = kinds.load_function(part.executor)
    assert bool(part.deletes_from) == issubclass(executor, SessionRemover)
    assert part.ends_sessions == issubclass(executor, SessionFinalizer)


def test_unknown_kind_is_refused(changed: Changing) -> None:
    with pytest.raises(InvalidInput, match=r"'prune cats'; known kinds: finalize abandoned, "):
        changed.maintenance.plan(PlanRequest("cats"))
    with pytest.raises(InvalidInput, match="unknown kind of plan 'compress '"):
        changed.maintenance.plan(PlanRequest("", "compress"))  # type: ignore[arg-type]


def test_foreign_plan_is_applied_elsewhere(changed: Changing) -> None:
    ledger: Ledger = changed.ledger
    for kind in ("compress", "import", "cats"):
        handle = ledger.add_plan(kind, [], {}).handle
        with pytest.raises(InvalidInput, match=f"has the kind '{kind}'; apply it where it was"):
            changed.maintenance.apply(handle)
