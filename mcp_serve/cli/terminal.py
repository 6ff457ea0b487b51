"""Tables and texts fitted to a terminal; styles only if the stream is a terminal."""

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
"""The width for a file or a pipe, wide enough that nothing is cut."""

_NARROW_WIDTH = 72
_GAP_WIDTH = 2
_LEAST, _LONG = 12, 24


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table and its behaviour if the table is too wide."""

    head: str
    yields: bool = False
    """Cut the cells."""
    wraps: bool = False
    """Wrap the cells."""
    right: bool = False
    wide_only: bool = False
    """Omit the column on a narrow terminal."""
    copied: bool = False
    """Show the cell uncut, on a line of its own if needed, since the user copies it."""


class RaisingConsole(RichConsole):
    """A console that raises an error for a closed pipe, which the command handles."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error instead of exiting."""
        raise BrokenPipeError


class Terminal:
    """A writer of tables and text to a stream."""

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() else _FILE_WIDTH
        self._console = RaisingConsole(
            file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def write_table(
        self, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, bare: bool = False
    ) -> None:
        """Write a table, without heads if `bare`; copied columns get their own lines last."""
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
        """Write the lines of a table without trailing blanks."""
        for line in self._console.render_lines(table, pad=False):
            text = Text.assemble(*((part.text, part.style or "") for part in line))
            text.rstrip()
            self._print_text(text, soft_wrap=True)

    def _print_text(self, text: Text, *, margin: int = 0, **options: Any) -> None:
        """Print a text after cleaning; a text that cleaning changes loses its style."""
        plain = clean_text(text.plain)
        kept = text if plain == text.plain else Text(plain, no_wrap=text.no_wrap)
        shown = Padding(kept, (0, 0, 0, margin), expand=False) if margin else kept
        self._console.print(shown, **options)

    def write_line(self, text: str = "", style: str = "") -> None:
        """Write a wrapped line."""
        self._print_text(Text(clean_text(text), style=style))

    def write_shortened(self, text: str) -> None:
        """Write one indented line, cut to the width."""
        cut = Text(clean_text(" ".join(text.split())), no_wrap=True, overflow="ellipsis")
        self._print_text(cut, margin=2)

    def write_unwrapped(self, text: str) -> None:
        """Write a line that the user copies; only the terminal wraps it."""
        self._print_text(Text(clean_text(text)), soft_wrap=True)

    def write_hint(self, text: str) -> None:
        """Write a dim hint, only if the stream is a terminal."""
        if self._console.is_terminal:
            self.write_line(text, "dim")

    @property
    def width(self) -> int:
        """The width in columns."""
        return self._console.width

    def can_write(self, text: str) -> bool:
        """Return True if the encoding has all of these characters."""
        try:
            text.encode(self._console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def write_lines(self, lines: Iterable[Text]) -> None:
        """Write lines that already fit."""
        for line in lines:
            self._print_text(line, no_wrap=True, overflow="ellipsis")

    def write_truncated(self, text: str) -> None:
        """Write a line, cut to the width on a terminal only."""
        text = clean_text(text)
        if self._console.is_terminal:
            text = truncate_text(text, self._console.width)
        self._print_text(Text(text), soft_wrap=True)

    def write_text(self, text: str, style: str = "") -> None:
        """Write an indented text."""
        self._print_text(Text(clean_text(text), style=style), margin=2)


def _build_table(
    columns: Sequence[TableColumn],
    widths: Mapping[int, int],
    rows: Sequence[Sequence[str]],
    *,
    bare: bool,
) -> Table:
    """Return a table of the columns that have a width."""
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
    """Return the width of a table of these columns."""
    return sum(widths.values()) + _GAP_WIDTH * (len(widths) - 1)


def _measure_columns(
    columns: Sequence[TableColumn], kept: Sequence[int], rows: Sequence[Sequence[str]], room: int
) -> dict[int, int]:
    """Return the width of each column; the widest flexible column shrinks first."""
    widths = {at: _measure_column(columns[at].head, rows, at) for at in kept}
    giving = [at for at in kept if columns[at].yields or columns[at].wraps]
    least = {at: _LEAST if columns[at].yields else _measure_longest_word(rows, at) for at in giving}
    _narrow_columns(widths, least, room)
    return widths


def _narrow_columns(widths: dict[int, int], least: Mapping[int, int], room: int) -> None:
    """Shrink the widest columns down to their minimum until the table fits."""
    for _ in range(_measure_table(widths) - room):
        shrinkable = [at for at in least if widths[at] > least[at]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda at: widths[at])] -= 1


def _measure_longest_word(rows: Sequence[Sequence[str]], at: int) -> int:
    """Return the least width of a wrapping column; an id usually stays on one line."""
    longest = max((cell_len(word) for row in rows for word in row[at].split()), default=0)
    return min(max(longest, _LEAST), _LONG)


def _measure_column(head: str, rows: Sequence[Sequence[str]], at: int) -> int:
    return max(map(cell_len, (head, *(row[at] for row in rows))))


def format_age(moment: str | None) -> str:
    """Return the age of a timestamp."""
    return "?" if moment is None else format_elapsed(time.time() - _parse_timestamp(moment))


def format_time_left(moment: str | None) -> str:
    """Return the time left until a timestamp."""
    if moment is None:
        return "?"
    seconds = _parse_timestamp(moment) - time.time()
    return f"in {format_remaining(seconds)}" if seconds > 0 else "expired"


def _parse_timestamp(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def format_local_time(moment: str | None) -> str:
    """Return a timestamp in local time, to the minute."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%Y-%m-%d %H:%M")


def format_clock_time(moment: str | None) -> str:
    """Return the local time of day of a timestamp."""
    if moment is None:
        return "?"
    at = datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone()
    return at.strftime("%H:%M:%S")
