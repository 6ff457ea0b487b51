"""`mcp-sessions install`: a client is told of the server, after a look at the change."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mcp_serve.cli import missing_home
from mcp_serve.cli.clients import files, formats
from mcp_serve.cli.clients.command import make, of_client, place_of, say
from mcp_serve.cli.clients.places import CLIENTS, Client, Machine
from mcp_serve.cli.errors import DONE
from mcp_serve.cli.options import of_homes
from mcp_serve.cli.output import print_error, print_json
from mcp_serve.cli.screen import Screen
from mcp_serve.profiles import Options, Served
from session_core import InvalidInput, SessionError

EXAMPLES = """\
examples:
  mcp-sessions install                          which clients are here
  mcp-sessions install claude-code              show the change, ask, make it
  mcp-sessions install cursor --project         for the project in this folder alone
  mcp-sessions install codex --read-only --yes  without the tools that change data
  mcp-sessions install --json                   the list for a script
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    of_client(parser)
    of_homes(parser)
    parser.add_argument("--read-only", action="store_true", help="without what changes data")
    parser.add_argument("--print", action="store_true", help="print what it would add, no more")


def run(options: argparse.Namespace) -> int:
    """Add the server, or say which clients are here."""
    screen = Screen(sys.stdout)
    if options.client is None and (options.yes or options.print or options.plan_only):
        raise InvalidInput("name the client; `mcp-sessions install` lists them")
    if options.client is None:
        _list(screen, options)
        return DONE
    client, path = place_of(options)
    served = Served(
        Options(home=options.home, profiles=options.profile, all_profiles=options.all_profiles)
    )
    _note_what_is_not_there(served)
    program, *rest = files.command(shared=options.project)
    entry = client.entry(program, [*rest, *files.arguments(options)])
    if options.print and options.json:
        text = _snippet(client, options.name, entry)
        print_json({"client": client.name, "path": str(path), "text": text})
        return DONE
    if options.print:
        print_error(f"# {path}")
        screen.whole(_snippet(client, options.name, entry))
        return DONE
    wanted = files.adding(client, path, options.name, entry)
    if wanted.is_none:
        say(options, path, "nothing")
        if not options.json:
            screen.whole(f"{client.label} has it already, in {path}")
        return DONE
    code = make(options, wanted)
    if code == DONE and not (options.json or options.plan_only):
        screen.whole(f"Start {client.label} anew, and ask it what you worked on last week.")
    return code


def _note_what_is_not_there(served: Served) -> None:
    """Say it where a home was named that has to be begun yet; it is told all the same."""
    missing, path = missing_home.wrong(served), served.path()
    if missing is not None:
        note = f"Note: there is no home in {path} yet: {missing}; {missing_home.to_do(path)}."
        Screen(sys.stderr).block("", note)


def _snippet(client: Client, name: str, entry: dict[str, Any]) -> str:
    """Return what an empty file would be."""
    form = formats.format_of(client.user(Machine()))
    return form.put("", client.table, name, entry).rstrip()


_WORDS = {"-": "absent", "cannot be read": "unreadable"}
"""States of a client as a script has them, where those are no words of a person."""


def _list(screen: Screen, options: argparse.Namespace) -> None:
    """Say of each client whether it is here and knows us."""
    machine, name = Machine(), options.name
    if options.json:
        states = {client: _state(client, machine, name) for client in CLIENTS}
        print_json(
            {
                "clients": [
                    {"client": each.name, "label": each.label, "state": _WORDS.get(state, state)}
                    for each, state in states.items()
                ]
            }
        )
        return
    for client in CLIENTS:
        screen.line(f"{client.name:<15} {_state(client, machine, name):<14} {client.label}")
    screen.line()
    screen.block("", "mcp-sessions install NAME tells one of them of this server.")


def _state(client: Client, machine: Machine, name: str) -> str:
    try:
        entry = files.entry_in(client, client.user(machine), name)
    except SessionError:
        return "cannot be read"
    if files.is_ours(entry):
        return "installed"
    return "here" if client.is_here(machine) else "-"
