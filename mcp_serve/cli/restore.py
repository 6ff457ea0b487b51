"""`mcp-sessions restore`: what can be undone, and the undo."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from mcp_serve.cli import changing
from mcp_serve.cli.options import command, of_answers, of_homes
from mcp_serve.cli.terminal import Column, local
from mcp_serve.cli.tools import Answer, Tools, answer, show_list, terminal
from mcp_serve.cli.working import Working
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.tools import restore
from session_core import InvalidInput

_ALL = 100_000

_COLUMNS = (
    Column("when"),
    Column("what", wraps=True),
    Column("things", right=True),
    Column("until"),
    Column("batch", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions restore              what can be undone, newest first
  mcp-sessions restore b-23456789   undo it; asks where that drops something
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="undo this one")
    parser.add_argument("--limit", type=int, default=20, help="how many lines (20)")
    changing.arguments(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """List them, or undo one."""
    if options.plan is None and (options.batch is None or options.plan_only):
        return answer(options, lambda tools: _found(tools, options), partial(_show, options))
    asked = {"batch": options.batch}
    change = changing.Change(restore.SPEC, "restore", asked, at_once=options.plan is None)
    return changing.run(options, change)


def _found(tools: Tools, options: argparse.Namespace) -> Answer:
    """Return what can be undone; of one batch that is named, that alone."""
    if options.batch is None:
        return tools.gather(_LIST, {}, "batches", options.limit)
    found = tools.gather(_LIST, {}, "batches", _ALL)
    named = [each for each in found["batches"] if each["batch"] == options.batch]
    if not named:
        tools.home.ledger.undoable(options.batch)
        raise InvalidInput(f"batch {options.batch} has taken another one back, and is not undone")
    return {"batches": named, "next_cursor": None}


def _list(home: Home, given: restore.RestoreArguments, asked: Asked) -> Answer:
    found: Answer = restore.SPEC.run(home, given, asked, Working("Looking"))
    if home.profile:
        found["batches"] = [each | {"profile": home.profile} for each in found["batches"]]
    return found


_LIST = replace(restore.SPEC, run=_list)
"""The tool where it changes nothing."""


def _show(options: argparse.Namespace, found: Answer) -> None:
    out = terminal()
    if not found["batches"]:
        out.line("Nothing was changed that can be undone.")
        return
    show_list(_COLUMNS, found["batches"], _row)
    if options.batch is not None:
        out.line("Nothing was changed. It is undone by")
        out.whole(f"  {command(options, 'restore', options.batch)}")
    elif found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them.")
    else:
        out.hint("mcp-sessions restore BATCH undoes one of them.")


def _row(each: Answer) -> list[str]:
    until = local(each["expires_at"])[:10]
    return [local(each["at"]), each["tool"], f"{each['count']:,}", until, each["batch"]]
