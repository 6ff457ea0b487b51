"""A small file of a person's, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_NEW = 0o600
"""Nobody else reads what is not there yet."""


def put(place: Path, data: bytes, mode: int) -> None:
    """Write a file in the place of the one that is there, if any."""
    beside = place.with_name(f".{place.name}_{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NEW)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(mode)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
