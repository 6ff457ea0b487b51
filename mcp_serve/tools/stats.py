"""`sessions_stats`: report the contents and faults of a home, with the tool that fixes each."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments, render, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec
from session_core import StorageError, describe_sqlite, find_gateway
from session_core.maintenance import HealthReport

_MAX_SOURCES = 50
_OTHERS_LABEL = "(others)"


class StatsArguments(arguments.StoreArguments):
    """The arguments of `sessions_stats`."""

    deep: Annotated[bool, Field(description="Exact sizes, all pages checked; slow.")] = False


def report_stats(
    home: ServedHome,
    arguments: StatsArguments,
    page_query: PagedQuery,
    work: CallContext | None = None,
) -> dict[str, Any]:
    """Return the report on a home."""
    del page_query
    return examine_home(home, arguments, work)[0]


def examine_home(
    home: ServedHome, arguments: StatsArguments, work: CallContext | None
) -> tuple[dict[str, Any], HealthReport | None]:
    """Return the report on a home and its health data, or None if it cannot be read."""
    report, stop = (None, None) if work is None else (work.report_progress, work.is_cancelled)
    try:
        health = home.maintenance.health(deep=arguments.deep, progress=report, stop=stop)
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
        "findings": [_render_finding(home, finding) for finding in health.findings]
        + _find_missing_database(home),
        "sqlite": health.engine,
        "gateway_live": health.gateway is not None,
        "estimated": health.estimated,
    }


def _render_unreadable(home: ServedHome, error: StorageError) -> dict[str, Any]:
    """Return the report on a home that cannot be read: its fault and no figures."""
    zeros: dict[str, Any] = dict.fromkeys(("total", "open", "ended", "archived"), 0)
    return {
        "home": str(home.path),
        "sessions": zeros | {"by_source": {}},
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
    """Return the number of sessions of each source; the smallest sources are added up."""
    counts: Counter[str] = Counter()
    for source, count in health.sessions.by_source.items():
        counts[render.render_line(home, source, 80) or ""] += count
    largest = Counter(dict(counts.most_common(_MAX_SOURCES)))
    largest[_OTHERS_LABEL] += counts.total() - largest.total()
    return dict(+largest)


def _render_sizes(health: HealthReport) -> dict[str, int]:
    sizes = health.sizes
    database_sizes = dict.fromkeys(("db", "wal", "index", "free"), 0)
    if sizes is not None:
        database_sizes = {name: getattr(sizes, name) for name in database_sizes}
    return {**database_sizes, "trash": health.trash}


def _render_finding(home: ServedHome, finding: Any) -> dict[str, Any]:
    tool = None if finding.tool is None else f"sessions_{finding.tool}(what={finding.plan!r})"
    return {
        "code": finding.code,
        "count": finding.count,
        "bytes": finding.bytes,
        "what": render.render_line(home, finding.what, 300) or "",
        "tool": tool,
    }


def _find_missing_database(home: ServedHome) -> list[dict[str, Any]]:
    """Return a finding if the home has no database yet."""
    if home.db.path.exists():
        return []
    what = f"{home.db.path} does not exist yet; start the agent once, or serve another --home"
    return [_make_finding("no_database", what)]


def _make_finding(code: str, what: str) -> dict[str, Any]:
    return {"code": code, "count": 1, "bytes": 0, "what": what, "tool": None}


SPEC = ToolSpec(
    name="sessions_stats",
    title="Session statistics",
    description=(
        "Report on the session data: counts, sizes in bytes, growth, tokens, cost, and findings: "
        "problems and wasted space, with the tool call that fixes each. Call it before tidying."
    ),
    arguments=StatsArguments,
    answers=schemas.StatsOutput,
    run=report_stats,
    takes_long="deep",
)
