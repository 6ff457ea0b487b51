"""Parts: the additions of a source to the index, before they are written.

Parts are built without the index and without its lock, so that writing a part is a short
transaction.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

from session_core.transcripts.format import (
    Message,
    ReaderState,
    Record,
    Rewind,
    SessionFacts,
    SourceFile,
    Usage,
)
from session_core.transcripts.roots import FileIdentity
from session_core.transcripts.words import build_text

ROLES = ("user", "assistant", "tool", "system")
ROLE_MASK = 3
SUMMARY_FLAG, PROMPT_FLAG, ERROR_FLAG = 4, 8, 16
PREVIEW_LENGTH = 200
_MAX_OPENING_LENGTH = 10 * PREVIEW_LENGTH
_MAX_TITLE_LENGTH = 300


@dataclass(slots=True)
class SourceEntry:
    """The index entry of a source. A new source has the id 0."""

    id: int
    store: str
    root: str
    path: str
    identity: FileIdentity
    offset: int = 0
    checksum: int = 0
    is_read: bool = False
    """Whether the source was read to its end at least once."""
    is_unchecked: bool = False
    """Whether the checksum of the part before the offset is unverified since a change."""
    version: int = 0
    state: str = "{}"
    """The state of the reader as JSON, which is decoded only if the source is read further."""
    unknown: str = "{}"
    """The number of unknown records by type, as JSON."""
    newest_at: int | None = None
    """The time of the newest record in milliseconds."""
    change: int = 0

    @property
    def full_path(self) -> str:
        """The path of the file."""
        return f"{self.root}/{self.path}"


class IndexedMessage(NamedTuple):
    """A message as the index stores it, with the text of its words."""

    number: int
    place: int
    length: int
    at: int | None
    flags: int
    tool: str | None
    key: int | None
    text: str
    preview: str | None
    usage: Usage | None
    replaces: bool


@dataclass(slots=True)
class SessionPart:
    """The additions of a part to one session."""

    native_id: str
    facts: SessionFacts = field(default_factory=SessionFacts)
    usage: list[Usage] = field(default_factory=list)
    items: list[IndexedMessage | Rewind] = field(default_factory=list)
    compacted_to: int | None = None


@dataclass(slots=True)
class SourcePart:
    """The additions of a source, and its entries before and after them."""

    before: SourceEntry
    after: SourceEntry
    """The entry after the addition. Its `state` and `unknown` are set when it is written."""
    file: SourceFile | None
    state: ReaderState = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    is_reset: bool = False
    """Whether all data of the source is dropped first."""
    sessions: dict[str, SessionPart] = field(default_factory=dict)
    text_size: int = 0
    renewed_id: str | None = None
    """The id of a session that is dropped first and is in this part as a whole."""
    present_ids: set[str] | None = None
    """The sessions that a database contains now, if they were read. All others are removed."""

    def add_record(self, record: Record, session_id: str) -> None:
        """Add a record to the part of its session."""
        part = self.sessions.get(session_id)
        if part is None:
            part = self.sessions[session_id] = SessionPart(session_id)
        if not record.is_known:
            kind = record.type[:80]
            self.unknown[kind] = self.unknown.get(kind, 0) + 1
        usage = None
        if record.facts:
            usage = record.facts.get("usage")
            merge_facts(part.facts, record.facts)
        if record.rewind is not None:
            part.items.append(record.rewind)
        if record.is_compaction:
            part.compacted_to = record.offset
        if usage is not None and not record.messages:
            part.usage.append(usage)
        for place, message in enumerate(record.messages):
            # The usage goes with the first message, so that a copy that is left out takes it along.
            item = make_item(record, place, message, None if place else usage)
            part.items.append(item)
            self.text_size += len(item.text)
            if item.at is not None and item.at > (self.after.newest_at or 0):
                self.after.newest_at = item.at


def merge_facts(facts: SessionFacts, more: SessionFacts) -> None:
    """Add later facts to earlier facts. The title with the better rank stays."""
    has_worse_title = "title" in facts and more.get("title_rank", 0) > facts.get("title_rank", 0)
    for name, value in more.items():
        is_title = name in ("title", "title_rank")
        if name != "usage" and not (is_title and has_worse_title):
            facts[name] = value  # type: ignore[literal-required]
    if "title" in more and not has_worse_title:
        facts["title"] = cut_line(str(more["title"]), _MAX_TITLE_LENGTH)
        facts["title_rank"] = more.get("title_rank", 0)


def make_item(
    record: Record, place: int, message: Message, usage: Usage | None = None
) -> IndexedMessage:
    """Build the indexed form of a message."""
    flags = ROLES.index(message.role)
    if message.is_summary:
        flags |= SUMMARY_FLAG
    if message.is_error:
        flags |= ERROR_FLAG
    preview = None
    if message.is_prompt:
        flags |= PROMPT_FLAG
        preview = cut_line(message.text[:_MAX_OPENING_LENGTH], PREVIEW_LENGTH) or None
    return IndexedMessage(
        record.offset + place,
        place,
        record.length,
        None if message.at is None else int(message.at * 1000),
        flags,
        message.tool_name or (message.tool_calls[0].name if message.tool_calls else None),
        None if message.key is None else hash_key(message.key),
        build_text(message),
        preview,
        usage,
        message.replaces,
    )


def cut_line(text: str, length: int) -> str:
    """Return a text as one line of about `length` characters at most.

    A shortened line ends with dots, so that redaction looks for a cut secret at its end.
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length].rstrip()}..."


def hash_key(key: str) -> int:
    """Return the key of a message as a signed 64-bit integer."""
    digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
