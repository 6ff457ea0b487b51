"""Headless Chromium: screenshots of a page and scripts that run in it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

_BROWSER_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_DARK_OPTION = "--blink-settings=preferredColorScheme=0"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNEL_COUNTS = {2: 3, 6: 4}
"""Bytes per pixel by the color type of the picture."""


@dataclass(frozen=True)
class PagePicture:
    """Pixels as lines of bytes. The first three of each are red, green and blue."""

    width: int
    lines: list[bytes]
    channels: int

    @classmethod
    def read_png(cls, path: Path) -> PagePicture:
        """Read a PNG with eight bits per color, as a browser writes it."""
        data = path.read_bytes()
        assert data.startswith(_PNG_SIGNATURE)
        packed, at = b"", len(_PNG_SIGNATURE)
        width = depth = kind = 0
        while at < len(data):
            (size,) = struct.unpack_from(">I", data, at)
            body = data[at + 8 : at + 8 + size]
            if data[at + 4 : at + 8] == b"IHDR":
                width, _, depth, kind = struct.unpack_from(">IIBB", body)
            elif data[at + 4 : at + 8] == b"IDAT":
                packed += body
            at += size + 12
        assert depth == 8
        channels = _CHANNEL_COUNTS[kind]
        return cls(
            width, _undo_filters(zlib.decompress(packed), width * channels, channels), channels
        )

    def get_pixel(self, x: int, y: int) -> tuple[int, int, int]:
        """Return the colour of a pixel."""
        red, green, blue = self.lines[y][x * self.channels :][:3]
        return red, green, blue

    def list_colors(self) -> set[tuple[int, int, int]]:
        """Return all colors of the picture."""
        step = self.channels
        return {
            (line[at], line[at + 1], line[at + 2])
            for line in self.lines
            for at in range(0, len(line), step)
        }


def take_picture(page: Path, folder: Path, *, width: int, height: int, dark: bool) -> PagePicture:
    """Return a screenshot of a page."""
    target = folder / f"{width}-{dark}.png"
    _run_browser(
        page, folder, f"--window-size={width},{height}", f"--screenshot={target}", dark=dark
    )
    return PagePicture.read_png(target)


def read_contents(page: Path, folder: Path, *more: str) -> str:
    """Return the DOM of a page after it was rendered."""
    return _run_browser(page, folder, "--dump-dom", *more)


def _run_browser(page: Path, folder: Path, *more: str, dark: bool = False) -> str:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "apt-get install chromium"
    given = [program, *_BROWSER_OPTIONS, f"--user-data-dir={folder / 'browser'}", *more]
    result = subprocess.run(
        [*given, *([_DARK_OPTION] if dark else []), page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return result.stdout


def _undo_filters(data: bytes, length: int, step: int) -> list[bytes]:
    """Undo the PNG line filters: left, above, average or Paeth."""
    lines: list[bytes] = []
    above = bytes(length)
    for start in range(0, len(data), length + 1):
        line = bytearray(data[start + 1 : start + 1 + length])
        how = data[start]
        for at in range(length) if how else ():
            left = line[at - step] if at >= step else 0
            corner = above[at - step] if at >= step else 0
            line[at] = (line[at] + _predict_byte(how, left, above[at], corner)) & 255
        above = bytes(line)
        lines.append(above)
    return lines


def _predict_byte(how: int, left: int, above: int, corner: int) -> int:
    if how == 4:
        guess = left + above - corner
        return min((left, above, corner), key=lambda each: abs(guess - each))
    return (0, left, above, (left + above) // 2)[how]
