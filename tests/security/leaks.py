"""Parts of secrets in an output, found by a reader that undoes every disguise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from tests.security.secret_kinds import WINDOW, Sample

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\[[0-9;]*[mKG]")
_CODE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_IGNORED = re.compile(
    "\\\\+[nrt]|[\\\\\\s\x00-\x1f\u00ad\u034f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f]"
)


def list_windows(samples: Iterable[Sample]) -> dict[str, str]:
    """Return every piece of the secrets that must not come out, each with its kind."""
    return {
        part[at : at + WINDOW]: sample.kind
        for sample in samples
        for part in sample.parts
        for at in range(len(part) - WINDOW + 1)
    }


def find_leaks(text: str, secret: dict[str, str]) -> set[tuple[str, str]]:
    """Return kind and context of each piece of a secret in a text."""
    decoded = _CODE.sub(lambda code: chr(int(code[1], 16)), text)
    struck = re.sub("[^\n]\x08", "", decoded)
    bare = _IGNORED.sub("", _TERMINAL.sub("", struck))
    forms = {text, bare, _IGNORED.sub("", unquote(bare))}
    return {
        (secret[piece], form[max(0, at - 30) : at + 30])
        for form in forms
        for at in range(len(form) - WINDOW + 1)
        if (piece := form[at : at + WINDOW]) in secret
    }
