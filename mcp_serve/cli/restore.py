"""`mcp-sessions restore`: what can be undone, and the undo."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from mcp_serve import plans, render
from mcp_serve.arguments import iso
from mcp_serve.cli import plan_command, plan_output
from mcp_serve.cli.options import of_answers, of_extension, of_homes, of_pages
from mcp_serve.cli.progress import Working
from mcp_serve.cli.terminal import Column, Terminal, local
from mcp_serve.cli.tool_calls import Answer, Tools, answer, show_list, terminal
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.tools import restore
from session_core import InvalidInput, Preview, UndoPlanned

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
  mcp-sessions restore b-23456789   what would come back; asks
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="undo this one")
    of_pages(parser, 20)
    plan_command.arguments(parser, "show it, stop; prints a handle where it would drop something")
    of_extension(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """List them, or undo one."""
    if options.cursor is not None and (options.plan or options.batch):
        raise InvalidInput("--cursor is for the list alone")
    if options.yes and options.plan is None and options.batch is None:
        raise InvalidInput("--yes is for one BATCH; name it")
    if options.plan is None and options.batch is None:
        return answer(
            options,
            lambda tools: tools.gather(_LIST, {}, "batches", options.limit, options.cursor),
            _show,
        )
    change = plan_command.Change(
        restore.SPEC,
        "restore",
        {"batch": options.batch},
        plan=_plan,
        look=partial(_look, options.batch),
        typed=(options.batch,),
    )
    return plan_command.run(options, change)


def _look(batch: str, tools: Tools) -> Answer:
    """Return what would come back; where that drops something, the plan that says so."""
    home = tools.home
    found = home.maintenance.coming(batch)
    if isinstance(found, UndoPlanned):
        found = home.maintenance.planned(found.plan)
    if isinstance(found, Preview):
        return plans.preview(home, found)
    done = found.batch
    planned = Preview("planned", None, done.expires_at, found.count, found.items)
    what = render.one_line(home, done.what) or ""
    return plans.preview(home, planned) | {"batch": done.id, "at": iso(done.at), "tool": what}


def _plan(out: Terminal, kind: str, found: Answer) -> None:
    if found["plan"] is not None:
        plan_output.plan(out, kind, found)
        return
    out.line(plan_output.words(kind, found["count"]), "bold")
    out.line(f"It takes back `{found['tool']}` of {local(found['at'])}, and has no undo itself.")
    if found["items"]:
        out.line()
        plan_output.items(out, found)


def _list(home: Home, given: restore.RestoreArguments, asked: Asked) -> Answer:
    found: Answer = restore.SPEC.run(home, given, asked, Working("Looking"))
    if home.profile:
        found["batches"] = [each | {"profile": home.profile} for each in found["batches"]]
    return found


_LIST = replace(restore.SPEC, run=_list)
"""The tool where it changes nothing."""


def _show(found: Answer) -> None:
    out = terminal()
    if not found["batches"]:
        out.line("Nothing was changed that can be undone.")
        return
    show_list(_COLUMNS, found["batches"], _row)
    if found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them.")
    else:
        out.hint("mcp-sessions restore BATCH undoes one of them.")


def _row(each: Answer) -> list[str]:
    until = local(each["expires_at"])[:10]
    return [local(each["at"]), each["tool"], f"{each['count']:,}", until, each["batch"]]
