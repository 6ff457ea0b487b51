"""`mcp-sessions resume`: continue a session of another agent, in its agent and its folder."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.tool_calls import ToolCaller, get_terminal
from mcp_serve.tools import read
from session_core import Unsupported

EXAMPLES = """\
In a pipe, or with --print, the command is printed instead of run.

examples:
  mcp-sessions resume 0190a3f2           by a prefix of the id
  mcp-sessions resume 0190a3f2 --print   only show the command
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("session", metavar="ID", help="id, prefix of an id or title")
    parser.add_argument("--print", action="store_true", help="print the command and exit")
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command that continues a session, or print it.

    Raises:
        Unsupported: no command continues the session.
    """
    with ToolCaller(options) as tools:
        answer = tools.call_tool(read.SPEC, {"session": options.session, "limit": 1})
    session = answer["session"]
    if "kept" in session:
        raise Unsupported(
            f"{session['source']} has deleted session {session['id']}; its kept copy can be read: "
            f"mcp-sessions show {session['id']}"
        )
    if "resume" not in session:
        raise Unsupported(f"no command continues session {session['id']} of {session['source']}")
    words, folder = shlex.split(session["resume"]), session.get("project")
    if options.json:
        print_json({"id": session["id"], "resume": session["resume"], "project": folder})
        return DONE
    if folder is not None and not Path(folder).is_dir():
        get_terminal().write_hint(f"Its folder {folder} no longer exists.")
        folder = None
    is_run = sys.stdin.isatty() and sys.stdout.isatty() and not options.print
    if not is_run or shutil.which(words[0]) is None:
        where = "" if folder is None else f"cd {shlex.quote(folder)} && "
        get_terminal().write_unwrapped(f"{where}{session['resume']}")
        return DONE
    if folder is not None:
        os.chdir(folder)
    sys.stdout.flush()
    return os.execvp(words[0], words)  # noqa: S606 -- the agent of the session, without a shell
