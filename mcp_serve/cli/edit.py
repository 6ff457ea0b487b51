"""`mcp-sessions edit`: a title, the archive, a pin, or that a session has ended; at once."""

from __future__ import annotations

import argparse
from functools import partial

from mcp_serve.cli.options import command, of_answers, of_homes
from mcp_serve.cli.tools import Answer, answer, terminal
from mcp_serve.cli.working import Working
from mcp_serve.tools import edit

EXAMPLES = """\
examples:
  mcp-sessions edit 20261118_090909_ab12cd --title "The ledger"
  mcp-sessions edit 20261118_090909_ab12cd --pin --unarchive   undone as one
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("session", metavar="ID", help="a full id, or a session key")
    parser.add_argument("--title", help="an empty one is none")
    for name, word, what in (
        ("archived", "archive", "out of the list, with its whole conversation"),
        ("pinned", "pin", "never pruned, with its whole conversation"),
    ):
        both = parser.add_mutually_exclusive_group()
        both.add_argument(f"--{word}", dest=name, action="store_true", default=None, help=what)
        both.add_argument(
            f"--un{word}", dest=name, action="store_false", default=None, help="not so any more"
        )
    parser.add_argument("--reopen", action="store_true", help="forget that it has ended")
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Edit it."""
    asked = {
        "session": options.session,
        "title": options.title,
        "archived": options.archived,
        "pinned": options.pinned,
        "reopen": options.reopen,
    }
    with Working("Editing") as work:
        return answer(
            options,
            lambda tools: tools.ask(edit.SPEC, asked, work),
            partial(_show, options),
            changes=True,
        )


def _show(options: argparse.Namespace, found: Answer) -> None:
    out, session = terminal(), found["session"]
    pinned = " · pinned" if session["pinned"] else ""
    if found["batch"] is None:
        out.line("Nothing to do: it is so already.")
    out.line(session["title"] or session["preview"] or "(nothing in it)", "bold")
    out.line(f"{session['id']} · {session['source']} · {session['status']}{pinned}", "dim")
    if found["batch"] is not None:
        out.line("Undo it by")
        out.whole(f"  {command(options, 'restore', found['batch'])}")
