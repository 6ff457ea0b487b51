"""Small charts of plain lines: bars and columns, in blocks where there are any, else in signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

BLOCKS = "▏▎▍▌▋▊▉█▁▂▃▄▅▆▇│└─"
"""What a stream has to be able to write for the better ones."""

_ACROSS = "▏▎▍▌▋▊▉█"
_UP = "▁▂▃▄▅▆▇█"
_SIGN = "#"
_STYLE = "cyan"
_DIM = "dim"

_LONGEST_BAR = 60
_WIDEST_COLUMN = 4
_HEIGHT = 5
_GAP = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, its label and its value as it is said."""

    label: str
    value: int
    said: str


def bars(given: Sequence[Bar], width: int, *, blocks: bool) -> list[Text]:
    """Return a line for each bar, all on one scale."""
    most = max((each.value for each in given), default=0)
    said = max((cell_len(each.said) for each in given), default=0)
    label = min(max((cell_len(each.label) for each in given), default=0), width // 3)
    room = min(width - label - said - 2 * _GAP, _LONGEST_BAR)
    signs = _ACROSS if blocks else _SIGN
    return [
        Text.assemble(
            set_cell_size(each.label, label),
            " " * _GAP,
            (_filled(each.value, most, room, signs).ljust(room), _STYLE),
            " " * _GAP,
            each.said.rjust(said),
        )
        for each in given
    ]


def columns(
    values: Sequence[int], ends: tuple[str, str], width: int, *, blocks: bool
) -> list[Text]:
    """Return the lines of columns from left to right, with a scale and what the ends stand for."""
    most = max(values, default=0)
    margin = max(len(f"{most:,}"), 1)
    each = min((width - margin - _GAP) // max(len(values), 1), _WIDEST_COLUMN)
    signs = _UP if blocks else _SIGN
    filled = [_filled(value, most, _HEIGHT, signs).ljust(_HEIGHT) for value in values]
    side, corner, line = ("│", "└", "─") if blocks else ("|", "+", "-")
    lines = []
    for row in reversed(range(_HEIGHT)):
        scale = f"{most:,}" if row == _HEIGHT - 1 else ""
        body = "".join((one[row] * max(each - 1, 1)).ljust(each) for one in filled)
        lines.append(Text.assemble((f"{scale:>{margin}} {side}", _DIM), (body.rstrip(), _STYLE)))
    across = each * len(values)
    lines.append(Text(f"{0:>{margin}} {corner}{line * across}", _DIM))
    first, last = ends
    said = first + last.rjust(across - len(first))
    lines.append(Text(" " * (margin + _GAP) + said, _DIM))
    return lines


def _filled(value: int, most: int, room: int, signs: str) -> str:
    """Return as much as a value is of the most; whatever is there is seen."""
    if value <= 0 or most <= 0:
        return ""
    parts = max(round(value / most * room * len(signs)), 1)
    whole, rest = divmod(parts, len(signs))
    return signs[-1] * whole + (signs[rest - 1] if rest else "")
