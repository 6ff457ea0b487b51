"""What a script is answered: one JSON document, which is all of standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_json(found: Mapping[str, Any]) -> None:
    """Write an answer for a script."""
    json.dump(found, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")
