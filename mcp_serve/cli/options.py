"""Options that several verbs share, the SQLite driver, and the verb `completion`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_serve.cli.argument_parser import make_integer_parser, parse_text
from mcp_serve.cli.command_errors import DONE
from session_core import find_home

if TYPE_CHECKING:
    from session_core.types import Driver

_EXTENSION_VERBS = ("prune", "compress", "restore", "import")
"""The verbs that take --load-extension, except `serve`."""


def add_home_options(parser: argparse.ArgumentParser, *, before: bool = False) -> None:
    """Add the options that choose a home.

    `before` adds them with defaults to the main parser.
    """
    # Without a default after the verb, since it would replace the value of an option before it.
    unset = argparse.SUPPRESS
    parser.set_defaults(of_homes=not before)
    parser.add_argument(
        "--home",
        type=parse_text,
        default=None if before else unset,
        help="folder of the home, its database file (ending in .db), or postgresql://… address",
    )
    parser.add_argument(
        "--store",
        action="append",
        default=[] if before else unset,
        metavar="NAME",
        help="only this store: hermes, hermes:PROFILE, own, claude-code, codex…; repeatable",
    )
    parser.add_argument(
        "--all-profiles",
        action="store_true",
        default=False if before else unset,
        help="add all profiles of the Hermes home",
    )


def add_json_option(parser: argparse.ArgumentParser, *, before: bool = False) -> None:
    """Add `--json`.

    `before` adds it with its default to the main parser.
    """
    parser.set_defaults(of_answers=not before)
    parser.add_argument(
        "--json",
        action="store_true",
        default=False if before else argparse.SUPPRESS,
        help="print JSON with the keys of the MCP tool",
    )


def add_extension_option(parser: argparse.ArgumentParser) -> None:
    """Add `--load-extension`."""
    parser.add_argument(
        "--load-extension",
        action="store_true",
        help="load lib/libfts5_cjk.so from the home, required by its CJK search index",
    )


def add_quiet_option(parser: argparse._ActionsContainer) -> None:
    """Add `--quiet`."""
    parser.add_argument(
        *("-q", "--quiet"), action="store_true", help="print nothing but questions and errors"
    )


def refuse_misplaced_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with a usage error if an option before the verb is not an option of the verb."""
    for name, flag in (
        ("home", "of_homes"),
        ("store", "of_homes"),
        ("all_profiles", "of_homes"),
        ("json", "of_answers"),
    ):
        if getattr(options, name) and not getattr(options, flag):
            word = f"--{name.replace('_', '-')}"
            parser.error(f"{options.verb or 'the command without a verb'} does not take {word}")


def add_page_options(parser: argparse.ArgumentParser, limit: int, what: str = "lines") -> None:
    """Add the options that page through a list."""
    parser.add_argument(
        *("-n", "--limit"),
        type=make_integer_parser(1),
        metavar="N",
        default=limit,
        help=f"number of {what} to show (default: {limit})",
    )
    parser.add_argument(
        "--cursor", metavar="NEXT", help="continue after a page: its next_cursor from --json"
    )
    parser.add_argument("--no-pager", action="store_true", help="print directly, without $PAGER")


def format_command(options: argparse.Namespace, *words: str) -> str:
    """Return a command line for the same home, quoted for a shell."""
    home = ["--home", get_home_without_password(options.home)] if options.home else []
    stores = [word for name in options.store for word in ("--store", name)]
    loads = getattr(options, "load_extension", False) and words[0] in _EXTENSION_VERBS
    extension = ["--load-extension"] if loads else []
    return shlex.join(["mcp-sessions", *home, *stores, *words, *extension])


def get_home_without_password(home: str) -> str:
    """Return the option `--home`, without the password of an address."""
    place = find_home(home).place
    return home if isinstance(place, Path) or place.can_be_shown else str(place)


def choose_driver() -> Driver:
    """Choose the bundled SQLite library if it is installed, else the standard one."""
    from session_core import Unsupported, choose_sqlite  # noqa: PLC0415 -- after the first answer

    try:
        return choose_sqlite("bundled")
    except Unsupported:
        return choose_sqlite("standard")


EXAMPLES = """\
Completes verbs, options, their values, files and folders. Ids and sources are
not completed: the script never starts mcp-sessions.

examples:
  eval "$(mcp-sessions completion bash)"                 in this shell only
  mcp-sessions completion bash >> ~/.bashrc              in every new shell
  mcp-sessions completion zsh > ~/.zfunc/_mcp-sessions   a folder in your fpath
  mcp-sessions completion fish > ~/.config/fish/completions/mcp-sessions.fish
"""

_FILE_METAVARS = ("FILE",)
_FOLDER_METAVARS = ("FOLDER", "DIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell to complete in")


def run(options: argparse.Namespace) -> int:
    """Print the completion script."""
    import shtab  # noqa: PLC0415 -- no other verb needs it

    from mcp_serve.cli.main import VERBS, build_parser  # noqa: PLC0415 -- it imports this module

    parser = build_parser(list(VERBS))
    for action in _list_actions(parser):
        metavar = (action.metavar or "").upper() if isinstance(action.metavar, str) else ""
        if action.dest == "home" or metavar in _FOLDER_METAVARS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif metavar in _FILE_METAVARS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, options.shell))
    return DONE


def _list_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the actions of a parser and of its subparsers."""
    actions = []
    for action in parser._actions:  # noqa: SLF001 -- argparse has no public list
        actions.append(action)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- as above
            for verb in action.choices.values():
                actions += _list_actions(verb)
    return actions
