"""What a verb is about, and how it answers: options that stand before or after it."""

from __future__ import annotations

import argparse
import shlex

from mcp_serve.cli.values import some, whole

_LOADS = ("prune", "compress", "restore", "import")
"""The verbs that take --load-extension, but serve."""


def of_homes(parser: argparse.ArgumentParser, *, before: bool = False) -> None:
    """Add which home is meant to a verb, or `before` all verbs: there they have their defaults."""
    nothing = argparse.SUPPRESS
    parser.set_defaults(of_homes=not before)
    parser.add_argument(
        "--home",
        type=some,
        default=None if before else nothing,
        help="the folder of the home, or its database file, which ends in .db",
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
    parser.set_defaults(of_answers=not before)
    parser.add_argument(
        "--json",
        action="store_true",
        default=False if before else argparse.SUPPRESS,
        help="JSON for a script, with the keys of the tool",
    )


def of_extension(parser: argparse.ArgumentParser) -> None:
    """Add the option that loads the extension of a home."""
    parser.add_argument(
        "--load-extension",
        action="store_true",
        help="load lib/libfts5_cjk.so of the home, which its CJK search index needs",
    )


def refuse_what_says_nothing(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End where an option stands before a verb that does not take it, as it does behind it."""
    for name, takes in (
        ("home", "of_homes"),
        ("profile", "of_homes"),
        ("all_profiles", "of_homes"),
        ("json", "of_answers"),
    ):
        if getattr(options, name) and not getattr(options, takes):
            word = f"--{name.replace('_', '-')}"
            parser.error(f"{options.verb or 'the command alone'} takes no {word}")


def of_pages(parser: argparse.ArgumentParser, limit: int, what: str = "lines") -> None:
    """Add how much of a list is shown, and where that goes on."""
    parser.add_argument(
        "--limit", type=whole(1), metavar="N", default=limit, help=f"how many {what} ({limit})"
    )
    parser.add_argument(
        "--cursor", metavar="NEXT", help="go on behind a page: its next_cursor of --json"
    )
    parser.add_argument(
        "--no-pager", action="store_true", help="never show it in $PAGER, however long it is"
    )


def command(options: argparse.Namespace, *words: str) -> str:
    """Return what to type next about the same home."""
    home = ["--home", options.home] if options.home else []
    profiles = [word for name in options.profile for word in ("--profile", name)]
    loads = getattr(options, "load_extension", False) and words[0] in _LOADS
    extension = ["--load-extension"] if loads else []
    return shlex.join(["mcp-sessions", *home, *profiles, *words, *extension])
