"""Output for a person: text and tables that fit the terminal.

Styles are written only if the stream is a terminal. Output into a file or a pipe is not cut.
Text is measured, cut and wrapped by its width in columns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn, TextIO

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console as RichConsole
from rich.filesize import decimal
from rich.text import Text

from mcp_serve.cli.output import clean_text, escape_line

_FILE_WIDTH = 240
"""The width for a file or a pipe, wide enough that nothing is cut."""

_GAP_WIDTH = 2
_LEAST, _COMFORTABLE, _LONG = 12, 24, 24
_MARGIN = 2
_HIGHLIGHT_STYLE = "bold yellow"
_COUNT_UNITS = ((1e9, "billion"), (1e6, "million"))
_TIME_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))

ELLIPSIS = "…"

_LEAST_ROOM = 8
"""The narrowest column that text is wrapped to."""

# Scripts without blanks between words: each character may begin a line.
_UNSPACED = (
    "\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff60"
    "\U00020000-\U0003fffd"
)
_TOKEN_PATTERN = re.compile(rf"\s*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)")
_BREAK_PATTERN = re.compile(r".*[/\\_.,:;=&?-]")
"""The part of a long word after which it may be broken, such as a folder of a path."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and its behaviour if the table is too wide."""

    head: str
    yields: bool = False
    """Cut the cells."""
    wraps: bool = False
    """Wrap the cells."""
    right: bool = False
    optional: int = 0
    """Leave the column out if it is empty or if there is no room; the greatest number first."""
    copied: bool = False
    """Show the cell uncut, on a line of its own if needed, since the user copies it."""


class RaisingConsole(RichConsole):
    """A console that raises an error for a closed pipe, which the command handles."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error instead of exiting."""
        raise BrokenPipeError


class Terminal:
    """A writer of tables and text to a stream.

    `file_width` is the width without a terminal.
    """

    def __init__(self, stream: TextIO, *, file_width: int = _FILE_WIDTH) -> None:
        width = None if stream.isatty() else file_width
        self._console = RaisingConsole(
            file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    @property
    def width(self) -> int:
        """The width in columns."""
        return self._console.width

    def can_encode(self, text: str) -> bool:
        """Return True if the encoding has all of these characters."""
        try:
            text.encode(self._console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def write_line(self, text: str = "", style: str = "") -> None:
        """Write a wrapped text."""
        for line in wrap_text(clean_text(text), self.width):
            self._print_line(Text(line, style))

    def write_text(
        self, text: str, style: str = "", *, marked: re.Pattern[str] | None = None
    ) -> None:
        """Write an indented text, with matches of `marked` highlighted."""
        for line in wrap_text(clean_text(text), self.width - _MARGIN):
            styled = Text(line, style)
            if marked is not None:
                styled.highlight_regex(marked, _HIGHLIGHT_STYLE)
            self._print_line(Text.assemble(" " * _MARGIN, styled) if line else styled)

    def write_block(
        self, head: str, text: str, *, lines: int | None = None, style: str = ""
    ) -> None:
        """Write a text next to its head, wrapped below itself, in at most `lines` lines."""
        head, text = clean_text(head), clean_text(" ".join(text.split()))
        room, indent = self.width - measure_width(head), " " * measure_width(head)
        lines_shown = wrap_line(text, room)
        if lines is not None and len(lines_shown) > lines:
            rest = text[sum(len(line) for line in lines_shown[: lines - 1]) :].lstrip()
            lines_shown = [*lines_shown[: lines - 1], truncate_text(rest, room)]
        for number, line in enumerate(lines_shown):
            before = (head, style) if number == 0 else indent
            self._print_line(Text.assemble(before, line))

    def write_unwrapped(self, text: str, style: str = "") -> None:
        """Write a line that the user copies, and that only the terminal wraps."""
        self._print_line(Text(clean_text(text), style))

    def write_unredacted(self, text: str) -> None:
        """Write a line without redaction, for a token that the user needs."""
        self._print_line(Text(text))

    def write_truncated(self, text: str, style: str = "") -> None:
        """Write a line, cut to the width on a terminal only."""
        text = clean_text(text)
        if self._console.is_terminal:
            text = truncate_text(text, self.width)
        self._print_line(Text(text, style))

    def write_hint(self, text: str) -> None:
        """Write a dim hint, only if the stream is a terminal."""
        if self._console.is_terminal:
            self.write_line(text, "dim")

    def write_heading(self, text: str, right: str = "") -> None:
        """Write an empty line and a bold title, with a text at the right margin."""
        self.write_line()
        self.write_both_sides(text, right, style="bold")

    def write_both_sides(self, left: str, right: str, *, style: str = "") -> None:
        """Write a wrapped text at the left and a short text at the right margin."""
        left, right = clean_text(left), clean_text(right)
        first, rest = split_first_line(left, self.width - measure_width(right) - _GAP_WIDTH)
        gap = " " * (self.width - measure_width(first) - measure_width(right))
        self._print_line(Text.assemble((first, style), gap if right else "", (right, "dim")))
        if rest:
            self.write_block("  ", rest)

    def write_lines(self, lines: Iterable[Text]) -> None:
        """Write lines that already fit."""
        for line in lines:
            plain = clean_text(line.plain)
            # The styles of a line that was cleaned would be at wrong offsets.
            self._print_line(line if plain == line.plain else Text(plain))

    def write_table(
        self, columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], *, bare: bool = False
    ) -> None:
        """Write a table, without heads if `bare`.

        Copied columns get their own lines last.
        """
        rows = [[escape_line(clean_text(cell)) for cell in row] for row in rows]
        kept = _choose_columns(columns, rows, self.width)
        widths = _measure_columns(columns, kept, rows, self.width)
        if _measure_table(widths) <= self.width:
            self._print_rows(columns, widths, rows, bare=bare)
            return
        below = [at for at in kept if columns[at].copied]
        beside = [at for at in kept if at not in below]
        widths = _measure_columns(columns, beside, rows, self.width)
        _narrow_columns(widths, {at: _LEAST for at in beside if columns[at].wraps}, self.width)
        label = max((len(columns[at].head) for at in below), default=0)
        for number, row in enumerate(rows):
            self._print_rows(columns, widths, [row], bare=bare or number > 0)
            for at in below:
                if row[at]:
                    head = columns[at].head.ljust(label)
                    self._print_line(Text.assemble(("  " + head + "  ", "dim"), row[at]))

    def _print_rows(
        self,
        columns: Sequence[TableColumn],
        widths: Mapping[int, int],
        rows: Sequence[Sequence[str]],
        *,
        bare: bool,
    ) -> None:
        """Write the heads, unless `bare`, and rows of the columns that have a width."""
        if not bare:
            heads = (_align_cell(columns[at], columns[at].head, widths[at]) for at in widths)
            self._print_line(Text((" " * _GAP_WIDTH).join(heads), "dim"))
        for row in rows:
            cells = [_fit_cell(columns[at], row[at], width) for at, width in widths.items()]
            for number in range(max(map(len, cells), default=0)):
                parts: list[str | tuple[str, str]] = []
                for at, lines in zip(widths, cells, strict=True):
                    line = lines[number] if number < len(lines) else ""
                    style = "bold" if columns[at].yields else ""
                    parts += [(_align_cell(columns[at], line, widths[at]), style), " " * _GAP_WIDTH]
                self._print_line(Text.assemble(*parts))

    def _print_line(self, text: Text) -> None:
        """Write a line as it is, without trailing blanks."""
        text.rstrip()
        # The text is wrapped already, and rich would break a line that the user copies.
        self._console.print(text, soft_wrap=True)


def _fit_cell(column: TableColumn, cell: str, width: int) -> list[str]:
    """Return the lines of a cell."""
    if column.wraps:
        return wrap_line(cell, width)
    return [truncate_text(cell, width)]


def _align_cell(column: TableColumn, text: str, width: int) -> str:
    gap = " " * (width - measure_width(text))
    return gap + text if column.right else text + gap


def _choose_columns(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], room: int
) -> list[int]:
    """Return the columns to show: optional columns only if they are not empty and fit."""
    indexes = [
        at
        for at, column in enumerate(columns)
        if not column.optional or any(row[at].strip() for row in rows)
    ]
    # A column that is left out is better than several that are cut to a few letters.
    widths = _measure_columns(columns, indexes, rows, 0, least=_COMFORTABLE)
    while _measure_table(widths) > room and any(columns[at].optional for at in widths):
        del widths[max(widths, key=lambda at: columns[at].optional)]
    return list(widths)


def _measure_table(widths: Mapping[int, int]) -> int:
    """Return the width of a table of these columns."""
    return sum(widths.values()) + _GAP_WIDTH * (len(widths) - 1)


def _measure_columns(
    columns: Sequence[TableColumn],
    kept: Sequence[int],
    rows: Sequence[Sequence[str]],
    room: int,
    least: int = _LEAST,
) -> dict[int, int]:
    """Return the width of each column.

    The widest flexible column shrinks first.
    """
    widths = {at: _measure_column(columns[at].head, rows, at) for at in kept}
    giving = [at for at in kept if columns[at].yields or columns[at].wraps]
    lowest = {
        at: least if columns[at].yields else _measure_minimum_width(rows, at) for at in giving
    }
    _narrow_columns(widths, lowest, room)
    return widths


def _narrow_columns(widths: dict[int, int], least: Mapping[int, int], room: int) -> None:
    """Shrink the widest columns down to their minimum until the table fits."""
    for _ in range(_measure_table(widths) - room):
        shrinkable = [at for at in least if widths[at] > least[at]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda at: widths[at])] -= 1


def _measure_minimum_width(rows: Sequence[Sequence[str]], at: int) -> int:
    """Return the least width of a wrapping column, in which most ids stay on one line."""
    longest = max((measure_width(word) for row in rows for word in row[at].split()), default=0)
    return min(max(longest, _LEAST), _LONG)


def _measure_column(head: str, rows: Sequence[Sequence[str]], at: int) -> int:
    return max(map(measure_width, (head, *(row[at] for row in rows))))


def format_bytes(size: int) -> str:
    """Return a size in bytes, kB, MB or GB, with decimal prefixes."""
    return decimal(size)


def format_count(count: int) -> str:
    """Return a number of tokens, rounded to three digits if it is large."""
    for size, name in _COUNT_UNITS:
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,}"


def format_number(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural if need be."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_elapsed(seconds: float) -> str:
    """Return an age as text, such as `3 d`."""
    for size, unit in _TIME_UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def format_remaining(seconds: float) -> str:
    """Return a remaining time as text, rounded to the nearest unit."""
    unit = next((size for size, _ in _TIME_UNITS if seconds >= size), 0)
    # Half a unit more, since an age is rounded down.
    return format_elapsed(seconds + unit / 2)


def format_milliseconds(seconds: float) -> str:
    """Return a duration in milliseconds as text."""
    return f"{seconds * 1000:,.1f} ms"


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


def measure_width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return cell_len(text)


def truncate_text(text: str, room: int) -> str:
    """Return the text, cut to the width with an ellipsis."""
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, max(room - 1, 0)).rstrip() + ELLIPSIS


def wrap_line(line: str, room: int) -> list[str]:
    """Return the lines of a text, wrapped between words.

    The text has no line ends. A word is broken only if it does not fit on a line of its own.
    """
    room = max(room, _LEAST_ROOM)
    lines, current, width = [], "", 0
    for match in _TOKEN_PATTERN.finditer(line.expandtabs()):
        token = match[0]
        if current and width + cell_len(token) > room:
            lines.append(current)
            token, current, width = token.lstrip(), "", 0
        while cell_len(token) > room:
            head = _take_word_beginning(token, room)
            lines.append(head)
            token = token[len(head) :]
        current += token
        width += cell_len(token)
    return [*lines, current]


def wrap_text(text: str, room: int) -> Iterator[str]:
    """Yield the wrapped lines of each line of a text."""
    for line in text.split("\n"):
        yield from wrap_line(line.rstrip(), room)


def split_first_line(text: str, room: int) -> tuple[str, str]:
    """Return the words of a text that fit on the first line, and the rest."""
    first = wrap_line(text, room)[0]
    return first, text[len(first) :].lstrip()


def _take_word_beginning(word: str, room: int) -> str:
    """Return the beginning of a word that fits, if possible up to a mark between its parts."""
    head: str = chop_cells(word, room)[0]
    at_mark = _BREAK_PATTERN.match(head)
    return at_mark[0] if at_mark and cell_len(at_mark[0]) > room // 2 else head
