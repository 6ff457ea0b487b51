"""A home made by the real Hermes, with the expected selection of each kind of plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_core import SessionDB, SessionStore
from session_core.ledger.types import Member
from session_core.maintenance.kinds import PLAN_PARTS, list_requestable
from session_core.maintenance.members import get_name, get_part
from tests.homes import connect
from tests.interop import hermes
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import Clock, Home

KINDS: dict[str, str] = {
    "sessions": "prune",
    "ghosts": "prune",
    "routes": "prune",
    "orphans": "prune",
    "all": "prune",
    "abandoned": "finalize",
    "orphaned": "finalize",
    "expired": "finalize",
}

REMOVING_KINDS = tuple(
    kind.what
    for kind in list_requestable("prune")
    if kind.part and PLAN_PARTS[kind.part].deletes_from
)
"""The kinds that remove sessions."""

_PARTS = {
    "orphans": ("rows", "locks", "links", "files"),
    "all": ("sessions", "ghosts", "routes", "rows", "locks", "links", "files", "index"),
}


@dataclass(frozen=True)
class Made:
    """A closed home for copies, and its expectations."""

    version: str
    home: Path
    stated: dict[str, Any]

    @property
    def at(self) -> float:
        """The time of the plan."""
        return float(self.stated["at"])

    def chosen(self, kind: str) -> dict[str, tuple[str, ...]]:
        """Return the expected selection of a kind, with the items that are removed together."""
        found: dict[str, tuple[str, ...]] = {}
        for part in _PARTS.get(kind, (kind,)):
            each = self.stated["chosen"].get(part, {})
            found |= {name: tuple(together) for name, together in each.items()}
        return found

    def protected(self, kind: str) -> dict[str, int]:
        """Return the expected numbers of protected items by reason."""
        return dict(self.stated["protected"].get(kind, {}))

    @contextmanager
    def copied(self, folder: Path) -> Iterator[Changing]:
        """Return a copy with its maintenance."""
        home = snapshot(self.home, folder / "home")
        with maintained(home, self.at, folder / "kept") as made:
            yield made


@contextmanager
def maintained(home: Path, at: float, root: Path) -> Iterator[Changing]:
    """Open the maintenance of a home at a given time."""
    clock = Clock()
    clock.now = at
    with (
        SessionDB(home / "state.db", clock=clock) as db,
        SessionStore.open(home, db) as store,
        changing(Home(db, store, clock, home), root) as made,
    ):
        yield made


def snapshot(home: Path, to: Path) -> Path:
    """Copy a home as it is, including its log, with routes of the copy."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("state.db*"))
    with connect(home / "state.db", "ro") as source, connect(to / "state.db", "rwc") as target:
        source.backup(target)
        if target.execute("SELECT 1 FROM sqlite_master WHERE name = 'gateway_routing'").fetchall():
            scopes = str((to / "sessions").resolve()), str((home / "sessions").resolve())
            target.execute("UPDATE gateway_routing SET scope = ? WHERE scope = ?", scopes)
            target.commit()
    return to


def maker(folder: Path) -> Callable[[str, bool], Made]:
    """Return a function that makes one home for each version, damaged or not."""
    homes: dict[tuple[str, bool], Made] = {}

    def make(version: str, damaged: bool) -> Made:
        if (version, damaged) not in homes:
            home = folder / f"{version}-{'damaged' if damaged else 'whole'}" / "home"
            stated = hermes.build_kinds(version, home, damaged=damaged)
            homes[version, damaged] = Made(version, home, stated)
        return homes[version, damaged]

    return make


def named(member: Member) -> str:
    """Return the name of a member in the expectations: a route without its folder."""
    is_route = get_part(member) == "routes"
    return str(member.revision["key"]) if is_route else get_name(member)


def together(member: Member) -> tuple[str, ...]:
    """Return the items that are removed together with a member, in that order."""
    if get_part(member) in ("sessions", "ghosts", "ended"):
        return tuple(member.revision["sessions"])
    return (named(member),)
