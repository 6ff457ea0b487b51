"""What `stats` says of a home, for a terminal and for a page: figures, series, and what to mend."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.filesize import decimal

from mcp_serve.cli import plan_output
from mcp_serve.cli.options import command
from mcp_serve.render import plain

_CALL = re.compile(r"sessions_(\w+)\(what='(\w+)'\)")
_MOST_BARS = 10
_UNITS = ((1e9, "billion"), (1e6, "million"))


@dataclass(frozen=True, slots=True)
class Mend:
    """What is not as it should be, and the command line that mends it."""

    what: str
    """With how many there are."""
    won: str
    command: str | None


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series, and how it is said."""

    label: str
    value: int
    said: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one home."""

    home: str
    large: tuple[tuple[str, str], ...]
    """What somebody asks first, each with what it is of."""
    figures: tuple[tuple[str, str], ...]
    """All of it, in some words."""
    weeks: tuple[Point, ...]
    """What came in each week, the oldest first."""
    sources: tuple[Point, ...]
    tables: tuple[Point, ...]
    mends: tuple[Mend, ...]
    estimated: bool


def reported(options: argparse.Namespace, found: Mapping[str, Any], profile: str | None) -> Report:
    """Return what an answer of `sessions_stats` says; `profile` is named where several are."""
    sessions = found["sessions"]
    return Report(
        home=plain(found["home"]) + (f" ({plain(profile)})" if profile else ""),
        large=tuple(_large(found)),
        figures=tuple(_figures(found)),
        weeks=tuple(_weeks(found["weeks"])),
        sources=_series(sessions["by_source"], lambda value: f"{value:,}"),
        tables=_series(found["tables"], decimal),
        mends=tuple(_mend(options, each, profile) for each in found["findings"]),
        estimated=found["estimated"],
    )


def _large(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "sessions", f"{found['sessions']['total']:,}"
    yield "messages", f"{found['messages']:,}"
    yield "on the disk", decimal(found["size"]["db"] + found["size"]["wal"])
    yield "a week, about", decimal(found["growth_per_week"])


def _figures(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sessions, size = found["sessions"], found["size"]
    states = (f"{sessions[name]:,} {name}" for name in ("open", "ended", "archived"))
    yield "sessions", f"{sessions['total']:,} ({', '.join(states)})"
    yield "messages", f"{found['messages']:,}"
    parts = (f"{decimal(size[name])} {said}" for name, said in _PARTS.items() if size[name])
    yield "database", _with(decimal(size["db"]), parts)
    yield "trash", decimal(size["trash"])
    yield "growth", f"about {decimal(found['growth_per_week'])} a week"
    tokens = (f"{count_said(count)} {name.replace('_', ' ')}" for name, count in _some(found))
    yield "tokens", ", ".join(tokens) or "none noted"
    yield "cost", f"${found['cost']:,.2f}" if found["cost"] else "none noted"
    live = "a gateway is live" if found["gateway_live"] else "no gateway is live"
    yield "engine", f"{found['sqlite']}, {live}"


_PARTS = {"index": "of it search index", "free": "of it free", "wal": "log beside it"}


def _some(found: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    return ((name, count) for name, count in found["tokens"].items() if count)


def _with(whole: str, parts: Iterator[str]) -> str:
    said = ", ".join(parts)
    return f"{whole} ({said})" if said else whole


def count_said(count: int) -> str:
    """Return a number of tokens: to three places where it is large."""
    for size, name in _UNITS:
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,}"


def _weeks(weeks: list[Mapping[str, Any]]) -> Iterator[Point]:
    for week in reversed(weeks):
        begins = datetime.fromtimestamp(week["begins_at"]).astimezone()
        said = f"{week['messages']:,}"
        more = f"about {decimal(week['bytes'])}"
        yield Point(f"{begins:%b} {begins.day}", week["messages"], said, more)


def _series(found: Mapping[str, int], said: Any) -> tuple[Point, ...]:
    """Return the largest, the others together."""
    ranked = sorted(((value, name) for name, value in found.items() if value), reverse=True)
    shown = [Point(plain(name) or "(none)", value, said(value)) for value, name in ranked]
    if len(shown) > _MOST_BARS:
        rest = sum(each.value for each in shown[_MOST_BARS - 1 :])
        label = f"{len(shown) - _MOST_BARS + 1} others"
        shown = [*shown[: _MOST_BARS - 1], Point(label, rest, said(rest))]
    return tuple(shown)


def _mend(options: argparse.Namespace, found: Mapping[str, Any], profile: str | None) -> Mend:
    call = _CALL.fullmatch(found["tool"] or "")
    profiles = options.profile[:1] if profile is None else [profile]
    there = argparse.Namespace(home=options.home, profile=profiles)
    typed = None if call is None else command(there, *call.groups())
    won = f"about {decimal(found['bytes'])}" if found["bytes"] else ""
    what = plan_output.said(found["code"], found["count"], plain(found["what"]))
    return Mend(what, won, typed)
