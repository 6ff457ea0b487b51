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
from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.errors import SessionError
from session_core.ledger.ledger import Ledger
from session_core.maintenance import disk, vacuum
from session_core.maintenance.select import ghosts, orphans, routes, sessions, snapshot
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from session_core.maintenance.types import (
    CountFn,
    HealthFinding,
    HealthReport,
    PlanRequest,
    ProgressThrottle,
    SelectedSessions,
    Selection,
    SessionCensus,
    StopFn,
    StopRequested,
    WeeklyGrowth,
)
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase, StepCallback
from session_core.types import HomeFacts, InventoryItem, Sizes

_MAX_LOG_BYTES = 64 << 20

_DEEP_CHECK_CODES = ("orphaned_messages", "orphaned_rows", "broken_parents")
"""What a check of the whole file finds again."""

_ORPHAN_FINDING = partial(HealthFinding, tool="prune", plan="orphans")

SelectFn = Callable[[MaintenanceSnapshot, PlanRequest], Selection[SelectedSessions]]

_PLAN_CHECKS: tuple[tuple[PlanRequest, str, str, SelectFn], ...] = (
    (
        PlanRequest("abandoned", "finalize"),
        "abandoned",
        "conversations that never ended and were not active for 30 days",
        sessions.select_abandoned,
    ),
    (
        PlanRequest("orphaned", "finalize"),
        "orphaned_continuations",
        "continuations that never ran",
        sessions.select_orphaned,
    ),
    (
        PlanRequest("expired", "finalize"),
        "expired",
        "sessions of chats that their policy has ended",
        sessions.select_expired,
    ),
    (
        PlanRequest("sessions"),
        "old_sessions",
        "conversations that ended and were not active for 90 days",
        sessions.select_old_sessions,
    ),
    (PlanRequest("ghosts"), "ghosts", "empty sessions", ghosts.select_ghosts),
)
"""What ends something comes first: it may be old enough to go, and a second round is not needed."""


@dataclass(frozen=True, slots=True)
class HealthData:
    """What was read of a home."""

    scene: MaintenanceSnapshot
    facts: HomeFacts
    sizes: Sizes | None

    def estimate_bytes(self, rows: int) -> int:
        """Return about what so many messages take, with all that the database keeps of them."""
        return self.scene.estimate_bytes(rows, self.sizes)


def check_plan(
    wanted: PlanRequest, code: str, what: str, choose: SelectFn, seen: HealthData
) -> Iterator[HealthFinding]:
    """Yield what a kind of plan would choose."""
    chosen = choose(seen.scene, wanted).items
    won = seen.estimate_bytes(sum(each.rows for each in chosen)) if wanted.verb == "prune" else 0
    if chosen:
        yield HealthFinding(code, len(chosen), what, won, wanted.verb, wanted.what)


def check_rows(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield what is wrong in the rows of sessions."""
    conversations = seen.scene.conversations
    stocks = conversations.stocks.values()
    never = sum(each.ended_at is None for each in stocks)
    titles = Counter(each.title for each in stocks if each.title is not None)
    doubled = sum(count > 1 for count in titles.values())
    drifted = sum(each.counted != each.live for each in stocks)
    yield from _skip_empty(HealthFinding("never_ended", never, _NEVER_ENDED_TEXT))
    broken = len(conversations.parentless_sessions)
    yield from _skip_empty(
        _ORPHAN_FINDING("broken_parents", broken, "sessions whose parent is not there")
    )
    circles = len(conversations.cycles)
    yield from _skip_empty(
        _ORPHAN_FINDING("cycles", circles, "circles of sessions, each the next one's parent")
    )
    yield from _skip_empty(
        HealthFinding(
            "duplicate_titles",
            doubled,
            "titles of several sessions; no plan, since who keeps it is for a person to say: an "
            "edit gives one another",
        )
    )
    yield from _skip_empty(HealthFinding("drifted_counters", drifted, _DRIFTED_TEXT))


def check_routes(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield the routes that lead nowhere, and the entries that cannot be read."""
    lost: Counter[str] = Counter()
    for route in routes.select_lost_routes(seen.scene, PlanRequest("routes")).items:
        lost[_find_route_state(seen.scene, route.session_id, foreign=route.entry is None)] += 1
    for code, count in sorted(lost.items()):
        yield HealthFinding(f"{code}_routes", count, _ROUTE_TEXTS[code], 0, "prune", "routes")
    broken = [] if seen.scene.store is None else seen.scene.store.problems
    what = f"no plan, since what they were is somebody's to say: {'; '.join(broken[:3])}"
    yield from _skip_empty(HealthFinding("broken_entries", len(broken), what))


def check_orphans(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield what belongs to sessions that are not there."""
    wanted = PlanRequest("orphans")
    tables: Counter[str] = Counter()
    for each in orphans.select_orphaned_rows(seen.scene, seen.facts, wanted).items:
        tables[each.table] += each.rows
    for table, count in sorted(tables.items()):
        won = seen.estimate_bytes(count) if table == "messages" else 0
        yield _ORPHAN_FINDING(
            f"orphaned_{table}", count, f"rows of {table} without their session", won
        )
    locks = orphans.select_dead_locks(seen.scene, seen.facts, wanted).items
    yield from _skip_empty(
        _ORPHAN_FINDING("dead_locks", len(locks), "locks of compressions that ran out")
    )


def check_files(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield the files of sessions that are not there."""
    folder = get_session_folder(seen.scene.db, seen.scene.store)
    files = () if folder is None else orphans.select_orphaned_files(
        seen.scene, folder, PlanRequest("orphans")
    ).items  # fmt: skip
    size = sum(each.bytes for each in files)
    yield from _skip_empty(
        _ORPHAN_FINDING("orphaned_files", len(files), "files of sessions that are not there", size)
    )


def check_sizes(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield what takes room and need not."""
    sizes = seen.sizes
    if sizes is None:
        return
    yield from _check_free_space(seen, sizes)
    if sizes.wal > _MAX_LOG_BYTES:
        what = "a long log, which its writers cut when nobody reads"
        yield HealthFinding("long_log", 1, what, sizes.wal)


def _check_free_space(seen: HealthData, sizes: Sizes) -> Iterator[HealthFinding]:
    """Yield what a rewrite of the file would free; name the plan only if it can free it now."""
    freed = disk.estimate_freeable(sizes)
    if not disk.is_worth_freeing(freed, sizes):
        return
    hindrance = vacuum.find_obstacle(seen.scene.alive.company)
    now = disk.estimate_freeable(sizes, shrinks=hindrance is None)
    what = "room in the file that no message uses"
    if hindrance is not None:
        what += f"; {hindrance}"
    if disk.is_worth_freeing(now, sizes):
        yield HealthFinding("free_pages", 1, what, now, "prune", "index")
    else:
        yield HealthFinding("free_pages", 1, what, freed)


def check_engine(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield what is known to be wrong with the engine itself."""
    if seen.facts.fault is not None:
        yield HealthFinding("engine_fault", 1, f"{seen.facts.engine}: {seen.facts.fault}")


def check_blocked_indexes(seen: HealthData) -> Iterator[HealthFinding]:
    """Yield the search indexes that this process cannot write."""
    for index in seen.scene.db.list_blocked_indexes():
        if index.tables:  # otherwise nothing feeds it, and no change fails
            rows = " and ".join(index.tables)
            what = f"the search index {index.name} needs {index.needs}, which is not loaded: rows"
            yield HealthFinding(
                "blocked_index", 1, f"{what} of {rows} {_BLOCKED_TEXT}; the rest works"
            )


def drop_refused_plans(db: StateDatabase, found: Iterable[HealthFinding]) -> list[HealthFinding]:
    """Return findings, without a plan if that is refused since an index cannot be written."""
    listed = list(found)
    orphaned = {each.code.removeprefix("orphaned_") for each in listed if each.plan == "orphans"}
    tables = {"sessions": {"sessions", "messages"}, "ghosts": {"sessions"}, "orphans": orphaned}
    for index in db.list_blocked_indexes():
        refused = {plan for plan, rows in tables.items() if not rows.isdisjoint(index.tables)}
        reason = f"no plan while the search index {index.name} cannot be written"
        listed = [
            replace(each, what=f"{each.what}; {reason}", tool=None, plan=None)
            if each.plan in refused and each.tool == "prune"
            else each
            for each in listed
        ]
    return listed


def check_integrity(db: StateDatabase, step: StepCallback) -> list[HealthFinding]:
    """Return what is damaged; all of the file is read for it, and a copy of the index checked."""
    return [
        HealthFinding(
            each.code, each.count, f"{each.what}; {_DAMAGE_TEXTS.get(each.code, _NO_PLAN_TEXT)}"
        )
        for each in db.check_integrity(deep=True, step=step)
        if each.code not in _DEEP_CHECK_CODES
    ]


def get_session_folder(db: StateDatabase, store: SessionStore | None) -> Path | None:
    """Return the folder with the files of sessions."""
    if store is not None:
        return store.sessions_dir
    return None if db.folder is None else db.folder / "sessions"


_NEVER_ENDED_TEXT = "sessions that never ended; those not active for 30 days are told as abandoned"
_DRIFTED_TEXT = (
    "sessions whose counter is not what their rows say; no plan, since their agent may be about to "
    "write it, and nothing here believes it"
)

_BLOCKED_TEXT = (
    "can be neither added nor removed here (prune, compress, restore, import) without "
    "--load-extension"
)

_NO_PLAN_TEXT = "no plan mends it"
_NO_NEW_INDEX_TEXT = "no plan builds it anew, and no message is lost by it"
_DAMAGE_TEXTS = {
    "damaged": "no plan mends pages: export what can be read, and put a copy in its place",
    "search_index_damaged": _NO_NEW_INDEX_TEXT,
    "search_index_incomplete": _NO_NEW_INDEX_TEXT,
}
"""What to do about what the check of a file finds."""

_ROUTE_TEXTS = {
    "dangling": "routes to sessions that are not there",
    "foreign": "routes of folders that are gone",
    "stale": "routes to sessions that have ended",
}


def _find_route_state(scene: MaintenanceSnapshot, session_id: str, *, foreign: bool) -> str:
    if foreign:
        return "foreign"
    return "stale" if session_id in scene.conversations.stocks else "dangling"


def _skip_empty(found: HealthFinding) -> Iterator[HealthFinding]:
    if found.count:
        yield found


CHECKS: dict[str, Callable[[HealthData], Iterator[HealthFinding]]] = {
    **{
        code: partial(check_plan, wanted, code, what, choose)
        for wanted, code, what, choose in _PLAN_CHECKS
    },
    "the rows of sessions": check_rows,
    "the routes": check_routes,
    "what is left of other sessions": check_orphans,
    "the files of sessions": check_files,
    "the room that is taken": check_sizes,
    "the engine": check_engine,
    "the search indexes": check_blocked_indexes,
}
"""What a report looks at, each part by itself, so that one may fail."""


T = TypeVar("T")

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S
_AGE_DAYS = {"day": 1, "week": 7, "month": 30, "quarter": 90}
_DEEP_PART_COUNT = 2
_STOPPED_FINDING = HealthFinding(
    "ended", 1, "the deep look was ended before it was done; ask for it again"
)
_EMPTY_FACTS = HomeFacts((), (), (), {}, 0.0, "", None)


def examine_home(
    db: StateDatabase,
    ledger: Ledger,
    store: SessionStore | None,
    now: float,
    *,
    deep: bool = False,
    progress: CountFn | None = None,
    stop: StopFn | None = None,
) -> HealthReport:
    """Return the report on a home; `deep` counts every page, and checks it and the index."""
    found: list[HealthFinding] = []
    pinned: Collection[str] = _try_read("the pins", ledger.pins.list_pinned, (), found)
    seen = _read_home(db, store, now, pinned=pinned, found=found)
    if deep:
        seen = _read_deeply(seen, progress, stop, found)
    for what, part in CHECKS.items():
        found += _try_read(what, partial(_run_check, part, seen), [], found)
    plannable = partial(drop_refused_plans, db, tuple(found))
    found[:] = _try_read("the search indexes", plannable, list(found), found)
    company = seen.scene.alive.company
    average = partial(snapshot.measure_message_bytes, ledger, seen.scene, seen.sizes)
    each: float = _try_read("what a message takes", average, {"bytes": 0.0}, found)["bytes"]
    return HealthReport(
        at=now,
        sessions=_count_sessions(seen.scene),
        sizes=seen.sizes,
        trash=_try_read("the trash", ledger.count_trash_bytes, 0, found),
        growth_per_week=_estimate_growth(seen.facts, each),
        weeks=tuple(_iter_weeks(seen, each)),
        tokens=seen.facts.tokens,
        cost=seen.facts.cost,
        engine=seen.facts.engine,
        gateway=company.gateway,
        holders=company.holders,
        findings=tuple(found),
        estimated=seen.sizes is None or not seen.sizes.exact,
    )


def _read_home(
    db: StateDatabase,
    store: SessionStore | None,
    now: float,
    *,
    pinned: Collection[str],
    found: list[HealthFinding],
) -> HealthData:
    stocks: list[InventoryItem] = _try_read("the sessions", db.list_inventory, [], found)
    gather = partial(activity.gather_activity, db, store, now, pinned)
    nobody = ActivitySnapshot(HomeActivity(at=now))
    there = _try_read("who is alive", gather, nobody, found)
    sizes: Sizes | None = _try_read("the sizes", db.measure_sizes, None, found)
    facts = _try_read(
        "what is known beside the sessions", db.read_health_facts, _EMPTY_FACTS, found
    )
    return HealthData(
        MaintenanceSnapshot(db, ConversationIndex(stocks), there, store), facts, sizes
    )


def _read_deeply(
    seen: HealthData, progress: CountFn | None, stop: StopFn | None, found: list[HealthFinding]
) -> HealthData:
    """Count every page, then check it and the index; ended before that, what was seen is said."""
    db, done = seen.scene.db, 0

    def tell() -> None:
        if progress is not None:
            progress(done, _DEEP_PART_COUNT)

    step = ProgressThrottle(tell, stop)
    try:
        exact = partial(db.measure_sizes, exact=True, step=step)
        seen = replace(seen, sizes=_try_read("the exact sizes", exact, seen.sizes, found))
        done = 1
        check = partial(check_integrity, db, step)
        found += _try_read("the integrity of the file", check, [], found)
    except StopRequested:
        found.append(_STOPPED_FINDING)
    return seen


def _try_read(what: str, look: Callable[[], T], instead: T, found: list[HealthFinding]) -> T:
    """Look at a part; one that cannot be read is a finding."""
    try:
        return look()
    except (SessionError, OSError) as error:
        found.append(HealthFinding("unreadable", 1, f"{what} cannot be read: {error}"))
        return instead


def _run_check(
    part: Callable[[HealthData], Iterator[HealthFinding]], seen: HealthData
) -> list[HealthFinding]:
    return list(part(seen))


def _count_sessions(scene: MaintenanceSnapshot) -> SessionCensus:
    stocks = scene.conversations.stocks.values()
    archived = sum(each.archived for each in stocks)
    ended = sum(each.ended_at is not None and not each.archived for each in stocks)
    return SessionCensus(
        total=len(stocks),
        open=len(stocks) - archived - ended,
        ended=ended,
        archived=archived,
        by_source=dict(Counter(each.source for each in stocks).most_common()),
        by_age=_count_by_age((each.last_active_at for each in stocks), scene.now),
        messages=sum(each.rows for each in stocks),
    )


def _count_by_age(times: Iterable[float | None], now: float) -> dict[str, int]:
    """Return how many were active last within a day, a week and so on, each counted once."""
    found = dict.fromkeys([*_AGE_DAYS, "older", "unknown"], 0)
    for at in times:
        days = None if at is None else (now - at) / _DAY_S
        within = (name for name, most in _AGE_DAYS.items() if days is not None and days < most)
        found["unknown" if days is None else next(within, "older")] += 1
    return found


def _iter_weeks(seen: HealthData, message_bytes: float) -> Iterator[WeeklyGrowth]:
    for number, messages in enumerate(seen.facts.weeks, 1):
        yield WeeklyGrowth(
            seen.scene.now - number * _WEEK_S, messages, round(messages * message_bytes)
        )


def _estimate_growth(facts: HomeFacts, message_bytes: float) -> int:
    weeks = facts.weeks[: snapshot.GROWTH_WEEKS]
    return round(sum(weeks) * message_bytes / len(weeks)) if weeks else 0
