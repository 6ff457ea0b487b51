"""What a verb is about, and how it answers: options that stand before or after it."""

from __future__ import annotations

import argparse
import shlex


def of_homes(parser: argparse.ArgumentParser, *, before: bool = False) -> None:
    """Add which home is meant to a verb, or `before` all verbs: there they have their defaults."""
    nothing = argparse.SUPPRESS
    parser.add_argument(
        "--home", default=None if before else nothing, help="the folder of the home"
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[] if before else nothing,
        help="a profile of it; may be repeated",
    )
    parser.add_argument(
        "--all-profiles",
        action="store_true",
        default=False if before else nothing,
        help="the home and all its profiles",
    )


def of_answers(parser: argparse.ArgumentParser, *, before: bool = False) -> None:
    """Add for whom the answer is."""
    parser.add_argument(
        "--json",
        action="store_true",
        default=False if before else argparse.SUPPRESS,
        help="JSON for a script, with the keys of the tool",
    )


def command(options: argparse.Namespace, *words: str) -> str:
    """Return what to type next about the same home."""
    home = ["--home", options.home] if options.home else []
    profiles = [word for name in options.profile for word in ("--profile", name)]
    return shlex.join(["mcp-sessions", *home, *profiles, *words])
