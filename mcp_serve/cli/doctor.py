"""`mcp-sessions doctor`: what is served, and the token of it."""

from __future__ import annotations

import argparse

from mcp_serve.cli.options import of_homes
from mcp_serve.served import Options, Served


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    of_homes(parser)
    parser.add_argument("--token", action="store_true", help="print the bearer token alone")


def run(options: argparse.Namespace) -> int:
    """Print the token, or which home is served by what."""
    from mcp_serve.cli.driver import choose_driver  # noqa: PLC0415 -- not for the help
    from mcp_serve.token import token_of  # noqa: PLC0415

    served = Served(Options(home=options.home, profiles=options.profile))
    path = served.path() / "state.db"
    if options.token:
        print(token_of(path))  # noqa: T201 -- the output of a command
        return 0
    driver = choose_driver()
    print(f"home: {served.path()}\nsqlite: {driver.version} ({driver.name})")  # noqa: T201
    return 0
