"""The report about the server of a home in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pooling = Literal["none", "session", "transaction", "statement"]
"""The mode of a pooler in front of the server: how long it lends a connection."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The state of a database server, as one program sees it."""

    version: str
    role: str
    is_exempt: bool
    """Whether row security does not bind the role, so that only the code keeps homes apart."""
    can_write: bool
    """Whether the role may change homes, which needs an existing schema."""
    is_standby: bool
    """Whether the server takes no changes."""
    encoding: str
    pending: tuple[str, ...]
    """The migrations that the schema lacks."""
    newer: int | None
    """A migration that only a newer version of this program knows."""
    skew_s: float
    """The seconds by which the clock of the server is ahead of this machine."""
    round_trip_s: float
    pooling: Pooling
