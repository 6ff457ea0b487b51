"""The protocol of transcript formats, which turn bytes or rows into records.

A format is pure. It opens no file, keeps only the state that it is passed between calls, and never
raises for the contents of a file: an unknown record is returned with `is_known` False and stays
readable as raw text. A format is an instance without changing attributes; the module of a format
lists its instances in `FORMATS`.

Raise `version` if the same bytes give other records than before: its files are then read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

Role = Literal["user", "assistant", "tool", "system"]
"""The role of a message. Text that an agent injects as the user has the role system."""

TranscriptLink = Literal["branch", "delegate"]
"""The relation to the parent: a fork is a branch, a subagent is a delegate."""

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs one SELECT on a read-only connection in the current read transaction."""

ReaderState = dict[str, Any]
"""The state of a reader between two records: small, and of JSON values only. The engine stores it
next to the offset, so that another process can continue.
"""


class ToolCall(NamedTuple):
    """A call of a tool by the model."""

    id: str | None
    name: str
    arguments: str
    """The arguments as text, usually JSON."""


class Attachment(NamedTuple):
    """A part of a message that is not text."""

    kind: str
    name: str | None = None
    bytes: int | None = None


class Usage(NamedTuple):
    """Tokens and cost to add to the totals of a session."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0


class Message(NamedTuple):
    """One message of a record. Its id is the offset of the record plus its place in it."""

    role: Role
    text: str
    at: float | None = None
    """The time in UTC epoch seconds."""
    key: str | None = None
    """The identity of the message in its store. Copies in forks have the same key. Within a session
    the first message with a key counts, or the last one if `replaces` is set. A message without a
    key is never a copy. A format without ids builds a key that differs for equal texts of one
    session, for example from the turn and the place in the turn. A key that depends on the state
    begins with `~`: a record that is read alone has another key.
    """
    parent_key: str | None = None
    group: str | None = None
    """The id of a streamed message, whose parts are in several records."""
    replaces: bool = False
    is_prompt: bool = False
    """Whether a person wrote it. The first prompt is the preview of the session."""
    is_summary: bool = False
    """Whether it summarizes the part before a compaction."""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str | None = None
    """The tool that returned this result."""
    tool_call_id: str | None = None
    is_error: bool = False
    model: str | None = None
    attachments: tuple[Attachment, ...] = ()


class SessionFacts(TypedDict, total=False):
    """Facts about a session from a record or a sidecar. Later values replace earlier ones."""

    title: str
    title_rank: int
    """The rank of the title. A lower rank replaces a higher rank, even of a later title (default
    0).
    """
    folder: str
    branch: str
    model: str
    agent_version: str
    started_at: float
    parent_id: str
    link: TranscriptLink
    archived: bool
    resume_id: str
    """The id that resumes the session in its agent, if it differs from the session id."""
    usage: Usage
    """Usage to add to the totals. Copies that stream or repeat a message add only the difference.
    """


class Rewind(NamedTuple):
    """The removal of messages of a session by a record.

    With a key, that message and all later ones are removed, or all messages if the key is unknown.
    With `turns`, the last prompts are removed with all messages after the first of them. With
    neither, all messages are removed.
    """

    key: str | None = None
    turns: int = 0


class Record(NamedTuple):
    """One line, document or row of a store."""

    offset: int
    """The uncompressed byte offset in a file, or the message id of a database record."""
    length: int
    """The bytes of the record with its newline, or 0 in a database."""
    type: str
    """The agent's name of the record type, for counts of unknown types."""
    messages: tuple[Message, ...] = ()
    facts: SessionFacts | None = None
    is_known: bool = True
    is_compaction: bool = False
    """Whether the messages before this record were replaced by a summary."""
    rewind: Rewind | None = None
    session_id: str | None = None
    """The session of a database record. None in a file, which has one session."""


class RowSelection(NamedTuple):
    """The rows of one table that belong to a session. The table may be missing."""

    table: str
    where: str
    """A condition for which the agent has an index. Its parameter is the session's id."""
    has_messages: bool
    needs: tuple[str, ...] = ()
    """Columns in the condition that older layouts lack."""


class SourceFile(NamedTuple):
    """The relation of a file to a session, derived from its path below the root."""

    session_id: str
    parent_id: str | None = None
    link: TranscriptLink | None = None
    archived: bool = False
    is_document: bool = False
    """Whether the file is one JSON document, which is read whole, instead of lines."""
    is_zstd: bool = False
    sidecars: tuple[str, ...] = ()
    """Paths below the root, with `/`, of small files with facts about the session."""


class Format(Protocol):
    """The members that all formats have."""

    @property
    def store(self) -> str:
        """The name of the store, which is the `source` of its sessions."""

    @property
    def version(self) -> int:
        """The version of the reader. After a change, all files are read again."""

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folders that may contain the store.

        They need not exist. `home` is the home folder of the user. The paths of files are relative
        to their root.
        """

    def match_folder(self, path: str) -> bool:
        """Return True if files of the store may be in a folder or below it.

        `path` is relative to the root, with `/` and without a trailing slash.
        """

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session, to be run in its folder."""


class FileFormat(Format, Protocol):
    """A store of files, which contain lines of JSON or one document."""

    def match_file(self, path: str) -> SourceFile | None:
        """Return how a file belongs to a session, or None. `path` is relative, with `/`."""

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line without its newline, or of one document.

        `state` is `{}` at the start of a file and is changed in place. A record must not depend on
        it for more than facts, usage, keys and tool names: the engine reads single lines again with
        an empty state to show them. The length is `len(data) + 1` for a line.
        """

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return the record of a line that exceeds the cap, from its first bytes.

        The record has no messages. A format that can recognise a compaction by the head sets
        `is_compaction`.
        """

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the facts of a sidecar. The engine limits the size of `data`."""


class DatabaseFormat(Format, Protocol):
    """A store in an SQLite database that another program writes."""

    @property
    def row_selections(self) -> Sequence[RowSelection]:
        """The rows of a session to keep, from which this format can read it again."""

    def match_database(self, path: str) -> bool:
        """Return True if a file below the root is a database of the store."""

    def has_tables(self, query: Query) -> bool:
        """Return True if the database has the tables that this format reads."""

    def read_changes(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return up to about `limit` changed records, and move the watermark in `state`.

        An empty list means that nothing is left. A message that was returned before has the same
        offset and `replaces` set. No query may scan a table of messages.
        """

    def read_session(self, query: Query, session_id: str, offsets: Sequence[int]) -> list[Record]:
        """Return records of a session by their offsets. Missing records are left out."""

    def list_session_ids(self, query: Query) -> list[str]:
        """Return the ids of all sessions that the database holds now."""
