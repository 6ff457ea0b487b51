"""Parsers of option values, and the argument parser of the command."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from mcp_serve.cli.output import print_error
from session_core import InvalidInput

MAX_INTEGER = 2**53

_EXCLUDED_WORD = re.compile(r"-(?![a-z]\d+$)[^-\s].")
"""A dash and two characters or more, but not a short option with a number."""


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
    """Return a time or an age.

    A bare number is an age in days.
    """
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
    """Return a time or an age.

    A day is the time of its beginning, since the day itself is not before it.
    """
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
    """Return a folder.

    A folder that begins with a dot is below the current folder.
    """
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
    """An argument parser with short usage errors that suggest the nearest verb, option or value.

    Abbreviated options are refused, and repeated ones unless they collect values.
    """

    takes_query = False
    """Whether the arguments are words of a query, which exclude a word by one dash before it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **more})
        self._positionals.title = "arguments"
        for name in (None, "store"):
            self.register("action", name, StoreOnceAction)

    def parse_known_args(  # type: ignore[override]  # argparse overloads it
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments, or exit with a usage error of this parser if any is unknown."""
        if self.takes_query:
            args = self._move_query_words_last(sys.argv[1:] if args is None else args)
        # The parser of a verb reports its own unknown options; argparse leaves that to the main
        # parser, which knows neither the usage nor the options of the verb.
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._explain_unknown_words(unknown))
        return options, unknown

    def _move_query_words_last(self, words: Sequence[str]) -> list[str]:
        """Return the arguments with all words of the query at the end, so that none is an option.

        Otherwise `-secret` would be the option `-s` with the value `ecret`. So a short option has
        its value in the next argument, except for a number.
        """
        names = {
            name for action in self._actions if action.nargs != 0 for name in action.option_strings
        }
        options, query = list[str](), list[str]()
        for number, word in enumerate(words):
            if word == "--":
                query += words[number + 1 :]
                break
            is_value = number > 0 and words[number - 1] in names
            is_option = word.startswith("-") and not _EXCLUDED_WORD.match(word)
            (options if is_value or is_option else query).append(word)
        return [*options, "--", *query]

    def _explain_unknown_words(self, words: Sequence[str]) -> str:
        """Return the error about words that no option and no argument takes."""
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if option is None:
            return f"unexpected argument {words[0]!r:.80}"
        names = [name for action in self._actions for name in action.option_strings]
        hint = suggest_nearest(option, names)
        if not hint and not option.startswith("--") and self._get_positional_actions():
            hint = "; a word that begins with - comes after --"
        return f"unknown option {option:.80}{hint}"

    def _check_value(self, action: argparse.Action, value: str) -> None:
        """Refuse a value that is not among the choices."""
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- argparse has no public name
            suggestion = suggest_nearest(value, names) or f"; {self.prog} --help lists the verbs"
            raise argparse.ArgumentError(None, f"unknown verb {value!r:.80}{suggestion}")
        suggestion, listed = suggest_nearest(value, names), ", ".join(names)
        raise argparse.ArgumentError(action, f"{value!r:.80} is not one of {listed}{suggestion}")

    def format_usage(self) -> str:
        """Return the usage in one line, without the options that `--help` lists."""
        return f"usage: {self._describe_usage()}\n"

    def format_help(self) -> str:
        """Return the help text, which begins with the usage in one line."""
        self.usage = self._describe_usage().replace("%", "%%")
        try:
            return super().format_help()
        finally:
            self.usage = None

    def _describe_usage(self) -> str:
        """Return the program, its arguments and a word for its options."""
        # With a usage of its own, a parser of verbs would repeat it in the name of each verb.
        arguments = [_describe_argument(action) for action in self._get_positional_actions()]
        return " ".join([self.prog, "[options]", *arguments])

    def error(self, message: str) -> NoReturn:
        """Exit with one line of usage and the message."""
        self.exit(2, f"{self.format_usage()}{self.prog}: {message}\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after printing a message without secrets, since it may quote the command line."""
        if message:
            print_error(message, end="")
        sys.exit(status)


def _describe_argument(action: argparse.Action) -> str:
    """Return an argument with brackets if it may be left out, and dots if it may be repeated."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    forms = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- as above
        return f"{name} ..."
    return forms.get(str(action.nargs), name)


def suggest_nearest(word: str, names: Iterable[str]) -> str:
    """Return a question with the word that was probably meant, or an empty text."""
    names = list(names)
    beginning = [name for name in names if len(word) > len("--") and name.startswith(word)]
    nearest = beginning or difflib.get_close_matches(word, names, 1)
    return f"; did you mean {nearest[0]}?" if nearest else ""
