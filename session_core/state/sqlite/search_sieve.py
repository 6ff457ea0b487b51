"""What SQL can tell of a row without decoding it; each is a condition on `messages m`."""

from __future__ import annotations

import re

NO_TRIGRAMS = (
    "m.tool_calls IS NOT NULL OR NOT EXISTS"
    " (SELECT 1 FROM messages_fts_trigram_docsize d WHERE d.id = m.id)"
)
"""A row of which a newer trigram index has nothing, or not all."""

MULTI_PART = "coalesce(m.content, '') <> '' AND unicode(m.content) IS NULL"
"""A row with the marker of multi-part content."""

GLUED = " OR ".join(
    f"m.{column} LIKE :glued AND length(CAST(m.{column} AS BLOB)) <> length(m.{column})"
    for column in ("content", "tool_calls", "tool_name")
)
"""A row that may have an ASCII word beside a character of another script."""

_TOOL_NAME = "length(CAST(m.tool_name AS BLOB)) <> length(m.tool_name)"
"""The name of a tool that is not plain ASCII, which is rare enough to be read."""

_SIEVE = f"""
m.content LIKE :sieve OR length(CAST(m.content AS BLOB)) <> length(m.content)
OR m.tool_calls LIKE :sieve OR instr(m.tool_calls, '\\u') OR instr(m.tool_calls, '\\/')
OR length(CAST(m.tool_calls AS BLOB)) <> length(m.tool_calls)
OR m.tool_name LIKE :sieve OR {_TOOL_NAME}
"""
"""A row that is not plain ASCII passes: its letters may be equal when folded, or encoded."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+")
_COMPOUND = (
    "\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef"
    "\u2e80-\u2fdf\u3038-\u303a\u3190-\u33ff\uf900-\ufaff\U0001f200-\U0001f2ff\U0002f800-\U0002fa1f"
)
"""Signs that are folded to Han characters, or to nothing between them."""


def of(text: str) -> tuple[str, dict[str, str]]:
    """Return a condition on rows that may have a folded text, empty where SQL cannot tell.

    It cannot tell what is encoded, as behind the marker, nor which letters are equal when folded.
    """
    if text.isascii() and text.isprintable() and text and not set(text) & set('"\\'):
        return _SIEVE, {"sieve": f"%{text.replace('%', '_')}%"}
    if _HAN.fullmatch(text):
        either = (
            "instr(m.content, :sieve) OR unicode(m.content) IS NULL OR m.tool_calls IS NOT NULL"
            f" OR {_TOOL_NAME} OR length(CAST(m.content AS BLOB)) <> length(m.content)"
            f" AND m.content GLOB '*[{_COMPOUND}]*'"
        )
        return either, {"sieve": text}
    return "", {}
