"""Texts from the formats of `retention_formats*.txt`: templates with slots, filled by a seed."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import Literal, get_args

SectionLines = dict[str, list[str]]
FixtureName = Literal["working", "held out", "other formats"]
"""The first formats, the same with other words, and formats of their own."""
FIXTURE_NAMES: tuple[FixtureName, ...] = get_args(FixtureName)

_SOURCES: dict[FixtureName, str] = {
    "working": "retention_formats.txt",
    "held out": "retention_formats.txt",
    "other formats": "retention_formats_2.txt",
}
_SECTION_PATTERN = re.compile(r"\[([A-Za-z][\w *-]*)\]")
_SLOT_PATTERN = re.compile(r"\{(#|hex\d+|\d+-\d+|[A-Za-z_]+(?: [A-Za-z_]+)?)\}")
_FILES, _FOLDERS = 40, 12


@cache
def load_sections(fixture: FixtureName) -> SectionLines:
    """Return the lines of each section."""
    found: SectionLines = {}
    lines: list[str] = []
    source = Path(__file__).with_name(_SOURCES[fixture])
    for line in source.read_text(encoding="utf-8").splitlines():
        section = _SECTION_PATTERN.fullmatch(line)
        if section:
            lines = found.setdefault(section[1], [])
        elif line and not line.startswith("# "):
            lines.append(line.replace("⏎", "\n"))
    return _add_words(found, held_out=fixture == "held out")


def _add_words(found: SectionLines, *, held_out: bool) -> SectionLines:
    names = [name for name in found if name.startswith("words ")]
    words = {name: " ".join(found.pop(name)).split() for name in names}
    for name in (name for name in names if not name.endswith(" *")):
        other = words.get(f"{name} *", words[name])
        found[name.removeprefix("words ")] = other if held_out else words[name]
    return found


class TemplateFiller:
    """Fills templates for one session, which has its own files, its project and its clock."""

    def __init__(self, drawn: random.Random, fixture: FixtureName) -> None:
        self.random = drawn
        self.sections = dict(load_sections(fixture))
        for lasting in ("project", "today"):
            self.sections[lasting] = [self.fill_line(lasting)]
        self.files = [self.fill_line("files") for _ in range(_FILES)]
        self.folders = [self.fill_line("folders") for _ in range(_FOLDERS)]
        self._seconds = drawn.randrange(8 * 3600, 16 * 3600)

    def fill_line(self, section: str, number: int = 0) -> str:
        """Return one line of a section, filled."""
        return self.fill_template(self.random.choice(self.sections[section]), number)

    def fill_template(self, template: str, number: int = 0) -> str:
        """Return the template with a drawn value in each slot. Equal slots get different values."""
        drawn: dict[str, set[str]] = {}

        def value(slot: re.Match[str]) -> str:
            before = drawn.setdefault(slot[1], set())
            for _ in range(9):
                text = self._draw_value(slot[1], number)
                if text not in before:
                    break
            before.add(text)
            return text

        return _SLOT_PATTERN.sub(value, template)

    def _draw_value(self, slot: str, number: int) -> str:
        if slot == "#":
            return str(number)
        if slot == "clock":
            return self._draw_clock_time()
        if slot == "file":
            # The square makes some files of a project those that everything is about.
            return self.files[int(len(self.files) * self.random.random() ** 2)]
        if slot == "folder":
            return self.random.choice(self.folders)
        if slot.startswith("hex"):
            digits = int(slot[3:])
            return f"{self.random.getrandbits(digits * 4):0{digits}x}"
        if slot[0].isdigit():
            least, most = slot.split("-")
            return str(self.random.randint(int(least), int(most)))
        if slot.startswith("cased "):
            return self.fill_line(slot.removeprefix("cased ")).capitalize()
        return self.fill_line(slot)

    def _draw_clock_time(self) -> str:
        self._seconds += self.random.randint(0, 4)
        minutes, seconds = divmod(self._seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours % 24:02}:{minutes:02}:{seconds:02}"
