"""Arguments of `install` and `uninstall`, and the confirmation of a change."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_serve.cli.clients.config_files import ConfigurationChange
from mcp_serve.cli.clients.supported_clients import CLIENTS, ClientProgram, UserEnvironment
from mcp_serve.cli.command_errors import DECLINED, DONE
from mcp_serve.cli.options import add_json_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import ask_confirmation, format_declined
from mcp_serve.cli.terminal import Terminal
from session_core import InvalidInput, Unsupported

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a client and its file."""
    names = [client.name for client in CLIENTS]
    parser.add_argument("client", nargs="?", choices=names, metavar="CLIENT", help=", ".join(names))
    parser.add_argument(
        "--project", action="store_true", help="use the file of the project in this folder"
    )
    parser.add_argument("--name", default="sessions", help="name of the server (default: sessions)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-y", "--yes", action="store_true", help="apply without asking")
    how.add_argument(
        "--plan-only", "--dry-run", action="store_true", help="show the change and exit"
    )
    add_json_option(parser)


def find_client_file(options: argparse.Namespace) -> tuple[ClientProgram, Path]:
    """Return the chosen client and its file.

    Raises:
        InvalidInput: The name of the server is not valid.
        Unsupported: The client has no project configuration.
    """
    if not _NAME_PATTERN.fullmatch(options.name):
        raise InvalidInput(f"--name must be letters, digits, - and _, got {options.name!r:.80}")
    client = next(program for program in CLIENTS if program.name == options.client)
    path = client.find_file(UserEnvironment(), Path.cwd() if options.project else None)
    if path is None:
        raise Unsupported(f"{client.label} has no project configuration; leave out --project")
    return client, path


def confirm_and_apply(options: argparse.Namespace, change: ConfigurationChange) -> int:
    """Show a change, ask, apply it, and return the exit code."""
    out, file = Terminal(sys.stderr if options.json else sys.stdout), change.file
    difference = list(file.list_differences(change.text))
    if not (options.json and (options.yes or options.plan_only)):
        out.write_unwrapped(f"{file.path}")
        for line in difference:
            out.write_unwrapped(f"  {line}")
        sys.stdout.flush()
    if options.plan_only:
        if not options.json:
            out.write_unwrapped("Nothing was changed.")
        print_outcome(options, file.path, "planned", difference)
        return DONE
    if not ask_confirmation("Apply this change?", yes=options.yes):
        Terminal(sys.stderr).write_unwrapped(format_declined())
        print_outcome(options, file.path, "declined", difference)
        return DECLINED
    change.apply()
    copy_note = (
        f"; the original is kept in {file.copy_path.name}" if file.copy_path.exists() else ""
    )
    if not options.json:
        out.write_unwrapped(f"Done{copy_note}.")
    print_outcome(
        options, file.path, "applied", difference, str(file.copy_path) if copy_note else None
    )
    return DONE


def print_outcome(
    options: argparse.Namespace,
    path: Path,
    outcome: str,
    difference: Sequence[str] = (),
    copy: str | None = None,
) -> None:
    """Print the outcome as JSON.

    `copy` is the path of the original.
    """
    if options.json:
        answer = {"outcome": outcome, "client": options.client, "path": str(path)}
        print_json(answer | {"difference": list(difference), "copy": copy})
