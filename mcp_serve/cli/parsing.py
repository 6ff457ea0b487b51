"""How the command line is read: an option that has one value is given once."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from mcp_serve.cli.output import print_error


class Once(argparse.Action):
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
            parser.error(f"argument {option_string}: it takes one value, and was given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Reads a command line in which nothing is given twice but what takes several."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        for name in (None, "store"):
            self.register("action", name, Once)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End with a message, in which what was typed may stand."""
        if message:
            print_error(message, end="")
        sys.exit(status)
