"""Where a page goes: a file that is replaced whole and only by a page, or standard output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mcp_serve.cli.asking import agreed
from mcp_serve.files import write_atomic
from session_core import Denied, InvalidInput

_MODE = 0o600
"""Titles are in it, and what a home is called."""

_ENDS = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or standard output where it is None."""

    path: Path | None

    @classmethod
    def of(cls, given: str) -> Place:
        """Return the place that is meant.

        Raises:
            InvalidInput: a page has another name. What is no page is never replaced, and a database
                is not even opened to see what it is.
        """
        if given == "-":
            return cls(None)
        if not given.lower().endswith(_ENDS):
            raise InvalidInput(f"{given} is no name of a page; it ends in .html")
        return cls(Path(given).expanduser())

    def may_be_written(self, *, yes: bool) -> bool:
        """Ask where something is there already."""
        if self.path is None or not self.path.exists():
            return True
        return agreed(f"{self.path} is there. Replace it?", yes=yes)

    def write(self, text: str) -> None:
        """Write it whole, or not at all.

        Raises:
            Denied: it cannot be written there, or a link leads to a file in another folder.
        """
        if self.path is None:
            sys.stdout.write(text)
            return
        try:
            parts = [text.encode("utf-8", "replace")]
            write_atomic(self.path, parts, prefix=f".{self.path.name}_", mode=_MODE)
        except OSError as error:
            raise Denied(f"{self.path} cannot be written: {error.strerror}") from error
