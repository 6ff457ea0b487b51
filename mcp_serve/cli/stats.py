"""`mcp-sessions stats`: show growth, sizes and problems of a home."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rich.text import Text

from mcp_serve.cli import missing_home
from mcp_serve.cli.argument_parser import parse_text
from mcp_serve.cli.command_errors import DECLINED, DONE
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import format_declined
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.report import charts, html
from mcp_serve.cli.report.html import PageTarget
from mcp_serve.cli.report.report import (
    ChartPoint,
    HomeReport,
    SuggestedFix,
    build_report,
    list_store_rows,
)
from mcp_serve.cli.report.usage_report import collect_usage
from mcp_serve.cli.terminal import TableColumn, Terminal, format_bytes, format_count
from mcp_serve.cli.tool_calls import Answer, ToolCaller, fetch_and_show_answer, get_terminal
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools import stats
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions stats                      growth, sizes and problems
  mcp-sessions stats --html report.html   a page, also with cost and tokens
  mcp-sessions stats --deep               exact sizes and an integrity check; slow
  mcp-sessions stats --json | jq .findings
"""

_STORE_COLUMNS = (
    TableColumn("store", copied=True),
    *(TableColumn(name, right=True) for name in ("sessions", "messages", "size", "tokens", "cost")),
)
_FIGURE_COLUMNS = (TableColumn("what"), TableColumn("how much", wraps=True))
_LAST_LABEL = "this week"
_ESTIMATED_NOTE = "estimated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "--deep", action="store_true", help="measure exact sizes and check integrity; slow"
    )
    parser.add_argument(
        "--html",
        type=parse_text,
        metavar="FILE",
        help="write an HTML page with charts, cost and top sessions; - prints it",
    )
    parser.add_argument(
        "-y", "--yes", action="store_true", help="replace an existing page without asking"
    )
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the report at the terminal, or write it as a page."""
    if options.html is None:
        show = partial(_show_reports, options)
        return fetch_and_show_answer(options, partial(_collect_stats, options), show)
    if options.html == "-" and options.json:
        raise InvalidInput("--html - cannot be combined with --json")
    place = PageTarget.from_argument(options.html)
    # Asked first, since the report may take minutes.
    if not place.confirm_overwrite(yes=options.yes):
        Terminal(sys.stderr).write_line(format_declined("nothing was written"))
        return DECLINED
    now = time.time()
    with ToolCaller(options) as tools:
        answer = _collect_stats(options, tools)
        stores = list_store_rows(answer)
        count = sum(store.sessions for store in stores)
        with ProgressBar("Adding up cost and tokens") as bar:
            usage = collect_usage(tools.served.get_stores(), now, count, bar.report_progress)
    place.write(html.render_page(list(_build_reports(options, answer)), stores, usage, now))
    if options.html != "-":
        _report_written_page(options)
    return DONE


def _report_written_page(options: argparse.Namespace) -> None:
    if options.json:
        print_json({"written": options.html})
    else:
        Terminal(sys.stderr).write_line(f"Wrote {options.html}.")


def _collect_stats(options: argparse.Namespace, tools: ToolCaller) -> Answer:
    """Return the answer of the tool, or a report on each store with the data of its charts."""
    tools.index_transcripts()
    is_plain = options.json and options.html is None
    # Arguments and stores are checked as for the tool; only the answer has more.
    spec = stats.SPEC if is_plain else replace(stats.SPEC, run=_load_chart_data)
    with TerminalProgress("Looking") as work:
        answer = tools.call_tool(spec, {"deep": options.deep}, work)
    # A report that Ctrl-C has cut short must not look like a complete one.
    if work.is_cancelled():
        raise KeyboardInterrupt
    if not is_plain:
        for name in missing_home.list_needless_homes(tools.served):
            answer.pop(name, None)
    return answer


def _load_chart_data(
    stores: Sequence[ServedStore],
    arguments: stats.StatsArguments,
    page_query: PagedQuery,
    work: CallContext,
) -> dict[str, Any]:
    """Return the reports on the stores by name, with the data of the charts."""
    del page_query
    reports: dict[str, Any] = {}
    for store in stores:
        if isinstance(store, ServedHome):
            reports[store.name] = _load_report(store, arguments, work)
            continue
        for answer in stats.examine_transcripts(store):
            more: dict[str, Any] = {"weeks": [], "tables": {}, "is_transcripts": True}
            reports[answer["stores"][0]["name"]] = answer | more
    return reports


def _load_report(
    home: ServedHome, arguments: stats.StatsArguments, work: CallContext
) -> dict[str, Any]:
    answer, health = stats.examine_home(home, arguments, work)
    sizes = None if health is None else health.sizes
    return answer | {
        "weeks": [] if health is None else [asdict(week) for week in health.weeks],
        "tables": {} if sizes is None else dict(sizes.tables),
        "is_transcripts": False,
    }


def _build_reports(options: argparse.Namespace, answers: Answer) -> Iterator[HomeReport]:
    for name, answer in answers.items():
        yield build_report(options, answer, name if len(answers) > 1 else None)


def _show_reports(options: argparse.Namespace, answers: Answer) -> None:
    out = get_terminal()
    if len(answers) > 1:
        rows = [_format_store(answer) for answer in answers.values()]
        out.write_table(_STORE_COLUMNS, rows)
        out.write_line()
    for number, report in enumerate(_build_reports(options, answers)):
        if number:
            out.write_line()
        _show_report(out, report)


def _format_store(answer: Answer) -> list[str]:
    (store,) = answer["stores"]
    counts = (f"{store['sessions']:,}", f"{store['messages']:,}", format_bytes(store["bytes"]))
    cost = f"${answer['cost']:,.2f}" if answer["cost"] else ""
    tokens = sum(answer["tokens"].values())
    return [store["name"], *counts, format_count(tokens) if tokens else "", cost]


def _show_report(out: Terminal, report: HomeReport) -> None:
    out.write_line(report.home, "bold")
    out.write_table(_FIGURE_COLUMNS, report.figures, bare=True)
    blocks = out.can_encode(charts.BLOCK_CHARACTERS)
    if any(week.value for week in report.weeks):
        _show_heading(out, "Growth by week", "messages")
        values = [week.value for week in report.weeks]
        first = report.weeks[0].label
        out.write_lines(charts.draw_columns(values, (first, _LAST_LABEL), out.width, blocks=blocks))
    _show_bars(out, "Sessions by source", "", report.sources)
    _show_bars(out, "Size by table", _ESTIMATED_NOTE if report.estimated else "", report.tables)
    _show_fixes(out, report.mends)


def _show_bars(out: Terminal, head: str, note: str, points: Sequence[ChartPoint]) -> None:
    if points:
        _show_heading(out, head, note)
        bars = [charts.ChartBar(point.label, point.value, point.text) for point in points]
        out.write_lines(
            charts.draw_bars(bars, out.width, blocks=out.can_encode(charts.BLOCK_CHARACTERS))
        )


def _show_fixes(out: Terminal, mends: Sequence[SuggestedFix]) -> None:
    _show_heading(out, "Problems and reclaimable space")
    if not mends:
        out.write_line("None.")
    for fix in mends:
        won = f"; {fix.won}" if fix.won else ""
        out.write_line(f"{fix.what}{won}")
        if fix.command is not None:
            out.write_unwrapped(f"  {fix.command}")


def _show_heading(out: Terminal, text: str, note: str = "") -> None:
    out.write_line()
    out.write_lines([Text.assemble((text, "bold"), (f", {note}" if note else "", "dim"))])
