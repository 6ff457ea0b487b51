"""`mcp-sessions trash`: what is kept to undo changes, and emptying it for good."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rich.filesize import decimal

from mcp_serve import arguments as given_as
from mcp_serve import render
from mcp_serve.arguments import iso
from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.arguments import when
from mcp_serve.cli.options import of_answers, of_homes, of_pages
from mcp_serve.cli.terminal import Column, since, until
from mcp_serve.cli.tool_calls import Answer, answer, show_list, terminal
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.tools import prune
from mcp_serve.tools.spec import Spec
from session_core import Batch

_COLUMNS = (
    Column("age", right=True),
    Column("size", right=True),
    Column("what", wraps=True),
    Column("things", right=True),
    Column("expires", right=True),
    Column("batch", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions trash list                    what is in it, and for how long
  mcp-sessions trash empty                   ask, then empty what has expired
  mcp-sessions trash empty --older-than 7d   what is so old, expired or not
  mcp-sessions trash empty b-23456789        this one; others keep their undo
"""


class TrashArguments(given_as.Listing):
    """The arguments of the list."""

    limit: int = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|empty")
    for name, does in (("list", "what is in it"), ("empty", "delete it for good: has no undo")):
        action = actions.add_parser(
            name,
            help=does,
            description=does.capitalize() + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "list":
            of_pages(action, 20)
        else:
            action.add_argument(
                "--older-than",
                type=when,
                metavar="TIME",
                help="so old, expired or not: 7d, a date; 0 is all",
            )
            action.add_argument("batch", nargs="*", metavar="BATCH", help="only these, however old")
            plan_command.arguments(action, limit=True)
        of_homes(action)
        of_answers(action)


def run(options: argparse.Namespace) -> int:
    """List it, or empty it."""
    if options.action == "list":
        return answer(
            options,
            lambda tools: tools.gather(_SPEC, {}, "batches", options.limit, options.cursor),
            _show,
        )
    asked: Answer = {"older_than_days": filters.days(options.older_than)}
    if options.batch:
        asked["sessions"] = options.batch
    if options.plan is None:
        asked["what"] = "trash"
    return plan_command.run(options, plan_command.Change(_EMPTYING, "prune", asked))


def _batches(home: Home, given: TrashArguments, asked: Asked) -> Answer:
    """Return what can be restored, and behind it what has expired and is still there."""
    page = home.maintenance.batches(given.limit, asked.place)
    found = list(page.items)
    if page.next_cursor is None:
        there = {each.id for each in found}
        found += [each for each in reversed(home.ledger.ripe()) if each.id not in there]
    listed = [_batch(home, each) for each in found if each.emptied_at is None]
    return {"batches": listed, "next_cursor": asked.at(page.next_cursor)}


def _batch(home: Home, each: Batch) -> Answer:
    return {
        "batch": each.id,
        "at": iso(each.at),
        "tool": render.one_line(home, each.what) or "",
        "count": each.count,
        "bytes": each.bytes,
        "expires_at": iso(each.expires_at),
        "undone": each.undone_at is not None,
        **({"profile": home.profile} if home.profile else {}),
    }


_EMPTYING = replace(prune.SPEC, asks="prune trash")
"""The tool with plans to empty the trash alone: others remove what this verb does not name."""

_SPEC = Spec(
    name="trash",
    title="Trash",
    description="What is kept to undo changes.",
    arguments=TrashArguments,
    answers=None,
    run=_batches,
)


def _show(found: Answer) -> None:
    out = terminal()
    if not found["batches"]:
        out.line("There is nothing in the trash.")
        return
    show_list(_COLUMNS, found["batches"], _row)
    out.line(f"{decimal(sum(each['bytes'] for each in found['batches']))} in all.", "dim")
    if found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them.")
    out.hint("mcp-sessions restore BATCH brings one back, mcp-sessions trash empty deletes.")


def _row(each: Answer) -> list[str]:
    undone = " (restored)" if each["undone"] else ""
    return [
        since(each["at"]),
        decimal(each["bytes"]),
        each["tool"] + undone,
        f"{each['count']:,}",
        until(each["expires_at"]),
        each["batch"],
    ]
