"""What a person reads: tables and texts that fit a terminal, styled only where it is one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mcp_serve.cli.screen import ago
from mcp_serve.quoting import harmless

_FILE_COLUMNS = 240
"""How wide a table is that goes into a file or a pipe: nothing in it is cut."""

_NARROW = 72
_GAP = 2
_LEAST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; one that `yields` is as wide as there is room."""

    head: str
    yields: bool = False
    right: bool = False
    wide_only: bool = False
    """Whether it is left out of a narrow terminal."""


class Terminal:
    """Writes to a stream."""

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else _FILE_COLUMNS
        self._console = Console(
            file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table; what does not fit is taken from the column that yields."""
        narrow = self._console.width < _NARROW
        kept = [at for at, each in enumerate(columns) if not (narrow and each.wide_only)]
        widths = {at: _widest(columns[at].head, rows, at) for at in kept}
        over = sum(width + _GAP for width in widths.values()) - self._console.width
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
        for at in kept:
            column = columns[at]
            less = max(over, 0) if column.yields else 0
            table.add_column(
                column.head,
                justify="right" if column.right else "left",
                no_wrap=True,
                width=max(widths[at] - less, _LEAST) if less else widths[at],
                style="bold" if column.yields else "",
            )
        for row in rows:
            table.add_row(*(Text(harmless(row[at])) for at in kept))
        self._console.print(table)

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line, or as many as it takes."""
        self._console.print(Text(harmless(text), style=style))

    def hint(self, text: str) -> None:
        """Say to a person what could be done next; a script is not told."""
        if self._console.is_terminal:
            self.line(text, "dim")

    def text(self, text: str, style: str = "") -> None:
        """Write a text, moved in a little."""
        self._console.print(Padding(Text(harmless(text), style=style), (0, 0, 0, 2)))


def _widest(head: str, rows: Sequence[Sequence[str]], at: int) -> int:
    return max(map(cell_len, (head, *(row[at] for row in rows))))


def since(moment: str | None) -> str:
    """Return how long ago a time of an answer was."""
    if moment is None:
        return "?"
    return ago(time.time() - datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp())


def local(moment: str | None) -> str:
    """Return a time of an answer as the clock on the wall shows it."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%Y-%m-%d %H:%M")
