"""`sessions_stats`: report the contents and faults of a home, with the tool that fixes each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments, render, schemas
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools.spec import ToolSpec
from session_core import Busy, Denied, SessionError, StorageError, Unsupported, describe_sqlite
from session_core.maintenance import HealthReport
from session_core.transcripts import KeepStatus, StoreCoverage

_MAX_SOURCES = 50
_OTHERS_LABEL = "(others)"


class StatsArguments(arguments.StoreArguments):
    """The arguments of `sessions_stats`."""

    deep: Annotated[bool, Field(description="Exact sizes, all pages checked; slow.")] = False


def report_stats(
    stores: Sequence[ServedStore],
    arguments: StatsArguments,
    page_query: PagedQuery,
    work: CallContext | None = None,
) -> dict[str, Any]:
    """Return one report on all stores."""
    del page_query
    reports = []
    for store in stores:
        if isinstance(store, ServedHome):
            reports.append(examine_home(store, arguments, work)[0])
        else:
            reports += examine_transcripts(store)
    return merge_reports(reports)


def merge_reports(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of reports, with the home of the first report."""
    first = reports[0]
    merged = {
        "stores": [row for report in reports for row in report["stores"]],
        "sessions": _add_counts(report["sessions"] for report in reports),
        "size": _add_counts(report["size"] for report in reports),
        "tokens": _add_counts(report["tokens"] for report in reports),
        "findings": [finding for report in reports for finding in report["findings"]],
        "gateway_live": any(report["gateway_live"] for report in reports),
        "estimated": any(report["estimated"] for report in reports),
    }
    keep_reports = [report["keep"] for report in reports if "keep" in report]
    if keep_reports:
        merged["keep"] = _add_counts(keep_reports) | {
            "on": any(keep["on"] for keep in keep_reports)
        }
    sums = ("messages", "growth_per_week", "cost")
    return first | merged | {name: sum(report[name] for report in reports) for name in sums}


def _add_counts(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums by name.

    A value may itself have counts by name.
    """
    merged: dict[str, Any] = {}
    for by_name in counts:
        for name, value in by_name.items():
            if isinstance(value, Mapping):
                merged[name] = _add_counts([merged.get(name, {}), value])
            else:
                merged[name] = merged.get(name, 0) + value
    return merged


def examine_home(
    home: ServedHome, arguments: StatsArguments, work: CallContext | None
) -> tuple[dict[str, Any], HealthReport | None]:
    """Return the report on a home and its health data, or None if it cannot be read."""
    report, stop = (None, None) if work is None else (work.report_progress, work.is_cancelled)
    try:
        health = home.maintenance.health(deep=arguments.deep, progress=report, stop=stop)
    except (StorageError, Busy, Denied, Unsupported) as error:
        if home.db_path is not None and not isinstance(error, StorageError):
            raise
        # A damaged home, and a server that does not answer, are reported, so that the other stores
        # are still shown.
        return _render_unreadable(home, error), None
    return _render_report(home, health), health


def examine_transcripts(store: ServedStore) -> list[dict[str, Any]]:
    """Return the reports on transcript stores, one each."""
    from mcp_serve.stores.transcripts import ServedTranscripts  # noqa: PLC0415 -- only if one is served

    if not isinstance(store, ServedTranscripts):
        raise TypeError(f"{store.name} has no transcripts")
    with store.open_snapshot():
        parts = store.measure_coverage()
    status = store.keep.measure_status()
    return [_render_coverage(store, part) | _render_keep(status, part.store) for part in parts]


def _render_keep(status: KeepStatus, store: str) -> dict[str, Any]:
    """Return the kept copies of a store, if the user has decided to keep any."""
    counts = status.stores.get(store)
    if status.mode is None and counts is None:
        return {}
    sessions, size, gone = counts or (0, 0, 0)
    keep = {"on": status.mode == "on", "sessions": sessions, "bytes": size, "source_gone": gone}
    return {"keep": keep}


def _render_coverage(store: ServedStore, part: StoreCoverage) -> dict[str, Any]:
    ended = part.sessions - part.open_sessions - part.archived_sessions
    counts = {"total": part.sessions, "open": part.open_sessions, "ended": ended}
    row: dict[str, Any] = {"name": part.store, "sessions": part.sessions}
    row |= {"messages": part.messages, "bytes": part.bytes}
    if part.indexed_share < 1:
        row["coverage"] = round(part.indexed_share, 3)
    findings = []
    if part.problem is not None:
        what = f"{part.store}: {render.render_line(store, part.problem, 300)}"
        finding = {"code": "unknown_layout", "count": 1, "bytes": 0, "what": what, "tool": None}
        findings.append(finding)
    return {
        "home": part.roots[0],
        "stores": [row],
        "sessions": counts
        | {"archived": part.archived_sessions, "by_source": {part.store: part.sessions}},
        "messages": part.messages,
        "size": dict.fromkeys(("db", "wal", "index", "free", "trash"), 0),
        "growth_per_week": 0,
        "tokens": dict(part.tokens),
        "cost": round(part.cost, 6),
        "findings": findings,
        "sqlite": f"SQLite {describe_sqlite().version}",
        "gateway_live": False,
        "estimated": False,
    }


def _render_report(home: ServedHome, health: HealthReport) -> dict[str, Any]:
    census = health.sessions
    sizes = _render_sizes(health)
    return {
        "home": str(home.place),
        "stores": [_render_store(home, census.total, census.messages, sizes["db"])],
        "sessions": {
            "total": census.total,
            "open": census.open,
            "ended": census.ended,
            "archived": census.archived,
            "by_source": _count_by_source(home, health),
        },
        "messages": census.messages,
        "size": sizes,
        "growth_per_week": health.growth_per_week,
        "tokens": dict(health.tokens),
        "cost": round(health.cost, 6),
        "findings": [_render_finding(home, finding) for finding in health.findings]
        + _find_missing_database(home),
        "sqlite": health.engine,
        "gateway_live": health.gateway is not None,
        "estimated": health.estimated,
    }


def _render_unreadable(home: ServedHome, error: SessionError) -> dict[str, Any]:
    """Return the report on a home that cannot be read, with its fault and without figures."""
    zeros: dict[str, Any] = dict.fromkeys(("total", "open", "ended", "archived"), 0)
    return {
        "home": str(home.place),
        "stores": [_render_store(home, 0, 0, 0)],
        "sessions": zeros | {"by_source": {}},
        "messages": 0,
        "size": dict.fromkeys(("db", "wal", "index", "free", "trash"), 0),
        "growth_per_week": 0,
        "tokens": {},
        "cost": 0.0,
        "findings": [_make_finding(home, "unreadable", str(error))],
        "sqlite": describe_engine(home),
        "gateway_live": home.find_gateway() is not None,
        "estimated": True,
    }


def _render_store(home: ServedHome, sessions: int, messages: int, size: int) -> dict[str, Any]:
    return {"name": home.name, "sessions": sessions, "messages": messages, "bytes": size}


def _count_by_source(home: ServedHome, health: HealthReport) -> dict[str, int]:
    """Return the number of sessions of each source, with the smallest sources added up."""
    counts: Counter[str] = Counter()
    for source, count in health.sessions.by_source.items():
        counts[render.render_line(home, source, 80) or ""] += count
    largest = Counter(dict(counts.most_common(_MAX_SOURCES)))
    largest[_OTHERS_LABEL] += counts.total() - largest.total()
    # Unary plus drops the rest if it is zero.
    return dict(+largest)


def _render_sizes(health: HealthReport) -> dict[str, int]:
    sizes = health.sizes
    database_sizes = dict.fromkeys(("db", "wal", "index", "free"), 0)
    if sizes is not None:
        database_sizes = {name: getattr(sizes, name) for name in database_sizes}
    return {**database_sizes, "trash": health.trash}


def _render_finding(home: ServedHome, finding: Any) -> dict[str, Any]:
    named = f", store={home.store_name!r}" if home.store_name else ""
    tool = finding.tool and f"sessions_{finding.tool}(what={finding.plan!r}{named})"
    return {
        "code": finding.code,
        "count": finding.count,
        "bytes": finding.bytes,
        "what": _render_what(home, finding.what),
        "tool": tool,
    }


def _render_what(home: ServedHome, what: str) -> str:
    label = f"{home.store_name}: " if home.store_name else ""
    return label + (render.render_line(home, what, 300) or "")


def _find_missing_database(home: ServedHome) -> list[dict[str, Any]]:
    """Return a finding if the home has no database yet."""
    if home.db_path is None:
        absence = home.explain_absence()
        return [] if absence is None else [_make_finding(home, "no_database", absence)]
    if home.db_path.exists() or (home.name == "own" and home.store_name is not None):
        return []
    what = f"{home.db_path} does not exist yet; start the agent once, or serve another --home"
    return [_make_finding(home, "no_database", what)]


def describe_engine(home: ServedHome) -> str:
    """Return the engine of a home that cannot be read."""
    return "PostgreSQL" if home.db_path is None else f"SQLite {describe_sqlite().version}"


def _make_finding(home: ServedHome, code: str, what: str) -> dict[str, Any]:
    what = _render_what(home, what)
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
    merges=True,
)
