"""`mcp-sessions stats`: what is in a home, what is wrong with it, and what mends that."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rich.text import Text

from mcp_serve.cli.arguments import some
from mcp_serve.cli.errors import DECLINED, DONE
from mcp_serve.cli.options import of_answers, of_homes
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import declined
from mcp_serve.cli.progress import Working
from mcp_serve.cli.report import charts, html
from mcp_serve.cli.report.html import Place
from mcp_serve.cli.report.report import Mend, Point, Report, reported
from mcp_serve.cli.terminal import Column, Terminal
from mcp_serve.cli.tool_calls import Answer, Tools, answer, terminal
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.progress import Work
from mcp_serve.tools import stats
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions stats                      what there is, and what is wrong
  mcp-sessions stats --html report.html   the same as a page with charts
  mcp-sessions stats --deep               every page counted and checked; slow
  mcp-sessions stats --json | jq .findings
"""

_FIGURES = (Column("what"), Column("how much", wraps=True))
_LAST = "this week"
_ESTIMATED = "estimated"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("--deep", action="store_true", help="exact sizes, every page checked; slow")
    parser.add_argument(
        "--html",
        type=some,
        metavar="FILE",
        help="write it as one page with charts; - prints the page",
    )
    parser.add_argument("--yes", action="store_true", help="replace a page that is there")
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Say it at the terminal, or write the page."""
    if options.html is None:
        show = partial(_show, options)
        return answer(options, partial(_asked, options), show)
    if options.html == "-" and options.json:
        raise InvalidInput("--html - prints the page; --json says where one was written")
    place = Place.of(options.html)
    if not place.may_be_written(yes=options.yes):
        Terminal(sys.stderr).line(declined("nothing was written"))
        return DECLINED
    with Tools(options) as tools:
        found = _asked(options, tools)
    place.write(html.page(list(_reports(options, found)), time.time()))
    if options.html != "-":
        _written(options)
    return DONE


def _written(options: argparse.Namespace) -> None:
    if options.json:
        print_json({"written": options.html})
    else:
        Terminal(sys.stderr).line(f"Wrote {options.html}.")


def _asked(options: argparse.Namespace, tools: Tools) -> Answer:
    """Ask every profile; several are answered by their names."""
    spec = stats.SPEC if options.json and options.html is None else replace(stats.SPEC, run=_drawn)
    names = tools.served.names
    with Working("Looking") as work:
        found = {
            name: tools.ask(spec, {"deep": options.deep, "profile": name}, work) for name in names
        }
    if work.is_cancelled():
        raise KeyboardInterrupt
    return {"profiles": found} if len(names) > 1 else found[names[0]]


def _drawn(home: Home, given: stats.StatsArguments, asked: Asked, work: Work) -> dict[str, Any]:
    """Return the report on a home with what is drawn of it."""
    del asked
    answered, health = stats.examined(home, given, work)
    sizes = None if health is None else health.sizes
    return answered | {
        "weeks": [] if health is None else [asdict(week) for week in health.weeks],
        "tables": {} if sizes is None else dict(sizes.tables),
    }


def _reports(options: argparse.Namespace, found: Answer) -> Iterator[Report]:
    several: Mapping[str, Answer] = found.get("profiles", {})
    for name, each in several.items():
        yield reported(options, each, name)
    if not several:
        yield reported(options, found, None)


def _show(options: argparse.Namespace, found: Answer) -> None:
    out = terminal()
    for number, report in enumerate(_reports(options, found)):
        if number:
            out.line()
        _say(out, report)


def _say(out: Terminal, report: Report) -> None:
    out.line(report.home, "bold")
    out.table(_FIGURES, report.figures, bare=True)
    blocks = out.can_write(charts.BLOCKS)
    if any(week.value for week in report.weeks):
        _head(out, "Growth by week", "messages")
        values = [week.value for week in report.weeks]
        first = report.weeks[0].label
        out.lines(charts.columns(values, (first, _LAST), out.width, blocks=blocks))
    _bars(out, "Sessions by source", "", report.sources)
    _bars(out, "Size by table", _ESTIMATED if report.estimated else "", report.tables)
    _mends(out, report.mends)


def _bars(out: Terminal, head: str, note: str, points: Sequence[Point]) -> None:
    if points:
        _head(out, head, note)
        given = [charts.Bar(each.label, each.value, each.said) for each in points]
        out.lines(charts.bars(given, out.width, blocks=out.can_write(charts.BLOCKS)))


def _mends(out: Terminal, mends: Sequence[Mend]) -> None:
    _head(out, "What is wrong, or takes room")
    if not mends:
        out.line("Nothing.")
    for each in mends:
        won = f"; {each.won}" if each.won else ""
        out.line(f"{each.what}{won}")
        if each.command is not None:
            out.whole(f"  {each.command}")


def _head(out: Terminal, text: str, note: str = "") -> None:
    out.line()
    out.lines([Text.assemble((text, "bold"), (f", {note}" if note else "", "dim"))])
