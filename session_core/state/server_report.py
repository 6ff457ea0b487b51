"""What is known of the server of a home with an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pooling = Literal["none", "session", "transaction", "statement"]
"""Whether a pooler stands between, and how long it lends a connection."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The state of a database server, as one program sees it."""

    version: str
    role: str
    is_exempt: bool
    """Row security does not bind the role, so only the code keeps homes apart."""
    can_write: bool
    """The role may change homes; False too if the schema does not exist."""
    is_standby: bool
    """The server takes no changes."""
    encoding: str
    pending: tuple[str, ...]
    """The migrations that the schema lacks."""
    newer: int | None
    """A migration that only a newer version of this program knows."""
    skew_s: float
    """The clock of the server minus that of this machine."""
    round_trip_s: float
    pooling: Pooling
