"""`mcp-sessions prune`: what is old or of no use goes into the trash, once a person has agreed."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.arguments import folder
from mcp_serve.cli.options import of_answers, of_extension, of_homes
from mcp_serve.tools import prune

_WHAT = ("sessions", "ghosts", "routes", "orphans", "index", "trash", "all")

_AGE = "Only what has ended and was not active for 90 days goes; --older-than says otherwise."

EXAMPLES = """\
what it is about:
  sessions   ended conversations without activity for 90 days (or --older-than)
  ghosts     sessions that were opened and left empty
  routes     chats that lead to no session any more
  orphans    rows and files of sessions that are gone
  index      the search index is merged, and free room given back to the disk
  trash      batches in the trash that have expired: this has no undo
  all        everything but the trash

examples:
  mcp-sessions prune                          show what would go, and ask
  mcp-sessions prune ghosts --yes             ask nothing
  mcp-sessions prune --older-than 30d --source cron
  mcp-sessions prune all --plan-only          show it, and stop there
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    plan_command.what(parser, _WHAT)
    parser.add_argument("--trash", type=folder, metavar="DIR", help="keep what goes in this folder")
    plan_command.arguments(parser, limit=True)
    filters.add(parser, until="not active since then (90d)")
    of_extension(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, ask, apply."""
    asked = filters.given(options, filters.Pruned)
    asked |= {
        "sessions": options.session,
        "older_than_days": filters.days(options.until),
    }
    spec = replace(prune.SPEC, arguments=filters.Pruned)
    hint = "" if options.session or options.until or options.what != "sessions" else _AGE
    again = ("--trash", str(options.trash)) if options.trash else ()
    return plan_command.run(
        options, plan_command.Change(spec, "prune", asked, again=again, nothing=hint)
    )
