"""`mcp-sessions finalize`: sessions end, and what was said in them stays."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve import arguments as given_as
from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.arguments import some, when
from mcp_serve.cli.options import of_answers, of_homes
from mcp_serve.tools import finalize

_WHAT = ("sessions", "expired", "orphaned", "abandoned")

EXAMPLES = """\
what it is about:
  sessions   those that are named by --session
  expired    what the reset policy of their chats ends with the next message
  orphaned   continuations after a compression that never ran, of 7 days
  abandoned  what never ended, without activity for 30 days

examples:
  mcp-sessions finalize abandoned                    show what would end, ask
  mcp-sessions finalize abandoned --older-than 90d --source cli
  mcp-sessions finalize expired --start-new --yes    their chats begin afresh
"""


class FinalizeArguments(finalize.FinalizeArguments):
    """The arguments of the tool, of several sources."""

    source: given_as.Sources | None = None  # type: ignore[assignment]


_SPEC = replace(finalize.SPEC, arguments=FinalizeArguments)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    plan_command.what(parser, _WHAT)
    parser.add_argument("--reason", type=some, help="why it ended, as it is noted")
    parser.add_argument("--start-new", action="store_true", help="their chats begin afresh")
    plan_command.arguments(parser, limit=True)
    group = parser.add_argument_group("which sessions")
    group.add_argument(
        "--project", type=some, metavar="FOLDER", help="worked on in it, or below it"
    )
    group.add_argument("--source", type=some, action="append", help="such as cli; may be repeated")
    group.add_argument(
        "--older-than", type=when, metavar="TIME", help="not active since then: 30d, a date"
    )
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, ask, apply."""
    asked = {
        "what": options.what,
        "sessions": options.session,
        "reason": options.reason,
        "start_new": options.start_new,
        "project": options.project,
        "source": options.source,
        "older_than_days": filters.days(options.older_than),
    }
    return plan_command.run(options, plan_command.Change(_SPEC, "finalize", asked))
