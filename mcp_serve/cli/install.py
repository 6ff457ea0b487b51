"""`mcp-sessions install`: register the server with a client, after a preview."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

from mcp_serve.cli import missing_home, transcript_summary
from mcp_serve.cli.argument_parser import suggest_nearest
from mcp_serve.cli.clients import config_files, formats
from mcp_serve.cli.clients.command import (
    add_client_arguments,
    confirm_and_apply,
    find_client_file,
    print_outcome,
)
from mcp_serve.cli.clients.supported_clients import CLIENTS, ClientProgram, UserEnvironment
from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.options import add_home_options, choose_driver
from mcp_serve.cli.output import print_error, print_json
from mcp_serve.cli.plan_command import ask_text, can_ask_user
from mcp_serve.cli.terminal import TableColumn, Terminal
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import InvalidInput, SessionError

EXAMPLES = """\
examples:
  mcp-sessions install                          list the clients here and ask for one
  mcp-sessions install claude-code              show the change and ask
  mcp-sessions install cursor --project         only for the project in this folder
  mcp-sessions install codex --read-only --yes  without the tools that change data
  mcp-sessions install --json                   the list for a script
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    add_client_arguments(parser)
    add_home_options(parser)
    parser.add_argument(
        "--read-only", action="store_true", help="leave out the tools that change data"
    )
    parser.add_argument("--print", action="store_true", help="print the entry and exit")


def run(options: argparse.Namespace) -> int:
    """Register the server, or list the clients on this machine."""
    out = Terminal(sys.stdout)
    if options.client is None and (options.yes or options.print or options.plan_only):
        raise InvalidInput("name the client; `mcp-sessions install` lists them")
    if options.client is None:
        _list_clients(out, options)
        options.client = None if options.json else _ask_for_client(out)
    if options.client is None:
        return DONE
    client, path = find_client_file(options)
    served = ServedStores(
        ServerOptions(home=options.home, stores=options.store, all_profiles=options.all_profiles)
    )
    if served.transcript_names:
        choose_driver()  # before the first look at a home
    _warn_missing_home(served)
    program, *rest = config_files.find_command(shared=options.project)
    entry = client.entry(program, [*rest, *config_files.build_arguments(options)])
    if options.print and options.json:
        text = _render_snippet(client, options.name, entry)
        print_json({"client": client.name, "path": str(path), "text": text})
        return DONE
    if options.print:
        print_error(f"# {path}")
        out.write_unwrapped(_render_snippet(client, options.name, entry))
        return DONE
    change = config_files.build_addition(client, path, options.name, entry)
    if change.is_unneeded:
        print_outcome(options, path, "nothing")
        if not options.json:
            out.write_unwrapped(f"{client.label} is already configured in {path}")
        return DONE
    code = confirm_and_apply(options, change)
    if code == DONE and not (options.json or options.plan_only):
        _show_transcripts(out, served)
        _offer_keeping(out, served, options)
        out.write_unwrapped(f"Restart {client.label}, then ask it what you worked on last week.")
    served.close()
    return code


def _show_transcripts(out: Terminal, served: ServedStores) -> None:
    """Show the sessions of other agents that the client can ask about."""
    if not served.transcript_names:
        return
    with suppress(SessionError):  # doctor reports it
        for store in transcript_summary.summarize_stores(served):
            out.write_truncated(f"It can ask about {store.name}: {store.describe()}")


def _offer_keeping(out: Terminal, served: ServedStores, options: argparse.Namespace) -> None:
    """Ask once whether to keep copies of the sessions of other agents."""
    if served.transcript_names and can_ask_user() and not options.yes:
        from mcp_serve.cli import keep  # noqa: PLC0415 -- only if it is asked

        with suppress(SessionError):  # doctor reports it
            keep.offer_keeping(out, served)


def _warn_missing_home(served: ServedStores) -> None:
    """Warn if the named home does not exist yet.

    The client is configured nevertheless.
    """
    try:
        missing = missing_home.explain_wrong_name(served)
    except SessionError as error:
        Terminal(sys.stderr).write_block("", f"Note: the home cannot be read now: {error}.")
        return
    if missing is not None:
        home = served.get_home()
        note = (
            f"Note: there is no home in {home.place} yet: {missing}; "
            f"{missing_home.suggest_remedy(home)}."
        )
        Terminal(sys.stderr).write_block("", note)


def _render_snippet(client: ClientProgram, name: str, entry: dict[str, Any]) -> str:
    """Return the configuration that an empty file would get."""
    form = formats.choose_format(client.user(UserEnvironment()))
    return form.set_server("", client.table, name, entry).rstrip()


_REGISTERED, _HERE = "registered", "not registered"
_ABSENT, _UNREADABLE = "not found", "cannot be read"
_JSON_STATES = {
    _REGISTERED: "installed",
    _HERE: "here",
    _ABSENT: "absent",
    _UNREADABLE: "unreadable",
}
"""JSON values of the states of a client."""
_CLIENT_COLUMNS = (TableColumn("client", copied=True), TableColumn("name"), TableColumn("server"))


def _list_clients(out: Terminal, options: argparse.Namespace) -> None:
    """List each client with its state."""
    machine, name = UserEnvironment(), options.name
    if options.json:
        states = {client: _find_client_state(client, machine, name) for client in CLIENTS}
        print_json(
            {
                "clients": [
                    {
                        "client": client.name,
                        "label": client.label,
                        "state": _JSON_STATES[state],
                    }
                    for client, state in states.items()
                ]
            }
        )
        return
    served = ServedStores(
        ServerOptions(home=options.home, stores=options.store, all_profiles=options.all_profiles)
    )
    if served.transcript_names:
        choose_driver()  # before the first look at a home
        transcript_summary.show_stores(out, served)
        out.write_line()
    served.close()
    states = {client: _find_client_state(client, machine, name) for client in CLIENTS}
    rows = [[client.name, client.label, state] for client, state in states.items()]
    out.write_table(_CLIENT_COLUMNS, [row for row in rows if row[-1] != _ABSENT])
    absent = [client.name for client, state in states.items() if state == _ABSENT]
    if absent:
        out.write_block("not found  ", ", ".join(absent), style="dim")
    out.write_line()


def _ask_for_client(out: Terminal) -> str | None:
    """Return the client that the user chooses, or None."""
    if not can_ask_user():
        out.write_line("Register the server with one of them: mcp-sessions install NAME")
        return None
    names = [client.name for client in CLIENTS]
    answer = ask_text("Register the server with which one? (Enter for none)")
    if not answer:
        return None
    if answer not in names:
        raise InvalidInput(f"{answer!r:.80} is not a client{suggest_nearest(answer, names)}")
    out.write_line()
    return answer


def _find_client_state(client: ClientProgram, machine: UserEnvironment, name: str) -> str:
    try:
        entry = config_files.find_entry(client, client.user(machine), name)
    except SessionError:
        return _UNREADABLE
    if config_files.is_our_entry(entry):
        return _REGISTERED
    return _HERE if client.is_installed(machine) else _ABSENT
