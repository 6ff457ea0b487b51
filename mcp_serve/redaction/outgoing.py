"""Remove terminal escapes and secrets from error messages and from lines for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from mcp_serve.plain_text import to_plain_line, to_plain_text
from mcp_serve.redaction.redaction import MARK, find_spans, redact

# Characters between a secret and its name.
_SEPARATORS = re.compile(r"[\s=:@\"'`\\/]+")

# The shortest beginning of a secret that is removed.
_MIN_PART_CHARS = 8


def clean_text(text: str, passed: Any = None) -> str:
    """Return a text without terminal escapes and secrets.

    `passed` holds the arguments of the caller. An error may quote a secret of them cut short, which
    no pattern recognises any more: beginnings of these secrets are removed too.
    """
    shown = redact(to_plain_text(text))
    for secret in _list_secrets(passed):
        start = shown.find(secret[:_MIN_PART_CHARS])
        while start >= 0:
            pairs = zip(shown[start:], secret, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            shown = f"{shown[:start]}{MARK}]{shown[start + length :]}"
            start = shown.find(secret[:_MIN_PART_CHARS], start + len(MARK) + 1)
    return shown


def clean_value(value: Any, passed: Any = None) -> Any:
    """Return a JSON value with all its texts cleaned."""
    if isinstance(value, str):
        return clean_text(value, passed)
    if isinstance(value, Mapping):
        return {clean_text(key, passed): clean_value(item, passed) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, passed) for item in value]
    return value


def _list_secrets(passed: Any) -> Iterator[str]:
    """Yield the secrets in arguments and their parts, as an error may quote them."""
    for text in {form for value in _list_texts(passed) for form in _list_forms(value)}:
        for start, stop in find_spans(text):
            parts = _SEPARATORS.split(text[start:stop])
            if stop - start >= _MIN_PART_CHARS:
                yield text[start:stop]
            for part in parts:
                if len(part) >= _MIN_PART_CHARS and (
                    part is parts[-1] or any(map(str.isdigit, part))
                ):
                    yield part


def _list_forms(text: str) -> Iterator[str]:
    yield from (text, to_plain_text(text), to_plain_line(text))
    if not (text.isascii() and text.isprintable() and "\\" not in text):
        yield from (repr(text)[1:-1], json.dumps(text)[1:-1])


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _list_texts(key)
            yield from _list_texts(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _list_texts(item)
