"""Parsers of option values, and the argument parser of the command."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

from mcp_serve.cli.output import print_error
from session_core import InvalidInput

MAX_INTEGER = 2**53


def make_integer_parser(least: int = 0, most: int = MAX_INTEGER) -> Callable[[str], int]:
    """Return an argparse type for integers in a range."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r:.80}") from error
        if not least <= value <= most:
            bound = f">= {least}" if value < least else f"<= {most}"
            raise argparse.ArgumentTypeError(f"must be an integer {bound}, got {text:.80}")
        return value

    return read


def parse_amount(text: str) -> float:
    """Return a finite number >= 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number >= 0, got {text!r:.80}")
    return value


def parse_time_option(text: str) -> str:
    """Return a time or an age; a bare number is an age in days."""
    value = f"{text}d" if text.isdigit() else text
    try:
        # Imported here, since it loads the SDK, which `--help` does not need.
        from mcp_serve.arguments import parse_time  # noqa: PLC0415

        parse_time("it", value, time.time())
    except InvalidInput as error:
        reason = str(error).removeprefix(f"it {value!r:.80} ")
        raise argparse.ArgumentTypeError(f"{text!r:.80} {reason}") from error
    return value


def parse_before_option(text: str) -> str:
    """Return a time or an age, for a day the time of its beginning, since it is not before it."""
    from mcp_serve.arguments import parse_time  # noqa: PLC0415 -- as above

    value = parse_time_option(text)
    now = time.time()
    begin, end = (parse_time("it", value, now, is_end=is_end) for is_end in (False, True))
    if begin is None or begin == end:
        return value
    return datetime.fromtimestamp(begin, timezone.utc).isoformat()


def parse_text(text: str) -> str:
    """Return a text that is not empty."""
    # A script whose variable is unset passes "". As a path that is the current folder, and as a
    # filter it selects everything; the script meant neither.
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def parse_project(text: str) -> str:
    """Return a folder; one that begins with a dot is below the current folder."""
    return str(Path(text).resolve()) if parse_text(text).startswith(".") else text


def parse_folder(text: str) -> Path:
    """Return the path of an existing folder."""
    path = Path(parse_text(text)).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"folder not found: {text}")
    return path


def parse_file(text: str) -> Path:
    """Return the path of an existing file."""
    path = Path(parse_text(text)).expanduser()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"file not found: {text}")
    return path


class StoreOnceAction(argparse.Action):
    """An action that refuses an option given twice, which argparse would let override itself."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the value, or exit with a usage error if the option was given before."""
        names = vars(namespace).setdefault("given_once", set())
        if option_string is not None and self.dest in names:
            parser.error(f"argument {option_string}: may be given only once")
        names.add(self.dest)
        setattr(namespace, self.dest, values)


class CommandParser(argparse.ArgumentParser):
    """An argument parser that refuses repeated options unless they collect values."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        for name in (None, "store"):
            self.register("action", name, StoreOnceAction)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after printing a message with secrets redacted; it may quote the command line."""
        if message:
            print_error(message, end="")
        sys.exit(status)
