"""`mcp-sessions prune`: move old and unused data to the trash, after confirmation."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve import plan_answers
from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.argument_parser import parse_folder, parse_text
from mcp_serve.cli.options import add_extension_option, add_home_options, add_json_option
from mcp_serve.tools import prune

_AGE_HELP = (
    "Only conversations that ended and were inactive for 90 days are removed; "
    "change the age with --older-than."
)

EXAMPLES = f"""\
{plan_command.format_kinds("prune")}

examples:
  mcp-sessions prune                          show the plan and ask
  mcp-sessions prune ghosts --yes             apply without asking
  mcp-sessions prune --older-than 30d --source cron
  mcp-sessions prune --older-than 30d --keep invoice --keep "tax return"
  mcp-sessions prune all --plan-only          show the plan and exit
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    plan_command.add_what_and_session_options(parser, plan_answers.list_what_values("prune"))
    parser.add_argument(
        "--trash", type=parse_folder, metavar="DIR", help="folder for the removed data"
    )
    parser.add_argument(
        "--keep",
        action="append",
        type=parse_text,
        metavar="TEXT",
        help="protect conversations: an id, or words in a message or the title; repeatable",
    )
    plan_command.add_plan_arguments(parser, limit=True)
    filters.add_filter_options(parser, before="last active before: 30d, a date (default: 90d)")
    add_extension_option(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, ask and apply."""
    arguments = filters.read_given_options(options, filters.PruneFilterArguments)
    arguments |= {
        "sessions": options.session,
        "older_than_days": filters.parse_age_days(options.until),
    }
    spec = replace(prune.SPEC, arguments=filters.PruneFilterArguments)
    hint = "" if options.session or options.until or options.what != "sessions" else _AGE_HELP
    again = ("--trash", str(options.trash)) if options.trash else ()
    return plan_command.plan_and_apply(
        options, plan_command.ChangeRequest(spec, "prune", arguments, again=again, nothing=hint)
    )
