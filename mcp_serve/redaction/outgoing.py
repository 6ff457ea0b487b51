"""Lines that leave the process for a terminal, and texts of errors: no escapes, and no secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from mcp_serve.redaction.redaction import MARK, redact, spans
from mcp_serve.render import harmless, plain

_SEAM = re.compile(r"[\s=:@\"'`\\/]+")
"""What stands between a secret and its name."""

_LEAST = 8
"""The shortest beginning of a secret that is taken out."""


def clean(text: str, passed: Any = None) -> str:
    """Return a text without terminal escapes and secrets.

    `passed` is what the caller sent. An error may repeat a secret of it cut short, which has not
    the shape of one any more: its beginning is taken out as well.
    """
    shown = redact(harmless(text))
    for secret in _secrets(passed):
        start = shown.find(secret[:_LEAST])
        while start >= 0:
            pairs = zip(shown[start:], secret, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            shown = f"{shown[:start]}{MARK}]{shown[start + length :]}"
            start = shown.find(secret[:_LEAST], start + len(MARK) + 1)
    return shown


def clean_value(value: Any, passed: Any = None) -> Any:
    """Return a JSON value in which each text is clean."""
    if isinstance(value, str):
        return clean(value, passed)
    if isinstance(value, Mapping):
        return {clean(key, passed): clean_value(each, passed) for key, each in value.items()}
    if isinstance(value, list):
        return [clean_value(each, passed) for each in value]
    return value


def _secrets(passed: Any) -> Iterator[str]:
    """Yield secrets of what was passed and their parts, as an error may quote them."""
    for text in {form for value in _texts(passed) for form in _forms(value)}:
        for start, stop in spans(text):
            parts = _SEAM.split(text[start:stop])
            if stop - start >= _LEAST:
                yield text[start:stop]
            for part in parts:
                if len(part) >= _LEAST and (part is parts[-1] or any(map(str.isdigit, part))):
                    yield part


def _forms(text: str) -> Iterator[str]:
    yield from (text, harmless(text), plain(text))
    if not (text.isascii() and text.isprintable() and "\\" not in text):
        yield from (repr(text)[1:-1], json.dumps(text)[1:-1])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, Iterable):
        for each in value:
            yield from _texts(each)
