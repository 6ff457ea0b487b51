"""The ids of one person on WhatsApp, as the bridge of a Hermes home records them.

The bridge keeps a file for each id, `lid-mapping-ID.json`, with the id that it stands for, and one
for the way back, `lid-mapping-ID_reverse.json`. The shortest of all connected ids stands for the
person.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from session_core._atomic import read_file
from session_core.chats import normalize_text, normalize_whatsapp_id

_SAFE_ID = re.compile(r"[A-Za-z0-9@.+-]+")
"""Ids that may be part of a file name."""

_FILE_SUFFIXES = ("", "_reverse")

Stamp = tuple[int, int]


class WhatsAppAliases:
    """The WhatsApp ids of one home; a file is read again only after a change."""

    def __init__(self, home: Path) -> None:
        self._older = home / "whatsapp" / "session"
        self._newer = home / "platforms" / "whatsapp" / "session"
        self._read: dict[str, tuple[Stamp, str]] = {}

    def find_canonical(self, whatsapp_id: str) -> str:
        """Return the id that stands for the same person as this id."""
        folder = self._find_folder()
        connected_ids: set[str] = set()
        pending_ids = [whatsapp_id]
        while pending_ids:
            current_id = pending_ids.pop()
            if current_id not in connected_ids and _SAFE_ID.fullmatch(current_id):
                connected_ids.add(current_id)
                pending_ids += [
                    self._read_mapped_id(f"{folder}/lid-mapping-{current_id}{suffix}.json")
                    for suffix in _FILE_SUFFIXES
                ]
        return min(
            connected_ids, key=lambda current_id: (len(current_id), current_id), default=whatsapp_id
        )

    def _find_folder(self) -> Path:
        """Return the older folder of the bridge if it has files, else the newer one."""
        with suppress(OSError), os.scandir(self._older) as entries:
            if next(entries, None) is not None:
                return self._older
        return self._newer

    def _read_mapped_id(self, path: str) -> str:
        """Return the id in a file, or an empty string."""
        try:
            stat = os.stat(path)  # noqa: PTH116 -- text
        except (OSError, ValueError):
            return ""
        stamp = stat.st_mtime_ns, stat.st_size
        cached = self._read.get(path)
        if cached is None or cached[0] != stamp:
            self._read[path] = cached = stamp, _parse_id_file(path)
        return cached[1]


def _parse_id_file(path: str) -> str:
    try:
        stored = json.loads(read_file(Path(path)))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_id(normalize_text(stored) or "")
