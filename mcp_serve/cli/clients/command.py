"""What `install` and `uninstall` share: what they take, and the question before a change."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_serve.cli.clients.files import Change
from mcp_serve.cli.clients.places import CLIENTS, Client, Machine
from mcp_serve.cli.errors import DECLINED, DONE
from mcp_serve.cli.options import of_answers
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import agreed, declined
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
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--yes", action="store_true", help="make the change without a question")
    how.add_argument(
        "--plan-only", "--dry-run", action="store_true", help="show the change and stop"
    )
    of_answers(parser)


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


def make(options: argparse.Namespace, wanted: Change) -> int:
    """Show a change, ask for it, make it."""
    screen, file = Screen(sys.stderr if options.json else sys.stdout), wanted.file
    difference = list(file.difference(wanted.text))
    if not (options.json and (options.yes or options.plan_only)):
        screen.whole(f"{file.path}")
        for line in difference:
            screen.whole(f"  {line}")
        sys.stdout.flush()
    if options.plan_only:
        if not options.json:
            screen.whole("Nothing was changed.")
        say(options, file.path, "planned", difference)
        return DONE
    if not agreed("Change it?", yes=options.yes):
        Screen(sys.stderr).whole(declined())
        say(options, file.path, "declined", difference)
        return DECLINED
    wanted.make()
    kept = f"; {file.copy.name} has it as it was before" if file.copy.exists() else ""
    if not options.json:
        screen.whole(f"Done{kept}.")
    say(options, file.path, "applied", difference, str(file.copy) if kept else None)
    return DONE


def say(
    options: argparse.Namespace,
    path: Path,
    outcome: str,
    difference: Sequence[str] = (),
    copy: str | None = None,
) -> None:
    """Answer a script what has become of a change; `copy` is where the file is as it was."""
    if options.json:
        found = {"outcome": outcome, "client": options.client, "path": str(path)}
        print_json(found | {"difference": list(difference), "copy": copy})
