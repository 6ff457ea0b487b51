"""The ids of one person on WhatsApp, as the bridge of a Hermes home has noted that they are one.

It keeps a file for each id, `lid-mapping-ID.json`, with the id that it stands for, and one for the
way back, `lid-mapping-ID_reverse.json`. Of all that are connected the shortest stands for all.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from session_core._files import read_file
from session_core.keys import as_text, canonical_whatsapp_id

_SAFE = re.compile(r"[A-Za-z0-9@.+-]+")
"""Ids that may become a part of a file name."""

_ENDS = ("", "_reverse")

Stamp = tuple[int, int]


class Aliases:
    """The ids of one home; a file is read again only when it was changed."""

    def __init__(self, home: Path) -> None:
        self._older = home / "whatsapp" / "session"
        self._newer = home / "platforms" / "whatsapp" / "session"
        self._read: dict[str, tuple[Stamp, str]] = {}

    def canonical(self, given: str) -> str:
        """Return the id that stands for the same person as this one."""
        folder = self._folder()
        found: set[str] = set()
        left = [given]
        while left:
            one = left.pop()
            if one not in found and _SAFE.fullmatch(one):
                found.add(one)
                left += [self._mapped(f"{folder}/lid-mapping-{one}{end}.json") for end in _ENDS]
        return min(found, key=lambda one: (len(one), one), default=given)

    def _folder(self) -> Path:
        """Return the folder of the bridge: the older one where something is in it."""
        with suppress(OSError), os.scandir(self._older) as entries:
            if next(entries, None) is not None:
                return self._older
        return self._newer

    def _mapped(self, path: str) -> str:
        """Return the id that a file says, or nothing."""
        try:
            stat = os.stat(path)  # noqa: PTH116 -- text
        except (OSError, ValueError):
            return ""
        stamp = stat.st_mtime_ns, stat.st_size
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            self._read[path] = known = stamp, _id_in(path)
        return known[1]


def _id_in(path: str) -> str:
    try:
        stored = json.loads(read_file(Path(path)))
    except (OSError, ValueError, RecursionError):
        return ""
    return canonical_whatsapp_id(as_text(stored) or "")
