"""The report as one page that needs nothing else: no script, no network, readable in the dark.

The page forbids itself whatever it does not have, so that even a mistake here could load nothing.

Where a page goes: a file that is replaced whole and only by a page, or standard output.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata, resources
from pathlib import Path
from xml.etree.ElementTree import Element

from mcp_serve.cli.plan_command import agreed
from mcp_serve.cli.report import markup
from mcp_serve.cli.report.markup import element
from mcp_serve.cli.report.report import Mend, Point, Report
from mcp_serve.files import write_atomic
from session_core import Denied, InvalidInput

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_LARGE = ("messages", "growth")
"""Figures of which the large ones say all."""


def page(reports: Sequence[Report], now: float) -> str:
    """Return the page of these reports."""
    style = resources.files("mcp_serve.cli").joinpath("page.css").read_text("utf-8")
    at = datetime.fromtimestamp(now).astimezone()
    version = metadata.version("mcp-sessions")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Sessions in {reports[0].home}"),
        element("style", style),
    )
    made = f"Made by mcp-sessions {version} on {at:%Y-%m-%d at %H:%M %Z}. Figures marked about, "
    note = element("footer", made + "and sizes of tables that are estimated, come from samples.")
    main = element("main", *map(_article, reports), note)
    return markup.document(element("html", head, element("body", main), lang="en"))


def _article(report: Report) -> Element:
    made = element("article", element("h1", report.home))
    made.append(_pairs(report.large, "large"))
    made.append(_pairs([each for each in report.figures if each[0] not in _LARGE], "rest"))
    if any(week.value for week in report.weeks):
        made.append(_growth(report.weeks))
    if report.sources:
        chart = markup.bars(_points(report.sources), "Sessions by source")
        made.append(_section("Sessions by source", "", chart))
    if report.tables:
        chart = markup.bars(_points(report.tables), "Size by table")
        made.append(_section("Size by table", "estimated" if report.estimated else "", chart))
    made.append(_mends(report.mends))
    return made


def _pairs(pairs: Sequence[tuple[str, str]], kind: str) -> Element:
    made = [element("div", element("dt", name), element("dd", said)) for name, said in pairs]
    if kind == "rest":  # a grid of two columns, without boxes around the pairs
        made = [child for pair in made for child in pair]
    return element("dl", *made, class_=kind)


def _section(head: str, note: str, *children: Element) -> Element:
    title = element("h2", head)
    if note:
        title.append(element("small", f" {note}"))
    return element("section", title, *children)


def _growth(weeks: Sequence[Point]) -> Element:
    points = [
        (week.label, week.value, f"Week of {week.label}: {week.said} messages, {week.more}")
        for week in weeks
    ]
    rows = [
        element(
            "tr",
            element("th", week.label, scope="row"),
            element("td", week.said, class_="number"),
            element("td", week.more, class_="number"),
        )
        for week in reversed(weeks)
    ]
    table = element("table", element("tbody", *rows))
    numbers = element("details", element("summary", "The numbers"), table)
    chart = markup.columns(points, "Messages in each of the last 26 weeks")
    return _section("Growth by week", "messages", chart, numbers)


def _mends(mends: Sequence[Mend]) -> Element:
    if not mends:
        return _section("What is wrong, or takes room", "", element("p", "Nothing."))
    items = []
    for each in mends:
        won = [element("span", f" {each.won}", class_="dim")] if each.won else []
        command = [] if each.command is None else [element("code", each.command)]
        items.append(element("li", each.what, *won, *command))
    return _section("What is wrong, or takes room", "", element("ol", *items))


def _points(points: Sequence[Point]) -> list[tuple[str, int, str]]:
    return [(each.label, each.value, each.said) for each in points]


_MODE = 0o600
"""Titles are in it, and what a home is called."""

_ENDS = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or standard output where it is None."""

    path: Path | None

    @classmethod
    def of(cls, given: str) -> Place:
        """Return the place that is meant.

        Raises:
            InvalidInput: a page has another name. What is no page is never replaced, and a database
                is not even opened to see what it is.
        """
        if given == "-":
            return cls(None)
        if not given.lower().endswith(_ENDS):
            raise InvalidInput(f"{given} is no name of a page; it ends in .html")
        return cls(Path(given).expanduser())

    def may_be_written(self, *, yes: bool) -> bool:
        """Ask where something is there already."""
        if self.path is None or not self.path.exists():
            return True
        return agreed(f"{self.path} is there. Replace it?", yes=yes)

    def write(self, text: str) -> None:
        """Write it whole, or not at all.

        Raises:
            Denied: it cannot be written there, or a link leads to a file in another folder.
        """
        if self.path is None:
            sys.stdout.write(text)
            return
        try:
            parts = [text.encode("utf-8", "replace")]
            write_atomic(self.path, parts, prefix=f".{self.path.name}_", mode=_MODE)
        except OSError as error:
            raise Denied(f"{self.path} cannot be written: {error.strerror}") from error
