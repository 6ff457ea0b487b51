"""What is not as it should be in a home: how much of it, what would be won, what mends it.

The report on a home: what is in it, what is not as it should be, and which plan mends that.

Nothing is written. Unless asked to go deep it reads indexes and light rows alone, so that it
answers at once on a large home; sizes are then estimates. What cannot be read is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from session_core import activity
from session_core.activity import Alive, Company
from session_core.errors import SessionError
from session_core.ledger.ledger import Ledger
from session_core.maintenance import disk, vacuum
from session_core.maintenance.select import ghosts, orphans, routes, sessions, snapshot
from session_core.maintenance.select.conversations import Conversations
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.types import (
    Census,
    Chosen,
    CountFn,
    Found,
    Health,
    Selection,
    Steps,
    StopFn,
    Stopped,
    Wanted,
    Week,
)
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase, Step
from session_core.types import Facts, Sizes, Stock

_LONG_LOG_BYTES = 64 << 20

_TOLD = ("orphaned_messages", "orphaned_rows", "broken_parents")
"""What a check of the whole file finds again."""

_ORPHANS = partial(Found, tool="prune", plan="orphans")

Choose = Callable[[Scene, Wanted], Selection[Chosen]]

_KINDS: tuple[tuple[Wanted, str, str, Choose], ...] = (
    (
        Wanted("abandoned", "finalize"),
        "abandoned",
        "conversations that never ended and were not active for 30 days",
        sessions.abandoned,
    ),
    (
        Wanted("orphaned", "finalize"),
        "orphaned_continuations",
        "continuations that never ran",
        sessions.orphaned,
    ),
    (
        Wanted("expired", "finalize"),
        "expired",
        "sessions of chats that their policy has ended",
        sessions.expired,
    ),
    (
        Wanted("sessions"),
        "old_sessions",
        "conversations that ended and were not active for 90 days",
        sessions.old_sessions,
    ),
    (Wanted("ghosts"), "ghosts", "empty sessions", ghosts.ghosts),
)
"""What ends something comes first: it may be old enough to go, and a second round is not needed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of a home."""

    scene: Scene
    facts: Facts
    sizes: Sizes | None

    def bytes(self, rows: int) -> int:
        """Return about what so many messages take, with all that the database keeps of them."""
        return self.scene.bytes_of(rows, self.sizes)


def of_plan(wanted: Wanted, code: str, what: str, choose: Choose, seen: Seen) -> Iterator[Found]:
    """Yield what a kind of plan would choose."""
    chosen = choose(seen.scene, wanted).items
    won = seen.bytes(sum(each.rows for each in chosen)) if wanted.verb == "prune" else 0
    if chosen:
        yield Found(code, len(chosen), what, won, wanted.verb, wanted.what)


def of_rows(seen: Seen) -> Iterator[Found]:
    """Yield what is wrong in the rows of sessions."""
    conversations = seen.scene.conversations
    stocks = conversations.stocks.values()
    never = sum(each.ended_at is None for each in stocks)
    titles = Counter(each.title for each in stocks if each.title is not None)
    doubled = sum(count > 1 for count in titles.values())
    drifted = sum(each.counted != each.live for each in stocks)
    yield from _some(Found("never_ended", never, _NEVER))
    broken = len(conversations.broken)
    yield from _some(_ORPHANS("broken_parents", broken, "sessions whose parent is not there"))
    circles = len(conversations.cycles)
    yield from _some(_ORPHANS("cycles", circles, "circles of sessions, each the next one's parent"))
    yield from _some(
        Found(
            "duplicate_titles",
            doubled,
            "titles of several sessions; no plan, since who keeps it is for a person to say: an "
            "edit gives one another",
        )
    )
    yield from _some(Found("drifted_counters", drifted, _DRIFTED))


def of_routes(seen: Seen) -> Iterator[Found]:
    """Yield the routes that lead nowhere, and the entries that cannot be read."""
    lost: Counter[str] = Counter()
    for route in routes.lost_routes(seen.scene, Wanted("routes")).items:
        lost[_state(seen.scene, route.session_id, foreign=route.entry is None)] += 1
    for code, count in sorted(lost.items()):
        yield Found(f"{code}_routes", count, _ROUTES[code], 0, "prune", "routes")
    broken = [] if seen.scene.store is None else seen.scene.store.problems
    what = f"no plan, since what they were is somebody's to say: {'; '.join(broken[:3])}"
    yield from _some(Found("broken_entries", len(broken), what))


def of_orphans(seen: Seen) -> Iterator[Found]:
    """Yield what belongs to sessions that are not there."""
    wanted = Wanted("orphans")
    tables: Counter[str] = Counter()
    for each in orphans.orphaned_rows(seen.scene, seen.facts, wanted).items:
        tables[each.table] += each.rows
    for table, count in sorted(tables.items()):
        won = seen.bytes(count) if table == "messages" else 0
        yield _ORPHANS(f"orphaned_{table}", count, f"rows of {table} without their session", won)
    locks = orphans.dead_locks(seen.scene, seen.facts, wanted).items
    yield from _some(_ORPHANS("dead_locks", len(locks), "locks of compressions that ran out"))


def of_files(seen: Seen) -> Iterator[Found]:
    """Yield the files of sessions that are not there."""
    folder = folder_of(seen.scene.db, seen.scene.store)
    files = () if folder is None else orphans.orphaned_files(
        seen.scene, folder, Wanted("orphans")
    ).items  # fmt: skip
    size = sum(each.bytes for each in files)
    yield from _some(
        _ORPHANS("orphaned_files", len(files), "files of sessions that are not there", size)
    )


def of_sizes(seen: Seen) -> Iterator[Found]:
    """Yield what takes room and need not."""
    sizes = seen.sizes
    if sizes is None:
        return
    yield from _of_room(seen, sizes)
    if sizes.wal > _LONG_LOG_BYTES:
        what = "a long log, which its writers cut when nobody reads"
        yield Found("long_log", 1, what, sizes.wal)


def _of_room(seen: Seen, sizes: Sizes) -> Iterator[Found]:
    """Yield what a rewrite of the file would free; name the plan only if it can free it now."""
    freed = disk.freeable(sizes)
    if not disk.is_worth_freeing(freed, sizes):
        return
    hindrance = vacuum.in_the_way(seen.scene.alive.company)
    now = disk.freeable(sizes, shrinks=hindrance is None)
    what = "room in the file that no message uses"
    if hindrance is not None:
        what += f"; {hindrance}"
    if disk.is_worth_freeing(now, sizes):
        yield Found("free_pages", 1, what, now, "prune", "index")
    else:
        yield Found("free_pages", 1, what, freed)


def of_engine(seen: Seen) -> Iterator[Found]:
    """Yield what is known to be wrong with the engine itself."""
    if seen.facts.fault is not None:
        yield Found("engine_fault", 1, f"{seen.facts.engine}: {seen.facts.fault}")


def of_blocked(seen: Seen) -> Iterator[Found]:
    """Yield the search indexes that this process cannot write."""
    for index in seen.scene.db.blocked_indexes():
        if index.tables:  # otherwise nothing feeds it, and no change fails
            rows = " and ".join(index.tables)
            what = f"the search index {index.name} needs {index.needs}, which is not loaded: rows"
            yield Found("blocked_index", 1, f"{what} of {rows} {_BLOCKED}; the rest works")


def without_refused_plans(db: StateDatabase, found: Iterable[Found]) -> list[Found]:
    """Return findings, without a plan if that is refused since an index cannot be written."""
    listed = list(found)
    orphaned = {each.code.removeprefix("orphaned_") for each in listed if each.plan == "orphans"}
    tables = {"sessions": {"sessions", "messages"}, "ghosts": {"sessions"}, "orphans": orphaned}
    for index in db.blocked_indexes():
        refused = {plan for plan, rows in tables.items() if not rows.isdisjoint(index.tables)}
        reason = f"no plan while the search index {index.name} cannot be written"
        listed = [
            replace(each, what=f"{each.what}; {reason}", tool=None, plan=None)
            if each.plan in refused and each.tool == "prune"
            else each
            for each in listed
        ]
    return listed


def of_integrity(db: StateDatabase, step: Step) -> list[Found]:
    """Return what is damaged; all of the file is read for it, and a copy of the index checked."""
    return [
        Found(each.code, each.count, f"{each.what}; {_UNPLANNED.get(each.code, _NO_PLAN)}")
        for each in db.check_integrity(deep=True, step=step)
        if each.code not in _TOLD
    ]


def folder_of(db: StateDatabase, store: SessionStore | None) -> Path | None:
    """Return the folder with the files of sessions."""
    if store is not None:
        return store.sessions_dir
    return None if db.folder is None else db.folder / "sessions"


_NEVER = "sessions that never ended; those not active for 30 days are told as abandoned"
_DRIFTED = (
    "sessions whose counter is not what their rows say; no plan, since their agent may be about to "
    "write it, and nothing here believes it"
)

_BLOCKED = (
    "can be neither added nor removed here (prune, compress, restore, import) without "
    "--load-extension"
)

_NO_PLAN = "no plan mends it"
_NO_NEW_INDEX = "no plan builds it anew, and no message is lost by it"
_UNPLANNED = {
    "damaged": "no plan mends pages: export what can be read, and put a copy in its place",
    "search_index_damaged": _NO_NEW_INDEX,
    "search_index_incomplete": _NO_NEW_INDEX,
}
"""What to do about what the check of a file finds."""

_ROUTES = {
    "dangling": "routes to sessions that are not there",
    "foreign": "routes of folders that are gone",
    "stale": "routes to sessions that have ended",
}


def _state(scene: Scene, session_id: str, *, foreign: bool) -> str:
    if foreign:
        return "foreign"
    return "stale" if session_id in scene.conversations.stocks else "dangling"


def _some(found: Found) -> Iterator[Found]:
    if found.count:
        yield found


PARTS: dict[str, Callable[[Seen], Iterator[Found]]] = {
    **{code: partial(of_plan, wanted, code, what, choose) for wanted, code, what, choose in _KINDS},
    "the rows of sessions": of_rows,
    "the routes": of_routes,
    "what is left of other sessions": of_orphans,
    "the files of sessions": of_files,
    "the room that is taken": of_sizes,
    "the engine": of_engine,
    "the search indexes": of_blocked,
}
"""What a report looks at, each part by itself, so that one may fail."""


T = TypeVar("T")

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S
_AGES = {"day": 1, "week": 7, "month": 30, "quarter": 90}
_DEEP_PARTS = 2
_ENDED = Found("ended", 1, "the deep look was ended before it was done; ask for it again")
_NO_FACTS = Facts((), (), (), {}, 0.0, "", None)


def examine(
    db: StateDatabase,
    ledger: Ledger,
    store: SessionStore | None,
    now: float,
    *,
    deep: bool = False,
    progress: CountFn | None = None,
    stop: StopFn | None = None,
) -> Health:
    """Return the report on a home; `deep` counts every page, and checks it and the index."""
    found: list[Found] = []
    pinned: Collection[str] = _read("the pins", ledger.pins.all, (), found)
    seen = _look(db, store, now, pinned=pinned, found=found)
    if deep:
        seen = _look_deep(seen, progress, stop, found)
    for what, part in PARTS.items():
        found += _read(what, partial(_all, part, seen), [], found)
    plannable = partial(without_refused_plans, db, tuple(found))
    found[:] = _read("the search indexes", plannable, list(found), found)
    company = seen.scene.alive.company
    average = partial(snapshot.message_bytes, ledger, seen.scene, seen.sizes)
    each: float = _read("what a message takes", average, {"bytes": 0.0}, found)["bytes"]
    return Health(
        at=now,
        sessions=_census(seen.scene),
        sizes=seen.sizes,
        trash=_read("the trash", ledger.bytes_used, 0, found),
        growth_per_week=_growth(seen.facts, each),
        weeks=tuple(_weeks(seen, each)),
        tokens=seen.facts.tokens,
        cost=seen.facts.cost,
        engine=seen.facts.engine,
        gateway=company.gateway,
        holders=company.holders,
        findings=tuple(found),
        estimated=seen.sizes is None or not seen.sizes.exact,
    )


def _look(
    db: StateDatabase,
    store: SessionStore | None,
    now: float,
    *,
    pinned: Collection[str],
    found: list[Found],
) -> Seen:
    stocks: list[Stock] = _read("the sessions", db.inventory, [], found)
    gather = partial(activity.gather, db, store, now, pinned)
    nobody = Alive(Company(at=now))
    there = _read("who is alive", gather, nobody, found)
    sizes: Sizes | None = _read("the sizes", db.sizes, None, found)
    facts = _read("what is known beside the sessions", db.health_facts, _NO_FACTS, found)
    return Seen(Scene(db, Conversations(stocks), there, store), facts, sizes)


def _look_deep(
    seen: Seen, progress: CountFn | None, stop: StopFn | None, found: list[Found]
) -> Seen:
    """Count every page, then check it and the index; ended before that, what was seen is said."""
    db, done = seen.scene.db, 0

    def tell() -> None:
        if progress is not None:
            progress(done, _DEEP_PARTS)

    step = Steps(tell, stop)
    try:
        exact = partial(db.sizes, exact=True, step=step)
        seen = replace(seen, sizes=_read("the exact sizes", exact, seen.sizes, found))
        done = 1
        check = partial(of_integrity, db, step)
        found += _read("the integrity of the file", check, [], found)
    except Stopped:
        found.append(_ENDED)
    return seen


def _read(what: str, look: Callable[[], T], instead: T, found: list[Found]) -> T:
    """Look at a part; one that cannot be read is a finding."""
    try:
        return look()
    except (SessionError, OSError) as error:
        found.append(Found("unreadable", 1, f"{what} cannot be read: {error}"))
        return instead


def _all(part: Callable[[Seen], Iterator[Found]], seen: Seen) -> list[Found]:
    return list(part(seen))


def _census(scene: Scene) -> Census:
    stocks = scene.conversations.stocks.values()
    archived = sum(each.archived for each in stocks)
    ended = sum(each.ended_at is not None and not each.archived for each in stocks)
    return Census(
        total=len(stocks),
        open=len(stocks) - archived - ended,
        ended=ended,
        archived=archived,
        by_source=dict(Counter(each.source for each in stocks).most_common()),
        by_age=_ages((each.last_active_at for each in stocks), scene.now),
        messages=sum(each.rows for each in stocks),
    )


def _ages(times: Iterable[float | None], now: float) -> dict[str, int]:
    """Return how many were active last within a day, a week and so on, each counted once."""
    found = dict.fromkeys([*_AGES, "older", "unknown"], 0)
    for at in times:
        days = None if at is None else (now - at) / _DAY_S
        within = (name for name, most in _AGES.items() if days is not None and days < most)
        found["unknown" if days is None else next(within, "older")] += 1
    return found


def _weeks(seen: Seen, message_bytes: float) -> Iterator[Week]:
    for number, messages in enumerate(seen.facts.weeks, 1):
        yield Week(seen.scene.now - number * _WEEK_S, messages, round(messages * message_bytes))


def _growth(facts: Facts, message_bytes: float) -> int:
    weeks = facts.weeks[: snapshot.WEEKS]
    return round(sum(weeks) * message_bytes / len(weeks)) if weeks else 0
