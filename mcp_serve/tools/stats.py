"""`sessions_stats`: what is in a home, what is wrong with it, and which tool mends that."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import render, schemas
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.progress import Work
from mcp_serve.tools.spec import Spec
from session_core import Health, StorageError, describe_sqlite, gateway

_MOST_SOURCES = 50
_OTHERS = "(others)"


class StatsArguments(given_as.Home):
    """The arguments of `sessions_stats`."""

    deep: Annotated[bool, Field(description="Exact sizes, every page checked; slow.")] = False


def stats(
    home: Home, given: StatsArguments, asked: Asked, work: Work | None = None
) -> dict[str, Any]:
    """Return the report on a home."""
    del asked
    return examined(home, given, work)[0]


def examined(
    home: Home, given: StatsArguments, work: Work | None
) -> tuple[dict[str, Any], Health | None]:
    """Return the report on a home, and what it was made of where that could be read."""
    tell, stop = (None, None) if work is None else (work.tell, work.is_cancelled)
    try:
        health = home.maintenance.health(deep=given.deep, progress=tell, stop=stop)
    except StorageError as error:
        return _unreadable(home, error), None
    return _report(home, health), health


def _report(home: Home, health: Health) -> dict[str, Any]:
    census = health.sessions
    return {
        "home": str(home.path),
        "sessions": {
            "total": census.total,
            "open": census.open,
            "ended": census.ended,
            "archived": census.archived,
            "by_source": _by_source(home, health),
        },
        "messages": census.messages,
        "size": _sizes(health),
        "growth_per_week": health.growth_per_week,
        "tokens": dict(health.tokens),
        "cost": round(health.cost, 6),
        "findings": [_finding(home, each) for each in health.findings] + _absent(home),
        "sqlite": health.engine,
        "gateway_live": health.gateway is not None,
        "estimated": health.estimated,
    }


def _unreadable(home: Home, error: StorageError) -> dict[str, Any]:
    """Say of a home that cannot be read what is wrong with it, and nothing else."""
    nothing: dict[str, Any] = dict.fromkeys(("total", "open", "ended", "archived"), 0)
    return {
        "home": str(home.path),
        "sessions": nothing | {"by_source": {}},
        "messages": 0,
        "size": dict.fromkeys(("db", "wal", "index", "free", "trash"), 0),
        "growth_per_week": 0,
        "tokens": {},
        "cost": 0.0,
        "findings": [_found("unreadable", render.one_line(home, str(error), 300) or "")],
        "sqlite": describe_sqlite().version,
        "gateway_live": gateway(home.db_path.parent) is not None,
        "estimated": True,
    }


def _by_source(home: Home, health: Health) -> dict[str, int]:
    """Return how many sessions each source has; those that have the fewest are said together."""
    found: Counter[str] = Counter()
    for source, count in health.sessions.by_source.items():
        found[render.one_line(home, source, 80) or ""] += count
    shown = Counter(dict(found.most_common(_MOST_SOURCES)))
    shown[_OTHERS] += found.total() - shown.total()
    return dict(+shown)


def _sizes(health: Health) -> dict[str, int]:
    sizes = health.sizes
    of_db = dict.fromkeys(("db", "wal", "index", "free"), 0)
    if sizes is not None:
        of_db = {name: getattr(sizes, name) for name in of_db}
    return {**of_db, "trash": health.trash}


def _finding(home: Home, found: Any) -> dict[str, Any]:
    tool = None if found.tool is None else f"sessions_{found.tool}(what={found.plan!r})"
    return {
        "code": found.code,
        "count": found.count,
        "bytes": found.bytes,
        "what": render.one_line(home, found.what, 300) or "",
        "tool": tool,
    }


def _absent(home: Home) -> list[dict[str, Any]]:
    """Say where there is nothing yet, and what to do."""
    if home.db.path.exists():
        return []
    what = f"there is no {home.db.path} yet; start the agent once, or serve another --home"
    return [_found("no_database", what)]


def _found(code: str, what: str) -> dict[str, Any]:
    return {"code": code, "count": 1, "bytes": 0, "what": what, "tool": None}


SPEC = Spec(
    name="sessions_stats",
    title="Session statistics",
    description=(
        "Report on the session data: counts, sizes in bytes, growth, tokens, cost, and findings: "
        "what is wrong or takes room, with the tool call that mends it. Call it before any tidying."
    ),
    arguments=StatsArguments,
    answers=schemas.Stats,
    run=stats,
    takes_long="deep",
)
