"""Bar and column charts as text, in block characters or ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

BLOCK_CHARACTERS = "▏▎▍▌▋▊▉█▁▂▃▄▅▆▇│└─"
"""The characters that an encoding must have for block charts."""

_BAR_BLOCKS = "▏▎▍▌▋▊▉█"
_COLUMN_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN_BLOCK = "#"
_BAR_STYLE = "cyan"
_SCALE_STYLE = "dim"

_MAX_BAR_WIDTH = 60
_MAX_COLUMN_WIDTH = 4
_CHART_HEIGHT = 5
_GAP_WIDTH = 2


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One bar with its label and its value as text."""

    label: str
    value: int
    text: str


def draw_bars(bars: Sequence[ChartBar], width: int, *, blocks: bool) -> list[Text]:
    """Return a line for each bar, on a common scale."""
    highest = max((bar.value for bar in bars), default=0)
    text_width = max((cell_len(bar.text) for bar in bars), default=0)
    label = min(max((cell_len(bar.label) for bar in bars), default=0), width // 3)
    room = min(width - label - text_width - 2 * _GAP_WIDTH, _MAX_BAR_WIDTH)
    signs = _BAR_BLOCKS if blocks else _PLAIN_BLOCK
    return [
        Text.assemble(
            set_cell_size(bar.label, label),
            " " * _GAP_WIDTH,
            (_fill_bar(bar.value, highest, room, signs).ljust(room), _BAR_STYLE),
            " " * _GAP_WIDTH,
            bar.text.rjust(text_width),
        )
        for bar in bars
    ]


def draw_columns(
    values: Sequence[int], ends: tuple[str, str], width: int, *, blocks: bool
) -> list[Text]:
    """Return the lines of a column chart with a scale and labels at both ends."""
    highest = max(values, default=0)
    margin = max(len(f"{highest:,}"), 1)
    column_width = min((width - margin - _GAP_WIDTH) // max(len(values), 1), _MAX_COLUMN_WIDTH)
    signs = _COLUMN_BLOCKS if blocks else _PLAIN_BLOCK
    filled = [
        _fill_bar(value, highest, _CHART_HEIGHT, signs).ljust(_CHART_HEIGHT) for value in values
    ]
    side, corner, line = ("│", "└", "─") if blocks else ("|", "+", "-")
    lines = []
    for row in reversed(range(_CHART_HEIGHT)):
        scale = f"{highest:,}" if row == _CHART_HEIGHT - 1 else ""
        body = "".join(
            (cells[row] * max(column_width - 1, 1)).ljust(column_width) for cells in filled
        )
        lines.append(
            Text.assemble((f"{scale:>{margin}} {side}", _SCALE_STYLE), (body.rstrip(), _BAR_STYLE))
        )
    across = column_width * len(values)
    lines.append(Text(f"{0:>{margin}} {corner}{line * across}", _SCALE_STYLE))
    first, last = ends
    labels = first + last.rjust(across - len(first))
    lines.append(Text(" " * (margin + _GAP_WIDTH) + labels, _SCALE_STYLE))
    return lines


def _fill_bar(value: int, highest: int, room: int, signs: str) -> str:
    """Return a bar proportional to a value, of at least one block for a positive value."""
    if value <= 0 or highest <= 0:
        return ""
    parts = max(round(value / highest * room * len(signs)), 1)
    whole, rest = divmod(parts, len(signs))
    return signs[-1] * whole + (signs[rest - 1] if rest else "")
