"""The content of a `stats` report: figures, series and suggested fixes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mcp_serve.cli import plan_output
from mcp_serve.cli.options import format_command
from mcp_serve.cli.terminal import format_bytes, format_count
from mcp_serve.plain_text import to_plain_line

_CALL_PATTERN = re.compile(r"sessions_(\w+)\(what='(\w+)'(?:, store=.*)?\)")
_MAX_BARS = 10


@dataclass(frozen=True, slots=True)
class SuggestedFix:
    """A problem and the command that fixes it."""

    what: str
    """The problem with its count."""
    won: str
    command: str | None


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One value of a series and its text."""

    label: str
    value: int
    text: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A store in the table of all stores."""

    name: str
    sessions: int
    messages: int
    bytes: int
    indexed: str
    """The share of a transcript store that is indexed, empty for a home."""


def list_store_rows(answers: Mapping[str, Mapping[str, Any]]) -> list[StoreRow]:
    """Return the rows of the table of stores for answers of `sessions_stats`."""
    rows = []
    for answer in answers.values():
        (store,) = answer["stores"]
        share = f"{store.get('coverage', 1):.0%}" if answer["is_transcripts"] else ""
        counts = (store["sessions"], store["messages"], store["bytes"])
        rows.append(StoreRow(to_plain_line(store["name"]), *counts, share))
    return rows


@dataclass(frozen=True, slots=True)
class HomeReport:
    """The report about one home."""

    home: str
    large: tuple[tuple[str, str], ...]
    """Headline figures with their labels."""
    figures: tuple[tuple[str, str], ...]
    """All figures with their labels."""
    weeks: tuple[ChartPoint, ...]
    """Messages per week, oldest first."""
    sources: tuple[ChartPoint, ...]
    tables: tuple[ChartPoint, ...]
    mends: tuple[SuggestedFix, ...]
    estimated: bool


def build_report(
    options: argparse.Namespace, answer: Mapping[str, Any], store: str | None
) -> HomeReport:
    """Return the report for an answer of `sessions_stats`.

    `store` labels the report if there are several stores.
    """
    sources = {} if answer["is_transcripts"] else answer["sessions"]["by_source"]
    return HomeReport(
        home=to_plain_line(answer["home"]) + (f" ({to_plain_line(store)})" if store else ""),
        large=tuple(_list_headline_figures(answer)),
        figures=tuple(_list_figures(answer)),
        weeks=tuple(_build_weeks(answer["weeks"])),
        sources=_build_chart_points(sources, lambda value: f"{value:,}"),
        tables=_build_chart_points(answer["tables"], format_bytes),
        mends=tuple(_build_fix(options, finding, store) for finding in answer["findings"]),
        estimated=answer["estimated"],
    )


def _list_headline_figures(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "sessions", f"{answer['sessions']['total']:,}"
    yield "messages", f"{answer['messages']:,}"
    if answer["is_transcripts"]:
        yield "on disk", format_bytes(answer["stores"][0]["bytes"])
        return
    yield "on disk", format_bytes(answer["size"]["db"] + answer["size"]["wal"])
    yield "per week, about", format_bytes(answer["growth_per_week"])


def _list_figures(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sessions = answer["sessions"]
    states = (f"{sessions[name]:,} {name}" for name in ("open", "ended", "archived"))
    yield "sessions", f"{sessions['total']:,} ({', '.join(states)})"
    yield "messages", f"{answer['messages']:,}"
    # A store of another agent has neither our database nor a gateway.
    sizes = _list_transcript_sizes if answer["is_transcripts"] else _list_database_sizes
    yield from sizes(answer)
    tokens = (
        f"{format_count(count)} {name.replace('_', ' ')}"
        for name, count in _find_used_tokens(answer)
    )
    yield "tokens", ", ".join(tokens) or "none recorded"
    yield "cost", f"${answer['cost']:,.2f}" if answer["cost"] else "none recorded"
    if "keep" in answer:
        yield "kept", _describe_keep(answer["keep"])
    if not answer["is_transcripts"]:
        live = "gateway running" if answer["gateway_live"] else "no gateway running"
        yield "engine", f"{answer['sqlite']}, {live}"


def _list_transcript_sizes(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    (store,) = answer["stores"]
    yield "transcripts", format_bytes(store["bytes"])
    if "coverage" in store:
        yield "indexed", f"{store['coverage']:.0%}"


def _list_database_sizes(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    size = answer["size"]
    parts = (
        f"{format_bytes(size[name])} {label}" for name, label in _SIZE_LABELS.items() if size[name]
    )
    yield "database", _append_parts(format_bytes(size["db"]), parts)
    yield "trash", format_bytes(size["trash"])
    yield "growth", f"about {format_bytes(answer['growth_per_week'])} per week"


def _describe_keep(keep: Mapping[str, Any]) -> str:
    count = keep["sessions"]
    gone = f", {keep['source_gone']:,} deleted by the agent" if keep["source_gone"] else ""
    mode = "on" if keep["on"] else "off"
    return f"{count:,} session{'' if count == 1 else 's'}{gone} (keeping is {mode})"


_SIZE_LABELS = {"index": "search index", "free": "free", "wal": "write-ahead log"}


def _find_used_tokens(answer: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    return ((name, count) for name, count in answer["tokens"].items() if count)


def _append_parts(whole: str, parts: Iterator[str]) -> str:
    details = ", ".join(parts)
    return f"{whole} ({details})" if details else whole


def _build_weeks(weeks: list[Mapping[str, Any]]) -> Iterator[ChartPoint]:
    for week in reversed(weeks):
        begins = datetime.fromtimestamp(week["begins_at"]).astimezone()
        text = f"{week['messages']:,}"
        more = f"about {format_bytes(week['bytes'])}"
        yield ChartPoint(f"{begins:%b} {begins.day}", week["messages"], text, more)


def _build_chart_points(values: Mapping[str, int], format_value: Any) -> tuple[ChartPoint, ...]:
    """Return the largest values, and the sum of the rest."""
    ranked = sorted(((value, name) for name, value in values.items() if value), reverse=True)
    points = [
        ChartPoint(to_plain_line(name) or "(none)", value, format_value(value))
        for value, name in ranked
    ]
    if len(points) > _MAX_BARS:
        rest = sum(point.value for point in points[_MAX_BARS - 1 :])
        label = f"{len(points) - _MAX_BARS + 1} others"
        points = [*points[: _MAX_BARS - 1], ChartPoint(label, rest, format_value(rest))]
    return tuple(points)


def _build_fix(
    options: argparse.Namespace, finding: Mapping[str, Any], store: str | None
) -> SuggestedFix:
    call = _CALL_PATTERN.fullmatch(finding["tool"] or "")
    stores = options.store[:1] if store is None else [store]
    target = argparse.Namespace(home=options.home, store=stores)
    command = None if call is None else format_command(target, *call.groups())
    won = f"about {format_bytes(finding['bytes'])}" if finding["bytes"] else ""
    what = plan_output.describe_finding(
        finding["code"], finding["count"], to_plain_line(finding["what"])
    )
    return SuggestedFix(what, won, command)
