"""`mcp-sessions log`: who has changed what, as it was noted."""

from __future__ import annotations

import argparse
from typing import Any

from mcp_serve import arguments as given_as
from mcp_serve import render
from mcp_serve.arguments import iso
from mcp_serve.cli.options import of_answers, of_homes, of_pages
from mcp_serve.cli.terminal import Column, local
from mcp_serve.cli.tool_calls import Answer, answer, show_list, terminal
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.tools.spec import Spec

_COLUMNS = (
    Column("when"),
    Column("who", wraps=True),
    Column("what", wraps=True),
    Column("counts", wraps=True),
    Column("plan", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions log                 the last changes
  mcp-sessions log --limit 1000 --json
"""


class LogArguments(given_as.Listing):
    """The arguments of the log."""

    limit: int = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    of_pages(parser, 20)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """List them."""
    return answer(
        options,
        lambda tools: tools.gather(_SPEC, {}, "lines", options.limit, options.cursor),
        _show,
    )


def _lines(home: Home, given: LogArguments, asked: Asked) -> Answer:
    page = home.maintenance.log(given.limit, asked.place)
    lines = [
        {
            "at": iso(each.at),
            "who": render.one_line(home, each.client),
            "what": render.one_line(home, each.what),
            "plan": each.plan,
            "counts": each.counts,
            **({"profile": home.profile} if home.profile else {}),
        }
        for each in page.items
    ]
    return {"lines": lines, "next_cursor": asked.at(page.next_cursor)}


_SPEC = Spec(
    name="log",
    title="Log",
    description="Who has changed what.",
    arguments=LogArguments,
    answers=None,
    run=_lines,
)


def _show(found: Answer) -> None:
    out = terminal()
    if not found["lines"]:
        out.line("Nothing was changed by us in this home.")
        return
    show_list(_COLUMNS, found["lines"], _row)
    if found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them.")


def _row(each: Answer) -> list[str]:
    return [
        local(each["at"]),
        each["who"],
        each["what"],
        _counted(each["counts"]),
        each["plan"] or "",
    ]


def _counted(counts: Any) -> str:
    """Return what was counted, without what came to none."""
    if not isinstance(counts, dict):
        return str(counts)
    there = ((name, value) for name, value in counts.items() if value not in (0, False, None))
    return ", ".join(name if value is True else f"{name} {_value(value)}" for name, value in there)


def _value(value: Any) -> str:
    """Return what was counted; two of it are before and after."""
    if isinstance(value, list):
        return " to ".join(map(_value, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
