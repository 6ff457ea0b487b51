"""The report as a self-contained HTML page without scripts, and the file it is written to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from xml.etree.ElementTree import Element

from mcp_serve.cli.plan_command import ask_confirmation
from mcp_serve.cli.report import markup
from mcp_serve.cli.report.markup import make_element
from mcp_serve.cli.report.report import ChartPoint, HomeReport, SuggestedFix
from mcp_serve.files import write_atomic
from session_core import Denied, InvalidInput, __version__

# A content security policy that loads nothing, in case a mistake lets markup through.
_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_HEADLINE_FIGURES = ("messages", "growth")
"""Figures that are shown only as headlines."""


def render_page(reports: Sequence[HomeReport], now: float) -> str:
    """Return a page with these reports."""
    style = resources.files("mcp_serve.cli").joinpath("page.css").read_text("utf-8")
    at = datetime.fromtimestamp(now).astimezone()
    head = make_element(
        "head",
        make_element("meta", charset="utf-8"),
        make_element("meta", http_equiv="Content-Security-Policy", content=_SECURITY_POLICY),
        make_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_element("meta", name="color-scheme", content="light dark"),
        make_element("title", f"Sessions in {reports[0].home}"),
        make_element("style", style),
    )
    made = f"Made by mcp-sessions {__version__} on {at:%Y-%m-%d at %H:%M %Z}. Figures marked about "
    note = make_element("footer", made + "and estimated table sizes come from samples.")
    main = make_element("main", *map(_render_article, reports), note)
    return markup.render_document(make_element("html", head, make_element("body", main), lang="en"))


def _render_article(report: HomeReport) -> Element:
    made = make_element("article", make_element("h1", report.home))
    made.append(_render_pairs(report.large, "large"))
    made.append(
        _render_pairs([each for each in report.figures if each[0] not in _HEADLINE_FIGURES], "rest")
    )
    if any(week.value for week in report.weeks):
        made.append(_render_growth(report.weeks))
    if report.sources:
        chart = markup.draw_bars(_convert_points(report.sources), "Sessions by source")
        made.append(_render_section("Sessions by source", "", chart))
    if report.tables:
        chart = markup.draw_bars(_convert_points(report.tables), "Size by table")
        made.append(
            _render_section("Size by table", "estimated" if report.estimated else "", chart)
        )
    made.append(_render_fixes(report.mends))
    return made


def _render_pairs(pairs: Sequence[tuple[str, str]], kind: str) -> Element:
    made = [
        make_element("div", make_element("dt", name), make_element("dd", said))
        for name, said in pairs
    ]
    if kind == "rest":  # a grid of two columns
        made = [child for pair in made for child in pair]
    return make_element("dl", *made, class_=kind)


def _render_section(head: str, note: str, *children: Element) -> Element:
    title = make_element("h2", head)
    if note:
        title.append(make_element("small", f" {note}"))
    return make_element("section", title, *children)


def _render_growth(weeks: Sequence[ChartPoint]) -> Element:
    points = [
        (week.label, week.value, f"Week of {week.label}: {week.said} messages, {week.more}")
        for week in weeks
    ]
    rows = [
        make_element(
            "tr",
            make_element("th", week.label, scope="row"),
            make_element("td", week.said, class_="number"),
            make_element("td", week.more, class_="number"),
        )
        for week in reversed(weeks)
    ]
    table = make_element("table", make_element("tbody", *rows))
    numbers = make_element("details", make_element("summary", "The numbers"), table)
    chart = markup.draw_columns(points, "Messages in each of the last 26 weeks")
    return _render_section("Growth by week", "messages", chart, numbers)


def _render_fixes(mends: Sequence[SuggestedFix]) -> Element:
    if not mends:
        return _render_section("Problems and reclaimable space", "", make_element("p", "None."))
    items = []
    for each in mends:
        won = [make_element("span", f" {each.won}", class_="dim")] if each.won else []
        command = [] if each.command is None else [make_element("code", each.command)]
        items.append(make_element("li", each.what, *won, *command))
    return _render_section("Problems and reclaimable space", "", make_element("ol", *items))


def _convert_points(points: Sequence[ChartPoint]) -> list[tuple[str, int, str]]:
    return [(each.label, each.value, each.said) for each in points]


_FILE_MODE = 0o600
"""Private, since the page has titles and paths."""

_FILE_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class PageTarget:
    """A file, or standard output for None."""

    path: Path | None

    @classmethod
    def from_argument(cls, name: str) -> PageTarget:
        """Return the target for a file name or `-`.

        Raises:
            InvalidInput: The name does not end in .html.
        """
        # The name decides, so that a database is neither opened nor replaced by mistake.
        if name == "-":
            return cls(None)
        if not name.lower().endswith(_FILE_SUFFIXES):
            raise InvalidInput(f"--html needs a name ending in .html, got {name}")
        return cls(Path(name).expanduser())

    def can_be_written(self, *, yes: bool) -> bool:
        """Return True if the file is new or the user agrees to replace it."""
        if self.path is None or not self.path.exists():
            return True
        return ask_confirmation(f"{self.path} exists. Replace it?", yes=yes)

    def write(self, text: str) -> None:
        """Write the page atomically.

        Raises:
            Denied: It cannot be written, or a link leads to a file in another folder.
        """
        if self.path is None:
            sys.stdout.write(text)
            return
        try:
            parts = [text.encode("utf-8", "replace")]
            write_atomic(self.path, parts, prefix=f".{self.path.name}_", mode=_FILE_MODE)
        except OSError as error:
            raise Denied(f"cannot write {self.path}: {error.strerror}") from error
