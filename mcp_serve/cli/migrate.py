"""`mcp-sessions migrate`: bring the schema of a home in PostgreSQL up to date."""

from __future__ import annotations

import argparse
import os
import sys

from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.terminal import Terminal

EXAMPLES = """\
Creates or updates the tables, with a role that may create them. --grant lets
another role, which owns nothing, use the homes: agents connect with it. Later
migrations keep its rights, and row-level security binds it to one home. Passwords
come from PGPASSFILE, a service file or the environment. A home in a folder
needs no migration.

examples:
  mcp-sessions migrate --home 'postgresql://user@host/database'
  mcp-sessions migrate --home 'postgresql://?service=fleet&schema=sessions'
  mcp-sessions migrate --home 'postgresql://?service=owner' --grant agents
"""

_HOME_VARIABLE = "MCP_SESSIONS_HOME"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    add_home_options(parser)
    parser.add_argument("--grant", metavar="ROLE", help="let an existing role use the homes")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Apply the pending migrations and list them."""
    home = options.home or os.environ.get(_HOME_VARIABLE, "")
    applied = _apply_migrations(home, options.grant) if "://" in home else None
    if options.json:
        print_json({"applied": applied or []})
        return DONE
    out = Terminal(sys.stdout)
    if applied is None:
        out.write_line("A home in a folder needs no migration; its first change updates it.")
    elif applied:
        out.write_line(f"Applied: {', '.join(applied)}.")
    else:
        out.write_line("The schema is up to date; nothing was applied.")
    return DONE


def _apply_migrations(address: str, role: str | None) -> list[str]:
    from session_core.state import migrate_home  # noqa: PLC0415 -- not for a home in a folder

    return migrate_home(address, grant_to=role)
