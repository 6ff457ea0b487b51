"""Types of the results of keeping and forgetting sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from session_core.transcripts.types import TranscriptSummary

KeepMode = Literal["on", "off"]


class ForgottenSession(NamedTuple):
    """A session that is no longer read, or a whole store if the id is None."""

    store: str
    session_id: str | None
    forgotten_at: float


class KeptCounts(NamedTuple):
    """Counts of the kept copies of one store."""

    sessions: int
    bytes: int
    """The size of the sources."""
    gone: int
    """The number of sessions whose source has gone."""


@dataclass(frozen=True, slots=True)
class KeepStatus:
    """The state of the kept copies, and the path of their file."""

    mode: KeepMode | None
    """"on" or "off", or None until the user has decided."""
    path: Path
    stores: Mapping[str, KeptCounts]
    stored_bytes: int
    """The size of the file of copies."""
    forgotten: Sequence[ForgottenSession]
    problem: str | None = None
    """The error of the last read or write of copies, or None."""

    @property
    def sessions(self) -> int:
        """The number of sessions with a copy."""
        return sum(counts.sessions for counts in self.stores.values())

    @property
    def source_bytes(self) -> int:
        """The size of the sources of all copies."""
        return sum(counts.bytes for counts in self.stores.values())

    @property
    def gone(self) -> int:
        """The number of sessions whose source has gone."""
        return sum(counts.gone for counts in self.stores.values())


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """A plan to remove sessions for good, which cannot be undone."""

    handle: str
    expires_at: float
    store: str
    is_whole_store: bool
    sessions: Sequence[TranscriptSummary]
    kept_bytes: int
    """The size of the sources whose copies are removed."""
    gone: int
    """The number of sessions that exist only as a copy."""
    forks: Sequence[str]
    """Other sessions, which repeat messages of these sessions and stay."""
    unlisted: Sequence[str] = ()
    """The ids of kept sessions of a store that no list shows, because their folder is not read any
    more or they have no messages. Their copies are removed as well.
    """
