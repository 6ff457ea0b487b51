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

from mcp_serve.cli.output import clean_text
from mcp_serve.cli.screen import format_elapsed, format_remaining, truncate_text

_FILE_WIDTH = 240
"""How wide a table is that goes into a file or a pipe: nothing in it is cut."""

_NARROW_WIDTH = 72
_GAP_WIDTH = 2
_LEAST, _LONG = 12, 24


@dataclass(frozen=True, slots=True)
class TableColumn:
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


class RaisingConsole(RichConsole):
    """Leaves it to the command to say how that ends whose output nobody reads any more."""

    def on_broken_pipe(self) -> NoReturn:
        """End no process from in here."""
        raise BrokenPipeError


class Terminal:
    """Writes to a stream."""

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else _FILE_WIDTH
        self._console = RaisingConsole(
            file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def write_table(
        self, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, bare: bool = False
    ) -> None:
        """Write a table, `bare` of heads; those give way that yield or wrap, then those copied."""
        rows = [[clean_text(cell) for cell in row] for row in rows]
        narrow = self._console.width < _NARROW_WIDTH
        kept = [at for at, each in enumerate(columns) if not (narrow and each.wide_only)]
        widths = _measure_columns(columns, kept, rows, self._console.width)
        if _measure_table(widths) <= self._console.width:
            self._write_rows(_build_table(columns, widths, rows, bare=bare))
            return
        below = [at for at in kept if columns[at].copied]
        beside = [at for at in kept if at not in below]
        widths = _measure_columns(columns, beside, rows, self._console.width)
        _narrow_columns(
            widths, {at: _LEAST for at in beside if columns[at].wraps}, self._console.width
        )
        label = max((len(columns[at].head) for at in below), default=0)
        for number, row in enumerate(rows):
            self._write_rows(_build_table(columns, widths, [row], bare=bare or number > 0))
            for at in below:
                head = columns[at].head.ljust(label)
                if row[at]:
                    text = Text.assemble(("  " + head + "  ", "dim"), row[at])
                    self._print_text(text, soft_wrap=True)

    def _write_rows(self, table: Table) -> None:
        """Write the lines of a table, none of which ends in blanks."""
        for line in self._console.render_lines(table, pad=False):
            text = Text.assemble(*((part.text, part.style or "") for part in line))
            text.rstrip()
            self._print_text(text, soft_wrap=True)

    def _print_text(self, text: Text, *, margin: int = 0, **options: Any) -> None:
        """Print a text once it is clean; what is not clean yet loses its style."""
        plain = clean_text(text.plain)
        kept = text if plain == text.plain else Text(plain, no_wrap=text.no_wrap)
        shown = Padding(kept, (0, 0, 0, margin), expand=False) if margin else kept
        self._console.print(shown, **options)

    def write_line(self, text: str = "", style: str = "") -> None:
        """Write a line, or as many as it takes."""
        self._print_text(Text(clean_text(text), style=style))

    def write_shortened(self, text: str) -> None:
        """Write as much of a text as fits a line, moved in a little."""
        cut = Text(clean_text(" ".join(text.split())), no_wrap=True, overflow="ellipsis")
        self._print_text(cut, margin=2)

    def write_unwrapped(self, text: str) -> None:
        """Write a line that is to be copied: the terminal breaks it, where it has to be."""
        self._print_text(Text(clean_text(text)), soft_wrap=True)

    def write_hint(self, text: str) -> None:
        """Say to a person what could be done next; a script is not told."""
        if self._console.is_terminal:
            self.write_line(text, "dim")

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

    def write_lines(self, lines: Iterable[Text]) -> None:
        """Write lines that were made to fit."""
        for line in lines:
            self._print_text(line, no_wrap=True, overflow="ellipsis")

    def write_truncated(self, text: str) -> None:
        """Write a line as far as it fits; a file or a pipe has all of it."""
        text = clean_text(text)
        if self._console.is_terminal:
            text = truncate_text(text, self._console.width)
        self._print_text(Text(text), soft_wrap=True)

    def write_text(self, text: str, style: str = "") -> None:
        """Write a text, moved in a little."""
        self._print_text(Text(clean_text(text), style=style), margin=2)


def _build_table(
    columns: Sequence[TableColumn],
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
        padding=(0, _GAP_WIDTH, 0, 0),
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


def _measure_table(widths: Mapping[int, int]) -> int:
    """Return how wide a table of these columns is."""
    return sum(widths.values()) + _GAP_WIDTH * (len(widths) - 1)


def _measure_columns(
    columns: Sequence[TableColumn], kept: Sequence[int], rows: Sequence[Sequence[str]], room: int
) -> dict[int, int]:
    """Return how wide each column is; of those that give way the widest does so first."""
    widths = {at: _measure_column(columns[at].head, rows, at) for at in kept}
    giving = [at for at in kept if columns[at].yields or columns[at].wraps]
    least = {at: _LEAST if columns[at].yields else _measure_longest_word(rows, at) for at in giving}
    _narrow_columns(widths, least, room)
    return widths


def _narrow_columns(widths: dict[int, int], least: Mapping[int, int], room: int) -> None:
    """Take from the widest column, as long as it is not as narrow as it may be."""
    for _ in range(_measure_table(widths) - room):
        still = [at for at in least if widths[at] > least[at]]
        if not still:
            break
        widths[max(still, key=lambda at: widths[at])] -= 1


def _measure_longest_word(rows: Sequence[Sequence[str]], at: int) -> int:
    """Return how narrow a column may be that wraps: an id in it stays in one line, mostly."""
    longest = max((cell_len(word) for row in rows for word in row[at].split()), default=0)
    return min(max(longest, _LEAST), _LONG)


def _measure_column(head: str, rows: Sequence[Sequence[str]], at: int) -> int:
    return max(map(cell_len, (head, *(row[at] for row in rows))))


def format_age(moment: str | None) -> str:
    """Return how long ago a time of an answer was."""
    return "?" if moment is None else format_elapsed(time.time() - _parse_timestamp(moment))


def format_time_left(moment: str | None) -> str:
    """Return in how long a time of an answer is."""
    if moment is None:
        return "?"
    left = _parse_timestamp(moment) - time.time()
    return f"in {format_remaining(left)}" if left > 0 else "expired"


def _parse_timestamp(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def format_local_time(moment: str | None) -> str:
    """Return a time of an answer as the clock on the wall shows it."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%Y-%m-%d %H:%M")


def format_clock_time(moment: str | None) -> str:
    """Return the time of day of an answer as the clock on the wall shows it."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%H:%M:%S")
