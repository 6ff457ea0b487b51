"""`mcp-sessions uninstall`: unregister the server from a client."""

from __future__ import annotations

import argparse
import sys

from mcp_serve.cli.clients import config_files
from mcp_serve.cli.clients.command import (
    add_client_arguments,
    confirm_and_apply,
    find_client_file,
    print_outcome,
)
from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.terminal import Terminal
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions uninstall claude-code        show the change and ask
  mcp-sessions uninstall cursor --project   from the project in this folder
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    add_client_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Unregister the server."""
    if options.client is None:
        raise InvalidInput("name the client; `mcp-sessions install` lists them")
    client, path = find_client_file(options)
    change = config_files.build_removal(client, path, options.name)
    if change is None:
        print_outcome(options, path, "nothing")
        if not options.json:
            Terminal(sys.stdout).write_unwrapped(
                f"{client.label} has no entry for this server in {path}"
            )
        return DONE
    return confirm_and_apply(options, change)
