"""What `install` and `uninstall` share: what they take, and the question before a change."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from mcp_serve.cli.asking import agreed
from mcp_serve.cli.clients.change import Change
from mcp_serve.cli.clients.places import CLIENTS, Client, Machine
from mcp_serve.cli.codes import DECLINED, DONE
from mcp_serve.cli.screen import Screen
from session_core import InvalidInput, Unsupported

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def of_client(parser: argparse.ArgumentParser) -> None:
    """Add which client is meant, and where in it."""
    names = [client.name for client in CLIENTS]
    parser.add_argument("client", nargs="?", choices=names, metavar="CLIENT", help=", ".join(names))
    parser.add_argument(
        "--project", action="store_true", help="in the file of the project in this folder"
    )
    parser.add_argument("--name", default="sessions", help="the name of the server (sessions)")
    parser.add_argument("--yes", action="store_true", help="make the change without a question")


def place_of(options: argparse.Namespace) -> tuple[Client, Path]:
    """Return the client that is meant, and its file.

    Raises:
        InvalidInput: no client takes a server of this name.
        Unsupported: it reads none in a project.
    """
    if not _NAME.fullmatch(options.name):
        raise InvalidInput(
            f"a server is named by letters, digits, - and _, not {options.name!r:.80}"
        )
    client = next(each for each in CLIENTS if each.name == options.client)
    path = client.file(Machine(), Path.cwd() if options.project else None)
    if path is None:
        raise Unsupported(f"{client.label} reads no file of a project; leave out --project")
    return client, path


def make(wanted: Change, *, yes: bool) -> int:
    """Show a change, ask for it, make it."""
    screen, file = Screen(sys.stdout), wanted.file
    screen.whole(f"{file.path}")
    for line in file.difference(wanted.text):
        screen.whole(f"  {line}")
    sys.stdout.flush()
    if not agreed("Change it?", yes=yes):
        screen.whole("Nothing was changed; --yes changes it without a question.")
        return DECLINED
    wanted.make()
    kept = f"; {file.copy.name} has it as it was before" if file.copy.exists() else ""
    screen.whole(f"Done{kept}.")
    return DONE
