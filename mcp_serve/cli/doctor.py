"""`mcp-sessions doctor`: how the home is, and whether the clients get to it; it changes nothing."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_serve.cli.codes import DONE, FAILED
from mcp_serve.cli.options import of_answers, of_homes
from mcp_serve.cli.screen import GREEN, RED, YELLOW, Screen, columns
from mcp_serve.cli.scripts import print_json
from mcp_serve.cli.values import amount
from mcp_serve.served import Options, Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_serve.cli.checks import Check, State

EXAMPLES = """\
examples:
  mcp-sessions doctor                  how the home is, and what each client gets
  mcp-sessions doctor --all-profiles   every profile of it
  mcp-sessions doctor --json | jq '.checks[] | select(.state != "ok")'
  mcp-sessions doctor --token          the bearer token of serve --http alone
"""

_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✔", GREEN),
    "warning": ("!", YELLOW),
    "failure": ("✘", RED),
}
_ABOUT = 14
_COMMANDS = ("mcp-sessions ", "chmod ")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("--token", action="store_true", help="print the bearer token alone")
    parser.add_argument(
        "--timeout", type=amount, default=30, metavar="S", help="how long a server may take (30)"
    )
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Look at everything; return whether something has failed."""
    served = Served(
        Options(
            home=options.home,
            profiles=options.profile,
            all_profiles=options.all_profiles,
            read_only=True,
        )
    )
    if options.token:
        from mcp_serve.cli.driver import choose_driver  # noqa: PLC0415 -- not for the help
        from mcp_serve.token import token_of  # noqa: PLC0415

        choose_driver()
        token = token_of(served.home().folder)
        served.close()
        if options.json:
            print_json({"token": token})
        else:
            print(token)  # noqa: T201 -- the output of a command
        return DONE
    try:
        checks = _as_json(_all(served, options)) if options.json else _show(_all(served, options))
    finally:
        served.close()
    return FAILED if any(each.state == "failure" for each in checks) else DONE


def _all(served: Served, options: argparse.Namespace) -> Iterator[Check]:
    from mcp_serve.cli import checks, told  # noqa: PLC0415 -- the library and the SDK

    yield from checks.of_homes(served)
    yield checks.of_sqlite()
    knowing: list[told.Told] = []
    yield from told.of_clients(Path.cwd(), knowing)
    homes = [served.path(name) for name in served.names]
    yield from told.of_handshakes(knowing, homes, options.timeout)


def _as_json(checks: Iterator[Check]) -> list[Check]:
    found = list(checks)
    plain = [asdict(each) for each in found]
    plain = [each | each.pop("more") for each in plain]
    print_json({"checks": plain})
    return found


def _show(checks: Iterator[Check]) -> list[Check]:
    """Show each as soon as it is known."""
    screen, found = Screen(sys.stdout), []
    for each in checks:
        mark, colour = _MARKS[each.state]
        head = f"{mark} {each.state:<8}{each.about:<{_ABOUT}} "
        screen.block(head, _short(each.says), style=colour)
        if each.next:
            _advise(screen, " " * len(head) + "-> ", _short(each.next))
        sys.stdout.flush()
        found.append(each)
    screen.line()
    screen.line(_sum(Counter(each.state for each in found)))
    return found


def _advise(screen: Screen, head: str, text: str) -> None:
    """Say what to do next; a command that does not fit beside its head stands whole below."""
    if text.startswith(_COMMANDS) and columns(head + text) > screen.width:
        screen.whole(f"  -> {text}")
    else:
        screen.block(head, text)


def _short(text: str) -> str:
    """Return a text with the folder of the user as people write it."""
    return text.replace(f"{Path.home()}/", "~/")


def _sum(counts: Counter[State]) -> str:
    if counts.keys() == {"ok"}:
        return "Nothing is wrong."
    return f"{counts['failure']} failed, {counts['warning']} to look at."
