"""Lines of tool output that differ only in the file and line number to which they refer.

Such lines are read as one line with their number: `60 × DeprecationWarning: … (in 54 files)`.
"""  # noqa: RUF002 -- the sign in the summary

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from session_core.compression.extractive import tokenize

MIN_ALIKE_LINES = 5
_MIN_WORDS = 3
"""The number of words besides the location. Lines with fewer are lists of files."""
_LOCATION = re.compile(
    r"(?<![\w/\\])(?:[A-Za-z]:)?(?:[\w.@+~-]{0,80}[/\\]){1,24}(?P<name>[\w.@+-]{1,120}?)"
    r"(?:(?::\d{1,7}){1,2}(?!\w)|\(\d{1,7}(?:,\d{1,5})?\)|(?![\w.@+/\\:-]))"
    r"|(?<![\w./\\-])(?P<file>[\w@+-]{1,120}\.\w{1,8}):\d{1,7}(?::\d{1,7})?(?!\w)"
)
_LINE_NUMBER = re.compile(r"(?::\d{1,7}){1,2}$|\(\d{1,7}(?:,\d{1,5})?\)$")
_SIGN = "\N{HORIZONTAL ELLIPSIS}"
_LEAD = re.compile(rf"^[\s{_SIGN}:,-]+")


def collapse_lines(lines: Iterable[str], named: Collection[str]) -> Iterator[str]:
    """Yield the lines, and for many lines that differ in their location one line with their number.

    A line whose file is in `named` is yielded too.
    """
    listed = list(lines)
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    keys: list[str | None] = []
    for line in listed:
        location = _LOCATION.search(line)
        key = _LOCATION.sub(_SIGN, line) if location else None
        keys.append(key)
        if location and key:
            name = location["name"] or location["file"]
            groups[key].append((_LINE_NUMBER.sub("", location.group()), name))
    collapsed = {key for key, places in groups.items() if _is_collapsible(key, places)}
    written: set[str] = set()
    for line, key in zip(listed, keys, strict=True):
        if key is None or key not in collapsed:
            yield line
            continue
        if key not in written:
            written.add(key)
            yield _write_group(key, groups[key])
        location = _LOCATION.search(line)
        if location and (location["name"] or location["file"]) in named:
            yield line


def _is_collapsible(key: str, places: Collection[tuple[str, str]]) -> bool:
    return len(places) >= MIN_ALIKE_LINES and tokenize.count_words(key) >= _MIN_WORDS


def _write_group(key: str, places: Collection[tuple[str, str]]) -> str:
    files = {path for path, _ in places}
    text = _LEAD.sub("", key).rstrip()
    where = f"in {len(files)} files" if len(files) > 1 else f"in {next(iter(files))}"
    return f"{len(places)} × {text} ({where})"  # noqa: RUF001 -- the sign in the summary
