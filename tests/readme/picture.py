"""The picture of the README: the output of a command in a pseudo-terminal, as SVG."""

from __future__ import annotations

import html
import re
import shlex
import tempfile
from pathlib import Path

from tests.cli.command_user import PseudoTerminal
from tests.cli.fork_server import build_environment, get_fork_server
from tests.readme import home
from tests.readme.parts import ROOT

PICTURE_PATH = ROOT / "tests" / "readme" / "search.svg"
COMMAND = "mcp-sessions search what did we decide about the schema"

_COLUMNS = 92
_WIDE, _HIGH, _EDGE = 8.4, 20, 18
_STYLE_CLASSES = {"1": "b", "2": "d"}
_SGR_PATTERN = re.compile(r"\x1b\[([0-9;]*)m")
_CSS = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#d6deeb;white-space:pre}.b{font-weight:700;fill:#fff}.d{fill:#8b98a9}.p{fill:#7fdbca}"
)


def draw_picture() -> str:
    """Run the command on the sample home, and return its output as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        home.build_home(Path(folder) / ".hermes")
        return _render_svg(_capture_lines(Path(folder)))


def _capture_lines(user: Path) -> list[str]:
    """Return the styled lines that the terminal shows."""
    words = shlex.split(COMMAND)[1:]
    given = {"env": build_environment(user), "folder": ROOT, "columns": _COLUMNS}
    with PseudoTerminal(get_fork_server(), *words, **given) as terminal:
        if terminal.end():
            raise RuntimeError(terminal.seen)
    return [line.rstrip() for line in terminal.seen.splitlines()]


def _render_svg(lines: list[str]) -> str:
    wide = round(_COLUMNS * _WIDE + 2 * _EDGE)
    shown = [f'<tspan class="p">$</tspan> {html.escape(COMMAND)}', *map(_render_line, lines)]
    high = len(shown) * _HIGH + 2 * _EDGE
    rows = "\n".join(
        f'<text x="{_EDGE}" y="{_EDGE + 14 + _HIGH * number}" xml:space="preserve">{row}</text>'
        for number, row in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}">\n'
        f"<style>{_CSS}</style>\n"
        f'<rect width="{wide}" height="{high}" rx="8" fill="#10151f"/>\n{rows}\n</svg>\n'
    )


def _render_line(line: str) -> str:
    """Return a line of a terminal as SVG."""
    shown, style = "", ""
    for number, part in enumerate(_SGR_PATTERN.split(line)):
        if number % 2:  # odd parts are styles
            style = _STYLE_CLASSES.get(part, "")
        elif part:
            text = html.escape(part)
            shown += f'<tspan class="{style}">{text}</tspan>' if style else text
    return shown
