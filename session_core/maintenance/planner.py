"""Makes plans: what was chosen, each with what it is now, recorded in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from session_core import alive
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Member
from session_core.maintenance import growth, members
from session_core.maintenance.answers import MOST_ITEMS, Bytes, Item, Preview, said
from session_core.maintenance.conversations import Conversations
from session_core.maintenance.drafting import CHOOSERS, Draft
from session_core.maintenance.records import Wanted
from session_core.maintenance.scene import Scene
from session_core.routing.store import SessionStore
from session_core.state.arguments import check_line
from session_core.state.contract import StateDatabase

_MOST_NAMES = 5
_ALL = ("sessions", "ghosts", "routes", "orphans", "index")


class Planner:
    """Makes plans for one home."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._pinned = ledger.pins.all

    def plan(self, wanted: Wanted) -> Preview:
        """Record what would be changed."""
        check(wanted)
        scene = self.scene()
        draft = Draft(scene)
        for one in _each(wanted):
            draft.choose(one)
        return self.record(wanted.kind, draft, wanted)

    def record(
        self, kind: str, draft: Draft, wanted: Wanted, more: Iterable[str] = (), **about: Any
    ) -> Preview:
        """Record what was drafted as a plan of a kind; `more` are further warnings."""
        scene = draft.scene
        found = list(draft.members.values())
        warnings = (*more, *_warnings(scene, wanted, found))
        items = tuple(
            Item(members.name_of(each), draft.titles[each.id], each.why)
            for each in found[:MOST_ITEMS]
        )
        protected = dict(draft.protected.most_common())
        if not found:
            return Preview("nothing", None, None, 0, (), protected, Bytes(), warnings)
        if wanted.verb == "prune":
            self._db.check_rows_writable(draft.tables())
        size = draft.bytes() if wanted.verb == "prune" else Bytes()
        about |= {
            "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
            **said(items, protected, size, warnings),
            growth.NAME: growth.message_bytes(self._ledger, scene, self._db.sizes()),
        }
        return Preview.of(self._ledger.add_plan(kind, found, about, scene.cutoff(wanted)))

    def scene(self) -> Scene:
        """Return the home as it is now."""
        there = alive.gather(self._db, self._store, self._clock(), self._pinned())
        return Scene(self._db, Conversations(self._db.inventory()), there, self._store)


def check(wanted: Wanted) -> None:
    """Make sure that something is asked for that there is, and that it makes sense.

    Raises:
        InvalidInput: it does not.
    """
    kinds = {*CHOOSERS, *(f"prune {what}" for what in ("routes", "orphans", "all"))}
    if wanted.kind not in kinds:
        raise InvalidInput(f"there is no plan to {wanted.kind}; one of {', '.join(sorted(kinds))}")
    if wanted.kind == "finalize sessions" and not wanted.ids:
        raise InvalidInput("name the sessions that are to be finalized")
    if wanted.ids is not None and wanted.kind not in _NAMED:
        raise InvalidInput(f"{wanted.kind} takes no sessions; only {', '.join(_NAMED)} do")
    if wanted.start_new and wanted.verb != "finalize":
        raise InvalidInput("start_new is for what is finalized")
    check_line("reason", wanted.reason)
    empty = [name for name in _PARTS_OF if getattr(wanted.where, name, None) == ""]
    if empty:
        raise InvalidInput(f"{empty[0].partition('_')[0]} is empty, and would choose everything")


_PARTS_OF = ("project", "title_like", "cwd_prefix", "model_like", "branch_like")
"""Of these an empty one is true of all: whoever gives one has lost what he meant."""

_NAMED = ("prune sessions", "prune routes", "finalize sessions")


def _each(wanted: Wanted) -> Iterable[Wanted]:
    """Yield what a plan of all kinds consists of."""
    if wanted.what != "all":
        yield wanted
        return
    for what in _ALL:
        yield Wanted(what, "prune", None, wanted.where, wanted.older_than_days)  # type: ignore[arg-type]


def _warnings(scene: Scene, wanted: Wanted, found: Collection[Member]) -> Iterator[str]:
    if wanted.ids is not None and wanted.what == "sessions":
        left = scene.unmatched(wanted.ids, wanted.where)
        if left:
            names = ", ".join(left[:_MOST_NAMES]) + (", ..." if left[_MOST_NAMES:] else "")
            yield f"{len(left)} of the named sessions do not match the filter and stay: {names}"
    company = scene.alive.company
    parts = {members.part_of(each) for each in found}
    if company.gateway is not None and (wanted.what in ("routes", "all") or wanted.start_new):
        yield f"{company.gateway} holds the routes in memory: stop it to have them changed"
    if company.holders and parts & {"sessions", "ghosts"}:
        others = ", ".join(map(str, company.holders))
        yield f"{others} has the database open: what never ended stays, and what ended lately"
    if "ended" in parts and scene.db.kind == "hermes":
        yield PLUGINS


PLUGINS = "the plugins of Hermes are not called for what is finalized here, ours are"
