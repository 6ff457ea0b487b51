"""`sessions_stats`: what is in a home, what is wrong with it, and which tool mends that."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import render, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec
from session_core import HealthReport, StorageError, describe_sqlite, find_gateway

_MAX_SOURCES = 50
_OTHERS_LABEL = "(others)"


class StatsArguments(given_as.ProfileArguments):
    """The arguments of `sessions_stats`."""

    deep: Annotated[bool, Field(description="Exact sizes, every page checked; slow.")] = False


def report_stats(
    home: ServedHome, given: StatsArguments, asked: PagedQuery, work: CallContext | None = None
) -> dict[str, Any]:
    """Return the report on a home."""
    del asked
    return examine_home(home, given, work)[0]


def examine_home(
    home: ServedHome, given: StatsArguments, work: CallContext | None
) -> tuple[dict[str, Any], HealthReport | None]:
    """Return the report on a home, and what it was made of where that could be read."""
    tell, stop = (None, None) if work is None else (work.report_progress, work.is_cancelled)
    try:
        health = home.maintenance.health(deep=given.deep, progress=tell, stop=stop)
    except StorageError as error:
        return _render_unreadable(home, error), None
    return _render_report(home, health), health


def _render_report(home: ServedHome, health: HealthReport) -> dict[str, Any]:
    census = health.sessions
    return {
        "home": str(home.path),
        "sessions": {
            "total": census.total,
            "open": census.open,
            "ended": census.ended,
            "archived": census.archived,
            "by_source": _count_by_source(home, health),
        },
        "messages": census.messages,
        "size": _render_sizes(health),
        "growth_per_week": health.growth_per_week,
        "tokens": dict(health.tokens),
        "cost": round(health.cost, 6),
        "findings": [_render_finding(home, each) for each in health.findings]
        + _find_missing_database(home),
        "sqlite": health.engine,
        "gateway_live": health.gateway is not None,
        "estimated": health.estimated,
    }


def _render_unreadable(home: ServedHome, error: StorageError) -> dict[str, Any]:
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
        "findings": [_make_finding("unreadable", render.render_line(home, str(error), 300) or "")],
        "sqlite": describe_sqlite().version,
        "gateway_live": find_gateway(home.db_path.parent) is not None,
        "estimated": True,
    }


def _count_by_source(home: ServedHome, health: HealthReport) -> dict[str, int]:
    """Return how many sessions each source has; those that have the fewest are said together."""
    found: Counter[str] = Counter()
    for source, count in health.sessions.by_source.items():
        found[render.render_line(home, source, 80) or ""] += count
    shown = Counter(dict(found.most_common(_MAX_SOURCES)))
    shown[_OTHERS_LABEL] += found.total() - shown.total()
    return dict(+shown)


def _render_sizes(health: HealthReport) -> dict[str, int]:
    sizes = health.sizes
    of_db = dict.fromkeys(("db", "wal", "index", "free"), 0)
    if sizes is not None:
        of_db = {name: getattr(sizes, name) for name in of_db}
    return {**of_db, "trash": health.trash}


def _render_finding(home: ServedHome, found: Any) -> dict[str, Any]:
    tool = None if found.tool is None else f"sessions_{found.tool}(what={found.plan!r})"
    return {
        "code": found.code,
        "count": found.count,
        "bytes": found.bytes,
        "what": render.render_line(home, found.what, 300) or "",
        "tool": tool,
    }


def _find_missing_database(home: ServedHome) -> list[dict[str, Any]]:
    """Say where there is nothing yet, and what to do."""
    if home.db.path.exists():
        return []
    what = f"there is no {home.db.path} yet; start the agent once, or serve another --home"
    return [_make_finding("no_database", what)]


def _make_finding(code: str, what: str) -> dict[str, Any]:
    return {"code": code, "count": 1, "bytes": 0, "what": what, "tool": None}


SPEC = ToolSpec(
    name="sessions_stats",
    title="Session statistics",
    description=(
        "Report on the session data: counts, sizes in bytes, growth, tokens, cost, and findings: "
        "what is wrong or takes room, with the tool call that mends it. Call it before any tidying."
    ),
    arguments=StatsArguments,
    answers=schemas.StatsOutput,
    run=report_stats,
    takes_long="deep",
)
