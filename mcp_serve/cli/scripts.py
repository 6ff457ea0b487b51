"""What a script is answered: one JSON document, which is all of standard output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from mcp_serve.quoting import HIDDEN

_RAW = re.compile(f"[\x7f-\x9f]|{HIDDEN.pattern}")
"""What JSON leaves as it is, and a terminal obeys."""


def print_json(found: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write an answer for a script, in a way that harms no terminal either."""
    text = json.dumps(found, ensure_ascii=False, indent=indent)
    sys.stdout.write(_RAW.sub(lambda raw: json.dumps(raw[0])[1:-1], text) + "\n")
