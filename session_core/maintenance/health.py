"""The report on a home: what is in it, what is not as it should be, and which plan mends that.

Nothing is written. Unless asked to go deep it reads indexes and light rows alone, so that it
answers at once on a large home; sizes are then estimates. What cannot be read is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from session_core import alive
from session_core.alive import Alive, Company
from session_core.errors import SessionError
from session_core.ledger.ledger import Ledger
from session_core.maintenance import findings, growth
from session_core.maintenance.answers import CountFn, StopFn
from session_core.maintenance.conversations import Conversations
from session_core.maintenance.findings import Seen
from session_core.maintenance.records import Census, Found, Health, Week
from session_core.maintenance.scene import Scene
from session_core.maintenance.steps import Steps, Stopped
from session_core.models import Facts, Sizes, Stock
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

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
    for what, part in findings.PARTS.items():
        found += _read(what, partial(_all, part, seen), [], found)
    plannable = partial(findings.without_refused_plans, db, tuple(found))
    found[:] = _read("the search indexes", plannable, list(found), found)
    company = seen.scene.alive.company
    average = partial(growth.message_bytes, ledger, seen.scene, seen.sizes)
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
    gather = partial(alive.gather, db, store, now, pinned)
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
        check = partial(findings.of_integrity, db, step)
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
    weeks = facts.weeks[: growth.WEEKS]
    return round(sum(weeks) * message_bytes / len(weeks)) if weeks else 0
