"""Report on a home: its contents, its problems, and the plan that fixes each problem.

Nothing is written. Unless `deep` is set, only indexes and small rows are read, so that a report on
a large home is immediate; sizes are then estimates. Anything unreadable becomes a finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from session_core import activity
from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.errors import SessionError
from session_core.maintenance import disk, kinds, space_reclaim
from session_core.maintenance.home_context import HomeContext, get_session_folder
from session_core.maintenance.kinds import PlanKind
from session_core.maintenance.select import lost_routes, orphans
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import (
    GROWTH_WEEKS,
    MaintenanceSnapshot,
    measure_message_bytes,
)
from session_core.maintenance.types import (
    CountFn,
    HealthFinding,
    HealthReport,
    PlanRequest,
    ProgressThrottle,
    SessionCensus,
    StopFn,
    StopRequested,
    WeeklyGrowth,
)
from session_core.state.protocol import StateDatabase, StepCallback
from session_core.types import HomeFacts, InventoryItem, Sizes

_MAX_LOG_BYTES = 64 << 20

_DEEP_CHECK_CODES = ("orphaned_messages", "orphaned_rows", "broken_parents")
"""Codes that a check of the whole file would report a second time."""

_ORPHAN_FINDING = partial(HealthFinding, tool="prune", plan="orphans")


@dataclass(frozen=True, slots=True)
class HealthData:
    """The data that was read from a home."""

    snapshot: MaintenanceSnapshot
    facts: HomeFacts
    sizes: Sizes | None

    def estimate_bytes(self, rows: int) -> int:
        """Estimate the size in bytes of this many messages with their indexes."""
        return self.snapshot.estimate_bytes(rows, self.sizes)


def check_kind(kind: PlanKind, data: HealthData) -> Iterator[HealthFinding]:
    """Yield a finding with the items that a kind of plan would select."""
    verb: Literal["prune", "finalize"] = "prune" if kind.tool == "prune" else "finalize"
    request = PlanRequest(kind.what, verb)
    items = kinds.load_function(kind.select)(data.snapshot, request).items
    freed = data.estimate_bytes(sum(item.rows for item in items)) if kind.deletes_rows else 0
    if items and kind.finding is not None:
        code, text = kind.finding
        yield HealthFinding(code, len(items), text, freed, verb, kind.what)


def check_rows(data: HealthData) -> Iterator[HealthFinding]:
    """Yield problems in the rows of sessions."""
    conversations = data.snapshot.conversations
    items = conversations.sessions.values()
    never = sum(item.ended_at is None for item in items)
    titles = Counter(item.title for item in items if item.title is not None)
    duplicates = sum(count > 1 for count in titles.values())
    drifted = sum(item.counted != item.live for item in items)
    yield from _skip_empty(HealthFinding("never_ended", never, _NEVER_ENDED_TEXT))
    broken = len(conversations.parentless_sessions)
    yield from _skip_empty(
        _ORPHAN_FINDING("broken_parents", broken, "sessions with a missing parent")
    )
    cycles = len(conversations.cycles)
    yield from _skip_empty(
        _ORPHAN_FINDING("cycles", cycles, "cycles of sessions, each the parent of the next")
    )
    yield from _skip_empty(
        HealthFinding(
            "duplicate_titles",
            duplicates,
            "titles of several sessions; no plan, since a person has to choose: rename all but "
            "one with an edit",
        )
    )
    yield from _skip_empty(HealthFinding("drifted_counters", drifted, _DRIFTED_TEXT))


def check_routes(data: HealthData) -> Iterator[HealthFinding]:
    """Yield routes that lead nowhere, and entries that cannot be read."""
    lost: Counter[str] = Counter()
    for route in lost_routes.select_lost_routes(data.snapshot, PlanRequest("routes")).items:
        lost[_find_route_state(data.snapshot, route.session_id, foreign=route.entry is None)] += 1
    for code, count in sorted(lost.items()):
        yield HealthFinding(f"{code}_routes", count, _ROUTE_TEXTS[code], 0, "prune", "routes")
    # The store keeps the errors of the entries that it could not read.
    broken = [] if data.snapshot.store is None else data.snapshot.store.problems
    text = f"no plan, since a person has to repair them: {'; '.join(broken[:3])}"
    yield from _skip_empty(HealthFinding("broken_entries", len(broken), text))


def check_orphans(data: HealthData) -> Iterator[HealthFinding]:
    """Yield rows and locks of missing sessions."""
    request = PlanRequest("orphans")
    tables: Counter[str] = Counter()
    for rows in orphans.select_orphaned_rows(data.snapshot, data.facts, request).items:
        tables[rows.table] += rows.rows
    for table, count in sorted(tables.items()):
        freed = data.estimate_bytes(count) if table == "messages" else 0
        yield _ORPHAN_FINDING(
            f"orphaned_{table}", count, f"rows of {table} without their session", freed
        )
    locks = orphans.select_dead_locks(data.snapshot, data.facts, request).items
    yield from _skip_empty(
        _ORPHAN_FINDING("dead_locks", len(locks), "locks of compressions that ran out")
    )


def check_files(data: HealthData) -> Iterator[HealthFinding]:
    """Yield the files of missing sessions."""
    folder = get_session_folder(data.snapshot.db, data.snapshot.store)
    files = () if folder is None else orphans.select_orphaned_files(
        data.snapshot, folder, PlanRequest("orphans")
    ).items  # fmt: skip
    size = sum(file.bytes for file in files)
    yield from _skip_empty(
        _ORPHAN_FINDING("orphaned_files", len(files), "files of missing sessions", size)
    )


def check_sizes(data: HealthData) -> Iterator[HealthFinding]:
    """Yield disk space that could be freed."""
    sizes = data.sizes
    if sizes is None:
        return
    yield from _check_free_space(data, sizes)
    if sizes.wal > _MAX_LOG_BYTES:
        text = "a long write-ahead log, which writers truncate when there are no readers"
        yield HealthFinding("long_log", 1, text, sizes.wal)


def _check_free_space(data: HealthData, sizes: Sizes) -> Iterator[HealthFinding]:
    """Yield the bytes that a rewrite of the file would free, with the plan if it can run now."""
    freed = disk.estimate_freeable_bytes(sizes)
    if not disk.is_worth_freeing(freed, sizes):
        return
    obstacle = space_reclaim.find_rewrite_obstacle(data.snapshot.activity.company)
    freeable = disk.estimate_freeable_bytes(sizes, shrinks=obstacle is None)
    text = "unused space in the file"
    if obstacle is not None:
        text += f"; {obstacle}"
    if disk.is_worth_freeing(freeable, sizes):
        yield HealthFinding("free_pages", 1, text, freeable, "prune", "index")
    else:
        yield HealthFinding("free_pages", 1, text, freed)


def check_engine(data: HealthData) -> Iterator[HealthFinding]:
    """Yield a known fault of the database engine."""
    if data.facts.fault is not None:
        yield HealthFinding("engine_fault", 1, f"{data.facts.engine}: {data.facts.fault}")


def check_blocked_indexes(data: HealthData) -> Iterator[HealthFinding]:
    """Yield the search indexes that this process cannot write."""
    for index in data.snapshot.db.admin.list_blocked_indexes():
        if index.tables:  # otherwise no trigger writes it, and no change fails
            rows = " and ".join(index.tables)
            text = f"the search index {index.name} needs {index.needs}, which is not loaded: rows"
            yield HealthFinding(
                "blocked_index", 1, f"{text} of {rows} {_BLOCKED_TEXT}; the rest works"
            )


def drop_refused_plans(db: StateDatabase, findings: Iterable[HealthFinding]) -> list[HealthFinding]:
    """Return findings, without plans that an unwritable index would refuse."""
    # Each finding stays, since the report is about the home; only its plan is dropped.
    listed = list(findings)
    tables: defaultdict[str | None, set[str]] = defaultdict(set)
    for finding in listed:
        if finding.tool == "prune":
            tables[finding.plan].update(_list_deleted_tables(finding))
    for index in db.admin.list_blocked_indexes():
        refused = {plan for plan, names in tables.items() if not names.isdisjoint(index.tables)}
        reason = f"no plan while the search index {index.name} cannot be written"
        listed = [
            replace(finding, what=f"{finding.what}; {reason}", tool=None, plan=None)
            if finding.plan in refused and finding.tool == "prune"
            else finding
            for finding in listed
        ]
    return listed


def _list_deleted_tables(finding: HealthFinding) -> Collection[str]:
    """Return the indexed tables from which a plan that fixes a finding deletes rows."""
    kind = kinds.PLAN_KINDS[f"{finding.tool} {finding.plan}"]
    part = kinds.PLAN_PARTS.get(kind.part)
    # A plan of orphans deletes from the table that its finding names.
    return (finding.code.removeprefix("orphaned_"),) if part is None else part.deletes_from


def check_integrity(db: StateDatabase, step: StepCallback) -> list[HealthFinding]:
    """Return damage found by reading the whole file and checking a copy of the index."""
    return [
        HealthFinding(
            problem.code,
            problem.count,
            f"{problem.what}; {_DAMAGE_TEXTS.get(problem.code, _NO_PLAN_TEXT)}",
        )
        for problem in db.admin.check_integrity(deep=True, step=step)
        if problem.code not in _DEEP_CHECK_CODES
    ]


_NEVER_ENDED_TEXT = (
    "sessions that never ended; those not active for 30 days are listed as abandoned"
)
_DRIFTED_TEXT = (
    "sessions with a counter that differs from their rows; no plan, since their agent may be "
    "about to write it, and the counter is not used here"
)

_BLOCKED_TEXT = (
    "can be neither added nor removed here (prune, compress, restore, import) without "
    "--load-extension"
)

_NO_PLAN_TEXT = "no plan repairs it"
_NO_NEW_INDEX_TEXT = "no plan rebuilds it; messages are not affected"
_DAMAGE_TEXTS = {
    "damaged": "no plan repairs pages: export the readable sessions and replace the file",
    "search_index_damaged": _NO_NEW_INDEX_TEXT,
    "search_index_incomplete": _NO_NEW_INDEX_TEXT,
}
"""The advice for each kind of damage."""

_ROUTE_TEXTS = {
    "dangling": "routes to missing sessions",
    "foreign": "routes of missing folders",
    "stale": "routes to sessions that have ended",
}


def _find_route_state(snapshot: MaintenanceSnapshot, session_id: str, *, foreign: bool) -> str:
    if foreign:
        return "foreign"
    return "stale" if session_id in snapshot.conversations.sessions else "dangling"


def _skip_empty(finding: HealthFinding) -> Iterator[HealthFinding]:
    if finding.count:
        yield finding


CHECKS: dict[str, Callable[[HealthData], Iterator[HealthFinding]]] = {
    # Plans that end sessions come first: an ended session may be old enough to be pruned at once.
    **{
        kind.finding[0]: partial(check_kind, kind)
        for kind in (
            *reversed([*kinds.list_requestable("finalize")]),
            *kinds.list_requestable("prune"),
        )
        if kind.finding is not None
    },
    "the rows of sessions": check_rows,
    "the routes": check_routes,
    "the data of missing sessions": check_orphans,
    "the files of sessions": check_files,
    "the disk space": check_sizes,
    "the engine": check_engine,
    "the search indexes": check_blocked_indexes,
}
"""The parts of a report by name; each may fail by itself."""


T = TypeVar("T")

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S
_AGE_DAYS = {"day": 1, "week": 7, "month": 30, "quarter": 90}
_DEEP_PART_COUNT = 2
_STOPPED_FINDING = HealthFinding(
    "ended", 1, "the deep check was stopped before its end; run it again"
)
_EMPTY_FACTS = HomeFacts((), (), (), {}, 0.0, "", None)


def examine_home(
    home: HomeContext,
    *,
    deep: bool = False,
    progress: CountFn | None = None,
    stop: StopFn | None = None,
) -> HealthReport:
    """Return the report on a home.

    `deep` counts every page, and checks the file and the index.
    """
    findings: list[HealthFinding] = []
    data = _read_home(home, findings)
    if deep:
        data = _check_pages_and_index(data, progress, stop, findings)
    for name, check in CHECKS.items():
        findings += _try_read(name, partial(_run_check, check, data), [], findings)
    plannable = partial(drop_refused_plans, home.db, tuple(findings))
    findings[:] = _try_read("the search indexes", plannable, list(findings), findings)
    company = data.snapshot.activity.company
    average = partial(measure_message_bytes, home.ledger, data.snapshot, lambda: data.sizes)
    message_bytes: float = _try_read(
        "the average size of a message", average, {"bytes": 0.0}, findings
    )["bytes"]
    return HealthReport(
        at=data.snapshot.now,
        sessions=_count_sessions(data.snapshot),
        sizes=data.sizes,
        trash=_try_read("the trash", home.ledger.count_trash_bytes, 0, findings),
        growth_per_week=_estimate_growth(data.facts, message_bytes),
        weeks=tuple(_iter_weeks(data, message_bytes)),
        tokens=data.facts.tokens,
        cost=data.facts.cost,
        engine=data.facts.engine,
        gateway=company.gateway,
        holders=company.holders,
        findings=tuple(findings),
        estimated=data.sizes is None or not data.sizes.exact,
    )


def _read_home(home: HomeContext, findings: list[HealthFinding]) -> HealthData:
    db, now = home.db, home.clock()
    pinned: Collection[str] = _try_read("the pins", home.list_pinned, (), findings)
    items: list[InventoryItem] = _try_read("the sessions", db.admin.list_inventory, [], findings)
    gather = partial(activity.gather_activity, db, home.store, now, pinned)
    empty = ActivitySnapshot(HomeActivity(at=now))
    activity_snapshot = _try_read("the activity", gather, empty, findings)
    sizes: Sizes | None = _try_read("the sizes", db.admin.measure_sizes, None, findings)
    facts = _try_read(
        "the tables other than sessions", db.admin.read_health_facts, _EMPTY_FACTS, findings
    )
    snapshot = MaintenanceSnapshot(db, ConversationIndex(items), activity_snapshot, home.store)
    return HealthData(snapshot, facts, sizes)


def _check_pages_and_index(
    data: HealthData, progress: CountFn | None, stop: StopFn | None, findings: list[HealthFinding]
) -> HealthData:
    """Count every page, then check the file and the index.

    The results so far are kept if the check is stopped.
    """
    db, done_parts = data.snapshot.db, 0

    def report() -> None:
        if progress is not None:
            progress(done_parts, _DEEP_PART_COUNT)

    step = ProgressThrottle(report, stop)
    try:
        exact = partial(db.admin.measure_sizes, exact=True, step=step)
        data = replace(data, sizes=_try_read("the exact sizes", exact, data.sizes, findings))
        done_parts = 1
        check = partial(check_integrity, db, step)
        findings += _try_read("the integrity of the file", check, [], findings)
    except StopRequested:
        findings.append(_STOPPED_FINDING)
    return data


def _try_read(name: str, read: Callable[[], T], instead: T, findings: list[HealthFinding]) -> T:
    """Return the result of `read`, or add a finding and return `instead` if it fails."""
    try:
        return read()
    # One damaged part must not hide the others.
    except (SessionError, OSError) as error:
        findings.append(HealthFinding("unreadable", 1, f"{name} cannot be read: {error}"))
        return instead


def _run_check(
    check: Callable[[HealthData], Iterator[HealthFinding]], data: HealthData
) -> list[HealthFinding]:
    return list(check(data))


def _count_sessions(snapshot: MaintenanceSnapshot) -> SessionCensus:
    items = snapshot.conversations.sessions.values()
    archived = sum(item.archived for item in items)
    ended = sum(item.ended_at is not None and not item.archived for item in items)
    return SessionCensus(
        total=len(items),
        open=len(items) - archived - ended,
        ended=ended,
        archived=archived,
        by_source=dict(Counter(item.source for item in items).most_common()),
        by_age=_count_by_age((item.last_active_at for item in items), snapshot.now),
        messages=sum(item.rows for item in items),
    )


def _count_by_age(times: Iterable[float | None], now: float) -> dict[str, int]:
    """Return the number of sessions last active within a day, a week and so on, each once."""
    counts = dict.fromkeys([*_AGE_DAYS, "older", "unknown"], 0)
    for at in times:
        days = None if at is None else (now - at) / _DAY_S
        # The ages ascend, so that the first match is the narrowest.
        within = (name for name, limit in _AGE_DAYS.items() if days is not None and days < limit)
        counts["unknown" if days is None else next(within, "older")] += 1
    return counts


def _iter_weeks(data: HealthData, message_bytes: float) -> Iterator[WeeklyGrowth]:
    for number, messages in enumerate(data.facts.weeks, 1):
        yield WeeklyGrowth(
            data.snapshot.now - number * _WEEK_S, messages, round(messages * message_bytes)
        )


def _estimate_growth(facts: HomeFacts, message_bytes: float) -> int:
    weeks = facts.weeks[:GROWTH_WEEKS]
    return round(sum(weeks) * message_bytes / len(weeks)) if weeks else 0
