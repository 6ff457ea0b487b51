"""`mcp-sessions uninstall`: a client is told of the server no more."""

from __future__ import annotations

import argparse
import sys

from mcp_serve.cli.clients import files
from mcp_serve.cli.clients.command import make, of_client, place_of, say
from mcp_serve.cli.errors import DONE
from mcp_serve.cli.screen import Screen
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions uninstall claude-code        show the change, ask, make it
  mcp-sessions uninstall cursor --project   from the project in this folder
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    of_client(parser)


def run(options: argparse.Namespace) -> int:
    """Take the server out."""
    if options.client is None:
        raise InvalidInput("name the client; `mcp-sessions install` lists them")
    client, path = place_of(options)
    wanted = files.removing(client, path, options.name)
    if wanted is None:
        say(options, path, "nothing")
        if not options.json:
            Screen(sys.stdout).whole(f"{client.label} does not have it, in {path}")
        return DONE
    return make(options, wanted)
