"""What an option takes; a value of another kind is a wrong use of the command, said at once.

How the command line is read: an option that has one value is given once.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from mcp_serve.cli.output import print_error
from session_core import InvalidInput

MAX_INTEGER = 2**53


def make_integer_parser(least: int = 0, most: int = MAX_INTEGER) -> Callable[[str], int]:
    """Return what takes a whole number."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r:.80}") from error
        if not least <= found <= most:
            bound = f">= {least}" if found < least else f"<= {most}"
            raise argparse.ArgumentTypeError(f"must be an integer {bound}, got {text:.80}")
        return found

    return read


def parse_amount(text: str) -> float:
    """Return a number that is none below nothing."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number >= 0, got {text!r:.80}")
    return found


def parse_time_option(text: str) -> str:
    """Return a time or an age with its unit: a bare number is days."""
    given = f"{text}d" if text.isdigit() else text
    try:
        # Imported here, since it loads the SDK, which `--help` does not need.
        from mcp_serve.arguments import parse_time  # noqa: PLC0415

        parse_time("it", given, time.time())
    except InvalidInput as error:
        said = str(error).removeprefix(f"it {given!r:.80} ")
        raise argparse.ArgumentTypeError(f"{text!r:.80} {said}") from error
    return given


def parse_text(text: str) -> str:
    """Return a text that says something.

    An empty name of a file is that of this folder, and an empty filter chooses everything: a
    script whose variable is not set means neither.
    """
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def parse_folder(text: str) -> Path:
    """Return a folder that is there."""
    path = Path(parse_text(text)).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"folder not found: {text}")
    return path


def parse_file(text: str) -> Path:
    """Return a file that is there."""
    path = Path(parse_text(text)).expanduser()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"file not found: {text}")
    return path


class StoreOnceAction(argparse.Action):
    """Takes an option that has one value: the second one would silently be the only one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Take it."""
        given = vars(namespace).setdefault("given_once", set())
        if option_string is not None and self.dest in given:
            parser.error(f"argument {option_string}: may be given only once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """Reads a command line in which nothing is given twice but what takes several."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        for name in (None, "store"):
            self.register("action", name, StoreOnceAction)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End with a message, in which what was typed may stand."""
        if message:
            print_error(message, end="")
        sys.exit(status)
