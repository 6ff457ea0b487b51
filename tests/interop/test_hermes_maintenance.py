"""The selection of each kind of plan in homes of the real Hermes, applied and checked.

One home is realistic, and the damaged one also has faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from session_core.types import SessionFilter
from tests.interop import hermes
from tests.interop.hermes import Hermes
from tests.interop.maintained_homes import (
    KINDS,
    REMOVING_KINDS,
    Made,
    maintained,
    maker,
    named,
    snapshot,
    together,
)
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import DAY
from tests.peers import HERMES_SCHEMAS


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Make a home once for all tests."""
    return maker(tmp_path_factory.mktemp("made"))


NEWEST = "0.19.0"
ESSENTIALS = ("all", "abandoned", "orphaned", "expired")
CASES = [
    (version, damaged, kind)
    for version in HERMES_SCHEMAS
    for damaged in (False, True)
    for kind in KINDS
    if version == NEWEST or (damaged and kind in ESSENTIALS)
]
"""All on homes of the newest version, what covers the most on damaged ones of the others."""


@dataclass
class AppliedHome:
    """A home with an applied plan, its removed items, and the way to restore them."""

    made: Made
    home: Path
    kind: str
    folder: Path
    before: dict[str, Any]
    batch: str
    sessions: tuple[set[str], set[str]]
    """Those that were, and those that are."""

    @property
    def gone(self) -> set[str]:
        """The removed sessions."""
        return self.sessions[0] - self.sessions[1]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)))
def applied(make, request, tmp_path) -> AppliedHome:
    """A closed home to which a plan of each kind was applied."""
    version, damaged, kind = request.param
    made: Made = make(version, damaged)
    home = snapshot(made.home, tmp_path / "home")
    with maintained(home, made.at, tmp_path / "kept") as changed:
        before, sessions = changed.read_everything(), changed.sessions()
        planned = changed.plan(kind, KINDS[kind])
        members = changed.ledger.get_plan(planned.plan).members
        assert {named(member): together(member) for member in members} == made.chosen(kind)
        if kind != "all":
            assert planned.protected == made.protected(kind)
        result = changed.apply(planned)
        assert (result.outcome, result.skipped, result.remaining) == ("applied", (), 0)
        left = sessions, changed.sessions()
    return AppliedHome(made, home, kind, tmp_path, before, result.batch, left)


@pytest.mark.requirement("maintenance:homes-of-hermes")
def test_plan_removes_stated_items_and_restores(applied: AppliedHome) -> None:
    """One test for all checks: making a home and applying a plan takes longer than any check."""
    _check_removed(applied)
    with Hermes(applied.made.version, snapshot(applied.home, applied.folder / "checked")) as it:
        _check_opening_and_lists(it, applied)
        _check_search_and_resume(it, applied)
        _check_routes(it, applied)
        _check_pruning(it, applied)
    with maintained(applied.home, applied.made.at, applied.folder / "kept") as changed:
        back = changed.maintenance.restore(applied.batch)
        assert (back.outcome, back.unfit, back.remaining) == ("applied", (), 0)
        now, before = changed.read_everything(), applied.before
        if applied.kind == "routes":  # a writer of the mirror removes the files of a killed writer
            del before["files"][".sessions_abc.tmp"]
        assert now == before
        codes = {each.code for each in changed.home.db.admin.check_integrity(deep=True)}
        assert codes <= ({"orphaned_messages", "orphaned_rows", "broken_parents"})


def _check_removed(applied: AppliedHome) -> None:
    """Check that exactly the expected sessions are removed, or ended without removal."""
    chosen = {part: applied.made.chosen(part) for part in REMOVING_KINDS}
    parts = REMOVING_KINDS if applied.kind == "all" else (applied.kind,)
    assert applied.gone == {
        item for part in parts for ids in chosen.get(part, {}).values() for item in ids
    }


def _check_opening_and_lists(it: Hermes, applied: AppliedHome) -> None:
    assert it.sql("PRAGMA integrity_check") == [["ok"]]
    listed = {row["id"] for row in it.call("list_sessions_rich", limit=1000)}
    assert listed
    assert not listed & applied.gone
    assert set(it.each("get_session", applied.gone).values()) <= {None}
    ended = {row[0] for row in it.sql("SELECT id FROM sessions WHERE end_reason = ?", _REASON)}
    if applied.kind == "abandoned":
        together = applied.made.chosen("abandoned").values()
        assert ended == {item for ids in together for item in ids}


_REASON = "abandoned"


def _check_search_and_resume(it: Hermes, applied: AppliedHome) -> None:
    it.sql("INSERT INTO messages_fts(messages_fts) VALUES ('integrity-check')")
    session_ids = {row["session_id"] for row in it.call("search_messages", "waltz", limit=1000)}
    with_it = it.sql("SELECT DISTINCT session_id FROM messages WHERE content LIKE '%waltz%'")
    assert session_ids
    assert session_ids <= {row[0] for row in with_it} & applied.sessions[1]
    for method in ("resolve_resume_session_id", "get_compression_tip", "get_session_title",
                   "get_messages", "get_messages_as_conversation"):  # fmt: skip
        answers = it.each(method, sorted(applied.sessions[1]))
        assert not [each for each in answers.values() if isinstance(each, hermes.Refused)]
        if method in ("resolve_resume_session_id", "get_compression_tip"):
            assert set(answers.values()) <= applied.sessions[1]


def _check_routes(it: Hermes, applied: AppliedHome) -> None:
    """Check that Hermes loads the same routes as before, except the removed ones."""
    with Hermes(it.version, snapshot(applied.made.home, applied.folder / "before")) as earlier:
        before = earlier.job("store_open")
    gone = set(applied.made.chosen("routes")) if applied.kind in ("routes", "all") else set()
    now = it.job("store_open")
    if applied.kind == "expired" and it.version != "0.17.0":
        gone = {applied.made.stated["chats"]["idle"]}  # the start of Hermes drops ended routes
    assert now == {key: entry for key, entry in before.items() if key not in gone}


_MARKED = ("fork_2", "job_2", "chain_1_helper")
"""Branches and delegates: theirs ends them as if they continued something, ours does not."""


def _check_pruning(it: Hermes, applied: AppliedHome) -> None:
    old = it.call("prune_sessions", older_than_days=90)
    assert isinstance(old, int)
    if it.has("finalize_orphaned_compression_sessions"):
        left = it.call("finalize_orphaned_compression_sessions")
        assert left == len(_MARKED) or applied.kind != "orphaned"
    if it.has("prune_empty_ghost_sessions") and applied.kind in ("ghosts", "all"):
        assert it.call("prune_empty_ghost_sessions") == 0  # which failed on a child before
    assert it.sql("PRAGMA integrity_check") == [["ok"]]


# -- which of them ---------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:homes-of-hermes")
@pytest.mark.parametrize("version", ["0.17.0", NEWEST])
def test_maintenance_filter_chooses_stated_items(make, version: str, tmp_path) -> None:
    made = make(version, damaged=True)
    with made.copied(tmp_path) as changed:
        chosen = {name: _list_chosen(changed, where) for name, (where, _) in _list_filters(made)}
    assert chosen == {name: {stated} for name, (_, stated) in _list_filters(made)}


def _list_filters(made: Made) -> list[tuple[str, Any]]:
    return list(made.stated["filters"].items())


def _list_chosen(changed: Changing, where: dict[str, Any]) -> set[str]:
    at = changed.home.clock.now
    days = {name: at - value * DAY for name, value in where.items() if name in _TIMES}
    planned = changed.plan(where=SessionFilter(**{**where, **days}))
    return {named(member) for member in changed.ledger.get_plan(planned.plan).members}


_TIMES = ("started_before", "started_after", "active_before", "active_after")
