"""`mcp-sessions doctor`: check the home and every configured client, without changing anything."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from mcp_serve.cli.argument_parser import parse_amount
from mcp_serve.cli.client_checks import ConfiguredClient, check_clients, check_handshakes
from mcp_serve.cli.command_errors import DONE, FAILED, UNKNOWN_ID
from mcp_serve.cli.home_checks import NO_HOME, Check, State, check_homes, check_sqlite
from mcp_serve.cli.options import add_home_options, add_json_option, choose_driver
from mcp_serve.cli.output import print_json
from mcp_serve.cli.terminal import Terminal, measure_width
from mcp_serve.http import auth
from mcp_serve.stores.stores import ServedStores, ServerOptions

EXAMPLES = """\
examples:
  mcp-sessions doctor                  check the home and every configured client
  mcp-sessions doctor --all-profiles   check every profile too
  mcp-sessions doctor --json | jq '.checks[] | select(.state != "ok")'
  mcp-sessions doctor --token          print the bearer token of serve --http
"""

_STATE_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✔", "green"),
    "warning": ("!", "yellow"),
    "failure": ("✘", "red"),
}
_LABEL_WIDTH = 14
_COMMAND_PREFIXES = ("mcp-sessions ", "chmod ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--token", action="store_true", help="print only the bearer token")
    parser.add_argument(
        "--timeout",
        type=parse_amount,
        default=30,
        metavar="S",
        help="seconds to wait for a server (default: 30)",
    )
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run all checks, and return 1 if a check failed or 3 if there is no store."""
    served = ServedStores(
        ServerOptions(
            home=options.home,
            stores=options.store,
            all_profiles=options.all_profiles,
            read_only=True,
        )
    )
    if options.token:
        choose_driver()
        token = auth.load_or_create_token(served.token_folder)
        served.close()
        if options.json:
            print_json({"token": token})
        else:
            print(token)  # noqa: T201 -- the output of a command
        return DONE
    try:
        checks = (
            _print_checks(_run_checks(served, options))
            if options.json
            else _show_checks(_run_checks(served, options))
        )
    finally:
        served.close()
    missing = [check for check in checks if check.more.get("code") == NO_HOME]
    if any(check.state == "failure" and check not in missing for check in checks):
        return FAILED
    return UNKNOWN_ID if missing else DONE


def _run_checks(served: ServedStores, options: argparse.Namespace) -> Iterator[Check]:
    """Yield the checks of the stores, the SQLite library and the clients."""
    yield from check_homes(served)
    yield check_sqlite()
    configured: list[ConfiguredClient] = []
    yield from check_clients(Path.cwd(), configured)
    homes = [str(served.get_place(name)) for name in served.home_names]
    yield from check_handshakes(served, configured, homes, options.timeout)


def _print_checks(checks: Iterator[Check]) -> list[Check]:
    results = list(checks)
    plain = [asdict(check) for check in results]
    plain = [fields | fields.pop("more") for fields in plain]
    print_json({"checks": plain})
    return results


def _show_checks(checks: Iterator[Check]) -> list[Check]:
    """Show each check as soon as it is done."""
    out, results = Terminal(sys.stdout), []
    for check in checks:
        mark, colour = _STATE_MARKS[check.state]
        head = f"{mark} {check.state:<8}{check.about:<{_LABEL_WIDTH}} "
        out.write_block(head, _shorten_home(check.says), style=colour)
        if check.next:
            _show_advice(out, " " * len(head) + "-> ", _shorten_home(check.next))
        sys.stdout.flush()
        results.append(check)
    out.write_line()
    out.write_line(_summarize_counts(Counter(check.state for check in results)))
    return results


def _show_advice(out: Terminal, head: str, text: str) -> None:
    """Show advice.

    A command that does not fit on the line gets a line of its own, uncut.
    """
    if text.startswith(_COMMAND_PREFIXES) and measure_width(head + text) > out.width:
        out.write_unwrapped(f"  -> {text}")
    else:
        out.write_block(head, text)


def _shorten_home(text: str) -> str:
    """Return a text with the home directory written as `~`."""
    return text.replace(f"{Path.home()}/", "~/")


def _summarize_counts(counts: Counter[State]) -> str:
    if counts.keys() == {"ok"}:
        return "No problems found."
    return f"{counts['failure']} failed, {counts['warning']} warnings."
