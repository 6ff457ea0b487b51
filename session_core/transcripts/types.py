"""The values that only a transcript store returns; messages and hits are those of all stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from session_core.transcripts.format import TranscriptLink


@dataclass(frozen=True, slots=True)
class TranscriptSummary:
    """One session of another agent, as a list shows it."""

    id: str
    source: str
    """The name of the store."""
    title: str | None
    preview: str
    preview_id: int | None
    status: Literal["open", "ended", "archived"]
    started_at: float
    last_active_at: float
    messages: int | None
    """None until the file was read to its end."""
    project: str | None
    branch: str | None
    model: str | None
    parent_id: str | None
    link: TranscriptLink | None
    tokens: int
    cost: float | None
    resume: tuple[str, ...] | None
    """The command that continues it, to be run in its folder."""
    pinned: bool = False
    is_kept: bool = False
    """Whether its source has gone, and it is read from the kept copy."""

    @property
    def root_id(self) -> str:
        """The id itself: a transcript is a whole conversation."""
        return self.id


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """How much of a store is indexed, and the parts that were left out."""

    store: str
    roots: tuple[str, ...]
    files: int
    bytes: int
    sessions: int
    messages: int
    indexed_share: float
    """The share of the bytes that is indexed; 1 if everything is."""
    newest_file_at: float | None
    newest_record_at: float | None
    """If it is much older than the newest file, the agent writes what the format does not know."""
    foreign_files: int
    """Files of other users, which are not read."""
    links: int
    unreadable: int
    unknown_records: dict[str, int] = field(default_factory=dict)
    open_sessions: int = 0
    archived_sessions: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    cost: float = 0.0
    problem: str | None = None
    """Why sessions may be missing: the agent has moved them, or writes what is not known."""
