"""What a person reads: tables and texts that fit a terminal, styled only where it is one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, TextIO

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mcp_serve.cli.output import clean
from mcp_serve.cli.screen import ago, ahead, fit

_FILE_COLUMNS = 240
"""How wide a table is that goes into a file or a pipe: nothing in it is cut."""

_NARROW = 72
_GAP = 2
_LEAST, _LONG = 12, 24


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; those that yield are as wide as there is room."""

    head: str
    yields: bool = False
    """Whether it is cut where there is no room."""
    wraps: bool = False
    """Whether it goes on in the next line there."""
    right: bool = False
    wide_only: bool = False
    """Whether it is left out of a narrow terminal."""
    copied: bool = False
    """Whether somebody types it again: where there is no room it has a line of its own, whole."""


class Console(RichConsole):
    """Leaves it to the command to say how that ends whose output nobody reads any more."""

    def on_broken_pipe(self) -> NoReturn:
        """End no process from in here."""
        raise BrokenPipeError


class Terminal:
    """Writes to a stream."""

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else _FILE_COLUMNS
        self._console = Console(
            file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, bare: bool = False
    ) -> None:
        """Write a table, `bare` of heads; those give way that yield or wrap, then those copied."""
        rows = [[clean(cell) for cell in row] for row in rows]
        narrow = self._console.width < _NARROW
        kept = [at for at, each in enumerate(columns) if not (narrow and each.wide_only)]
        widths = _widths(columns, kept, rows, self._console.width)
        if _taken(widths) <= self._console.width:
            self._rows(_table(columns, widths, rows, bare=bare))
            return
        below = [at for at in kept if columns[at].copied]
        beside = [at for at in kept if at not in below]
        widths = _widths(columns, beside, rows, self._console.width)
        _narrow(widths, {at: _LEAST for at in beside if columns[at].wraps}, self._console.width)
        label = max((len(columns[at].head) for at in below), default=0)
        for number, row in enumerate(rows):
            self._rows(_table(columns, widths, [row], bare=bare or number > 0))
            for at in below:
                head = columns[at].head.ljust(label)
                if row[at]:
                    text = Text.assemble(("  " + head + "  ", "dim"), row[at])
                    self._print(text, soft_wrap=True)

    def _rows(self, table: Table) -> None:
        """Write the lines of a table, none of which ends in blanks."""
        for line in self._console.render_lines(table, pad=False):
            text = Text.assemble(*((part.text, part.style or "") for part in line))
            text.rstrip()
            self._print(text, soft_wrap=True)

    def _print(self, text: Text, *, margin: int = 0, **options: Any) -> None:
        """Print a text once it is clean; what is not clean yet loses its style."""
        plain = clean(text.plain)
        kept = text if plain == text.plain else Text(plain, no_wrap=text.no_wrap)
        shown = Padding(kept, (0, 0, 0, margin), expand=False) if margin else kept
        self._console.print(shown, **options)

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line, or as many as it takes."""
        self._print(Text(clean(text), style=style))

    def short(self, text: str) -> None:
        """Write as much of a text as fits a line, moved in a little."""
        cut = Text(clean(" ".join(text.split())), no_wrap=True, overflow="ellipsis")
        self._print(cut, margin=2)

    def whole(self, text: str) -> None:
        """Write a line that is to be copied: the terminal breaks it, where it has to be."""
        self._print(Text(clean(text)), soft_wrap=True)

    def hint(self, text: str) -> None:
        """Say to a person what could be done next; a script is not told."""
        if self._console.is_terminal:
            self.line(text, "dim")

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._console.width

    def can_write(self, text: str) -> bool:
        """Whether its encoding has all of these characters."""
        try:
            text.encode(self._console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def lines(self, lines: Iterable[Text]) -> None:
        """Write lines that were made to fit."""
        for line in lines:
            self._print(line, no_wrap=True, overflow="ellipsis")

    def cut(self, text: str) -> None:
        """Write a line as far as it fits; a file or a pipe has all of it."""
        text = clean(text)
        if self._console.is_terminal:
            text = fit(text, self._console.width)
        self._print(Text(text), soft_wrap=True)

    def text(self, text: str, style: str = "") -> None:
        """Write a text, moved in a little."""
        self._print(Text(clean(text), style=style), margin=2)


def _table(
    columns: Sequence[Column],
    widths: Mapping[int, int],
    rows: Sequence[Sequence[str]],
    *,
    bare: bool,
) -> Table:
    """Return those columns that have a width."""
    table = Table(
        box=None,
        pad_edge=False,
        show_header=not bare,
        header_style="dim",
        padding=(0, _GAP, 0, 0),
    )
    for at, width in widths.items():
        column = columns[at]
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
            width=width,
            style="bold" if column.yields else "",
        )
    for row in rows:
        table.add_row(*(Text(row[at]) for at in widths))
    return table


def _taken(widths: Mapping[int, int]) -> int:
    """Return how wide a table of these columns is."""
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _widths(
    columns: Sequence[Column], kept: Sequence[int], rows: Sequence[Sequence[str]], room: int
) -> dict[int, int]:
    """Return how wide each column is; of those that give way the widest does so first."""
    widths = {at: _widest(columns[at].head, rows, at) for at in kept}
    giving = [at for at in kept if columns[at].yields or columns[at].wraps]
    least = {at: _LEAST if columns[at].yields else _longest_word(rows, at) for at in giving}
    _narrow(widths, least, room)
    return widths


def _narrow(widths: dict[int, int], least: Mapping[int, int], room: int) -> None:
    """Take from the widest column, as long as it is not as narrow as it may be."""
    for _ in range(_taken(widths) - room):
        still = [at for at in least if widths[at] > least[at]]
        if not still:
            break
        widths[max(still, key=lambda at: widths[at])] -= 1


def _longest_word(rows: Sequence[Sequence[str]], at: int) -> int:
    """Return how narrow a column may be that wraps: an id in it stays in one line, mostly."""
    longest = max((cell_len(word) for row in rows for word in row[at].split()), default=0)
    return min(max(longest, _LEAST), _LONG)


def _widest(head: str, rows: Sequence[Sequence[str]], at: int) -> int:
    return max(map(cell_len, (head, *(row[at] for row in rows))))


def since(moment: str | None) -> str:
    """Return how long ago a time of an answer was."""
    return "?" if moment is None else ago(time.time() - _timestamp(moment))


def until(moment: str | None) -> str:
    """Return in how long a time of an answer is."""
    if moment is None:
        return "?"
    left = _timestamp(moment) - time.time()
    return f"in {ahead(left)}" if left > 0 else "expired"


def _timestamp(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def local(moment: str | None) -> str:
    """Return a time of an answer as the clock on the wall shows it."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%Y-%m-%d %H:%M")


def clock(moment: str | None) -> str:
    """Return the time of day of an answer as the clock on the wall shows it."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%H:%M:%S")
