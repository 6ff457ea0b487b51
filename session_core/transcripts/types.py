"""Types that only a transcript store returns."""

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
    """The number of messages, or None until the file was read to its end."""
    project: str | None
    branch: str | None
    model: str | None
    parent_id: str | None
    link: TranscriptLink | None
    tokens: int
    cost: float | None
    resume: tuple[str, ...] | None
    """The command that continues the session, to be run in its folder."""
    pinned: bool = False
    is_kept: bool = False
    """Whether the source has gone and the session is read from its kept copy."""

    @property
    def root_id(self) -> str:
        """The id itself, because a transcript is a whole conversation."""
        return self.id


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """How much of a store is indexed, and what was left out."""

    store: str
    roots: tuple[str, ...]
    files: int
    bytes: int
    sessions: int
    messages: int
    indexed_share: float
    """The share of the bytes that is indexed, from 0 to 1."""
    newest_file_at: float | None
    newest_record_at: float | None
    """The time of the newest known record. If it is much older than the newest file, the agent
    writes records that the format does not know.
    """
    foreign_files: int
    """The number of files of other users, which are not read."""
    links: int
    unreadable: int
    unknown_records: dict[str, int] = field(default_factory=dict)
    open_sessions: int = 0
    archived_sessions: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    cost: float = 0.0
    problem: str | None = None
    """The reason why sessions may be missing, or None: the agent has moved them, or writes unknown
    records.
    """
