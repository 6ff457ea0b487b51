"""The values that keeping and forgetting return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from session_core.transcripts.types import TranscriptSummary

KeepMode = Literal["on", "off"]


class ForgottenSession(NamedTuple):
    """A session that is not read any more; without an id it is a whole store."""

    store: str
    session_id: str | None
    forgotten_at: float


class KeptCounts(NamedTuple):
    """The kept copies of one store."""

    sessions: int
    bytes: int
    """The bytes of the sources."""
    gone: int
    """Sessions whose source has gone."""


@dataclass(frozen=True, slots=True)
class KeepStatus:
    """The kept copies, and their place."""

    mode: KeepMode | None
    """None until the user has decided."""
    path: Path
    stores: Mapping[str, KeptCounts]
    stored_bytes: int
    """The size of the file of the copies."""
    forgotten: Sequence[ForgottenSession]
    problem: str | None = None
    """Why copies could not be read or written at the last call."""

    @property
    def sessions(self) -> int:
        """The sessions with a copy."""
        return sum(counts.sessions for counts in self.stores.values())

    @property
    def source_bytes(self) -> int:
        """The bytes that the sources had."""
        return sum(counts.bytes for counts in self.stores.values())

    @property
    def gone(self) -> int:
        """The sessions whose source has gone."""
        return sum(counts.gone for counts in self.stores.values())


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The sessions that forgetting removes; it cannot be undone."""

    handle: str
    expires_at: float
    store: str
    is_whole_store: bool
    sessions: Sequence[TranscriptSummary]
    kept_bytes: int
    """The bytes of the sources, of which copies are removed."""
    gone: int
    """Sessions of which the copy is all that is left."""
    forks: Sequence[str]
    """Other sessions that repeat messages of these and stay."""
    unlisted: Sequence[str] = ()
    """The ids of kept sessions of a store that no list has now: of a folder that is not read any
    more, or without messages. Their copies are removed as well."""
