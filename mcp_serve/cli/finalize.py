"""`mcp-sessions finalize`: end sessions and keep their messages."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve import arguments, plan_answers
from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.argument_parser import parse_before_option, parse_project, parse_text
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.tools import finalize

EXAMPLES = f"""\
{plan_command.format_kinds("finalize")}

examples:
  mcp-sessions finalize abandoned                    show the plan and ask
  mcp-sessions finalize abandoned --older-than 90d --source cli
  mcp-sessions finalize expired --start-new --yes    chats get new sessions
"""


class FinalizeCommandArguments(finalize.FinalizeArguments):
    """The arguments of the tool, with several sources."""

    source: arguments.Sources | None = None  # type: ignore[assignment]


_SPEC = replace(finalize.SPEC, arguments=FinalizeCommandArguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    plan_command.add_what_and_session_options(parser, plan_answers.list_what_values("finalize"))
    parser.add_argument("--reason", type=parse_text, help="end reason to record")
    parser.add_argument("--start-new", action="store_true", help="start a new session in the chats")
    plan_command.add_plan_arguments(parser, limit=True)
    group = parser.add_argument_group("which sessions")
    group.add_argument(
        "--project",
        type=parse_project,
        metavar="FOLDER",
        help="working folder is this one or below it",
    )
    group.add_argument(
        "-s", "--source", type=parse_text, action="append", help="such as cli; repeatable"
    )
    group.add_argument(
        "--older-than",
        type=parse_before_option,
        metavar="TIME",
        help="last active before: 30d, a date",
    )
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, ask and apply."""
    arguments = {
        "what": options.what,
        "sessions": options.session,
        "reason": options.reason,
        "start_new": options.start_new,
        "project": options.project,
        "source": options.source,
        "older_than_days": filters.parse_age_days(options.older_than),
    }
    return plan_command.plan_and_apply(
        options, plan_command.ChangeRequest(_SPEC, "finalize", arguments)
    )
