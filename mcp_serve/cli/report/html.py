"""The report as a self-contained HTML page without scripts, and the file of the page."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path, PurePath
from xml.etree.ElementTree import Element

from mcp_serve.atomic_files import write_atomic
from mcp_serve.cli.plan_command import ask_confirmation
from mcp_serve.cli.report import markup
from mcp_serve.cli.report.markup import make_element
from mcp_serve.cli.report.report import ChartPoint, HomeReport, StoreRow, SuggestedFix
from mcp_serve.cli.report.usage_report import WEEK_S, Amount, TopSession, UsageReport
from mcp_serve.cli.terminal import format_bytes, format_count
from session_core import Denied, InvalidInput, __version__

# A content security policy that loads nothing, in case a mistake lets markup through.
_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_LAST_WEEK = "this week"
_MAX_BARS = 8
_TOP_NOTE = "by cost, then by tokens"

_HEADLINE_FIGURES = ("messages", "growth")
"""Figures that are shown only as headlines."""


def render_page(
    reports: Sequence[HomeReport], stores: Sequence[StoreRow], usage: UsageReport, now: float
) -> str:
    """Return a page with an overview of all stores and a report on each."""
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
    footer = (
        f"Made by mcp-sessions {__version__} on {at:%Y-%m-%d at %H:%M %Z}. Figures marked about "
    )
    note = make_element("footer", footer + "and estimated table sizes come from samples.")
    overview = _render_overview(stores, usage, now)
    main = make_element("main", overview, *map(_render_article, reports), note)
    return markup.render_document(make_element("html", head, make_element("body", main), lang="en"))


def _render_overview(stores: Sequence[StoreRow], usage: UsageReport, now: float) -> Element:
    """Return the article about all stores: their sizes, cost and tokens."""
    article = make_element(
        "article",
        make_element("h1", "All sessions"),
        _render_pairs(list(_list_headlines(stores, usage.total)), "large"),
    )
    is_indexed = any(store.indexed for store in stores)
    rows = [
        [
            *(store.name, f"{store.sessions:,}", f"{store.messages:,}", format_bytes(store.bytes)),
            *([store.indexed] if is_indexed else []),
        ]
        for store in stores
    ]
    heads = ["store", "sessions", "messages", "size", *(["indexed"] if is_indexed else [])]
    article.append(
        _render_section("Stores", "", markup.draw_table(heads, rows, "Stores", wide=(2,)))
    )
    if not any(usage.total.rank):
        article.append(make_element("p", "No cost and no tokens are recorded.", class_="dim"))
    article.extend(list(_render_usage(usage, now)))
    return article


def _list_headlines(stores: Sequence[StoreRow], total: Amount) -> Iterator[tuple[str, str]]:
    yield "sessions", f"{sum(store.sessions for store in stores):,}"
    yield "messages", f"{sum(store.messages for store in stores):,}"
    if total.cost:
        yield "cost", _format_cost(total.cost)
    if total.tokens:
        number, _, unit = format_count(total.tokens).partition(" ")
        yield f"{unit} tokens".lstrip(), number


def _render_usage(usage: UsageReport, now: float) -> Iterator[Element]:
    """Yield the sections about cost and tokens that were recorded."""
    names = [_name_week(now, number) for number in range(len(usage.weeks))]
    for what, read, form, form_tick in _MEASURES:
        weeks = list(zip(names, map(read, usage.weeks), strict=True))[::-1]
        if not any(value for _, value in weeks):
            continue
        points = [(name, value, f"{name}: {form(value)}") for name, value in weeks]
        label = f"{what} in each of the last {len(weeks)} weeks"
        chart = markup.draw_columns(points, label, format_value=form_tick)
        yield _render_section(f"{what} by week", "of the last activity", chart)
    projects = _shorten_folders(usage.projects)
    for head, amounts in (("model", usage.models), ("project", projects)):
        for what, read, form, _ in _MEASURES:
            bars = _take_greatest_amounts(amounts, read, form)
            if bars:
                chart = markup.draw_bars(bars, f"{what} by {head}")
                yield _render_section(f"{what} by {head}", "", chart)
    if usage.top:
        yield _render_section("Top sessions", _TOP_NOTE, _render_top(usage.top))


def _take_greatest_amounts(
    amounts: Mapping[str, Amount], read: Callable[[Amount], float], form: Callable[[float], str]
) -> list[tuple[str, float, str]]:
    """Return the greatest amounts and the sum of the rest."""
    ranked = sorted(
        ((read(amount), name) for name, amount in amounts.items() if read(amount)), reverse=True
    )
    bars = [(name or "(none)", value, form(value)) for value, name in ranked[:_MAX_BARS]]
    rest = sum(value for value, _ in ranked[_MAX_BARS:])
    return [*bars, (f"{len(ranked) - _MAX_BARS} others", rest, form(rest))] if rest else bars


def _render_top(top: Sequence[TopSession]) -> Element:
    heads = ("session", "id", "project", "model", "messages", "tokens", "cost")
    rows = [
        [
            *(
                session.title or "(empty)",
                session.id,
                PurePath(session.project).name,
                session.model,
            ),
            "" if session.messages is None else f"{session.messages:,}",
            format_count(session.amount.tokens) if session.amount.tokens else "",
            _format_cost(session.amount.cost) if session.amount.cost else "",
        ]
        for session in top
    ]
    return markup.draw_table(heads, rows, "Top sessions", texts=4, wide=(1, 2, 3, 4))


def _shorten_folders(amounts: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the amounts by the last two parts of their folders, if these are distinct."""
    short = {name: "/".join(PurePath(name).parts[-2:]) for name in amounts}
    counts = Counter(short.values())
    return {
        (short[name] if counts[short[name]] == 1 else name): amount
        for name, amount in amounts.items()
    }


def _name_week(now: float, number: int) -> str:
    """Return the name of a week, 0 for the week that ends now."""
    if number == 0:
        return _LAST_WEEK
    begins = datetime.fromtimestamp(now - (number + 1) * WEEK_S).astimezone()
    return f"{begins:%b} {begins.day}"


def _format_cost(dollars: float) -> str:
    return f"${dollars:,.2f}"


def _get_cost(amount: Amount) -> float:
    return amount.cost


def _get_tokens(amount: Amount) -> float:
    return float(amount.tokens)


def _format_tokens(tokens: float) -> str:
    return format_count(round(tokens))


_MEASURES = (
    ("Cost", _get_cost, _format_cost, "${:,.0f}".format),
    ("Tokens", _get_tokens, _format_tokens, _format_tokens),
)
"""What is drawn of an amount, how it is read, and how values and the scale are written."""


def _render_article(report: HomeReport) -> Element:
    article = make_element("article", make_element("h1", report.home))
    article.append(_render_pairs(report.large, "large"))
    article.append(
        _render_pairs(
            [figure for figure in report.figures if figure[0] not in _HEADLINE_FIGURES], "rest"
        )
    )
    if any(week.value for week in report.weeks):
        article.append(_render_growth(report.weeks))
    if report.sources:
        chart = markup.draw_bars(_convert_points(report.sources), "Sessions by source")
        article.append(_render_section("Sessions by source", "", chart))
    if report.tables:
        chart = markup.draw_bars(_convert_points(report.tables), "Size by table")
        article.append(
            _render_section("Size by table", "estimated" if report.estimated else "", chart)
        )
    article.append(_render_fixes(report.mends))
    return article


def _render_pairs(pairs: Sequence[tuple[str, str]], kind: str) -> Element:
    rows = [
        make_element("div", make_element("dt", name), make_element("dd", text))
        for name, text in pairs
    ]
    if kind == "rest":  # a grid of two columns
        rows = [child for pair in rows for child in pair]
    return make_element("dl", *rows, class_=kind)


def _render_section(head: str, note: str, *children: Element) -> Element:
    title = make_element("h2", head)
    if note:
        title.append(make_element("small", f" {note}"))
    return make_element("section", title, *children)


def _render_growth(weeks: Sequence[ChartPoint]) -> Element:
    points = [
        (week.label, week.value, f"Week of {week.label}: {week.text} messages, {week.more}")
        for week in weeks
    ]
    points[-1] = _LAST_WEEK, *points[-1][1:]
    rows = [
        make_element(
            "tr",
            make_element("th", week.label, scope="row"),
            make_element("td", week.text, class_="number"),
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
    for fix in mends:
        won = [make_element("span", f" {fix.won}", class_="dim")] if fix.won else []
        command = [] if fix.command is None else [make_element("code", fix.command)]
        items.append(make_element("li", fix.what, *won, *command))
    return _render_section("Problems and reclaimable space", "", make_element("ol", *items))


def _convert_points(points: Sequence[ChartPoint]) -> list[tuple[str, int, str]]:
    return [(point.label, point.value, point.text) for point in points]


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

    def confirm_overwrite(self, *, yes: bool) -> bool:
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
