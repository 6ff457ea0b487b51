"""The protocol of a transcript format: bytes or rows in, records out, nothing else.

A format is pure. It opens no file, keeps nothing between calls but the state that it is passed, and
never raises for what a file contains: a record that it does not know is returned with `is_known`
False and stays readable as raw text. A format is an instance without attributes that change; the
module of a format lists its instances in `FORMATS`.

Raise `version` if the same bytes give other records than before: its files are then read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

Role = Literal["user", "assistant", "tool", "system"]
"""Text that an agent injects as the user (context, instructions, notices) has the role system."""

TranscriptLink = Literal["branch", "delegate"]
"""A fork is a branch, a subagent is a delegate."""

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs one SELECT on a read-only connection in the current read transaction."""

ReaderState = dict[str, Any]
"""The state of a reader between two records: small, and of JSON values only.

The engine stores it beside the offset read, so that a reader continues in another process.
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
    """One message of a record; its id is the offset of the record plus its place in it."""

    role: Role
    text: str
    at: float | None = None
    """The time in UTC epoch seconds."""
    key: str | None = None
    """The identity of the message in its store: copies in forks have the same key.

    Within a session the first message with a key counts, or the last one if `replaces` is set. A
    message without a key is never a copy. A format without ids builds a key that differs for equal
    texts of one session, of the turn and the place in it for instance. A key that depends on the
    state begins with `~`: the message cannot be recognised by it when it is read alone.
    """
    parent_key: str | None = None
    group: str | None = None
    """Records with one group are parts of one message of the model, which it streamed."""
    replaces: bool = False
    is_prompt: bool = False
    """Whether a person wrote it; the first prompt is the preview of the session."""
    is_summary: bool = False
    """Whether it stands for the part before a compaction."""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str | None = None
    """The tool whose result it is."""
    tool_call_id: str | None = None
    is_error: bool = False
    model: str | None = None
    attachments: tuple[Attachment, ...] = ()


class SessionFacts(TypedDict, total=False):
    """Facts that a record or a sidecar states about its session; a later value wins."""

    title: str
    title_rank: int
    """How good the title is: a lower rank wins over a higher one, even an older one (default 0)."""
    folder: str
    branch: str
    model: str
    agent_version: str
    started_at: float
    parent_id: str
    link: TranscriptLink
    archived: bool
    resume_id: str
    """The id that resumes the session in its agent, if that is another one."""
    usage: Usage
    """Added to the totals; copies that stream or repeat a message must add only the difference."""


class Rewind(NamedTuple):
    """Messages of the session that a record takes back.

    With a key, that message and all after it, or all messages if the key is unknown; with `turns`,
    the last prompts and all after the first of them; with neither, all messages.
    """

    key: str | None = None
    turns: int = 0


class Record(NamedTuple):
    """One line, document or row of a store."""

    offset: int
    """The uncompressed byte offset in the file; of a database, the message id of the record."""
    length: int
    """The bytes of the record with its newline; 0 in a database."""
    type: str
    """The agent's name of the record type, for counts of unknown types."""
    messages: tuple[Message, ...] = ()
    facts: SessionFacts | None = None
    is_known: bool = True
    is_compaction: bool = False
    """Whether the messages before this record were replaced by a summary."""
    rewind: Rewind | None = None
    session_id: str | None = None
    """The session of the record, in a database; None in a file, which holds one session."""


class RowSelection(NamedTuple):
    """The rows of one table that belong to a session; a table may be missing."""

    table: str
    where: str
    """A condition that an index of the agent answers, with one parameter: the session's id."""
    has_messages: bool
    needs: tuple[str, ...] = ()
    """Columns of the table that the condition names and older layouts lack."""


class SourceFile(NamedTuple):
    """How a file belongs to a session, by its path below the root alone."""

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
    """The common members of all formats."""

    @property
    def store(self) -> str:
        """The name of the store, which is the `source` of its sessions."""

    @property
    def version(self) -> int:
        """The version of the reader; another one makes the files be read again."""

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folders that may hold the store; they need not exist.

        `home` is the home folder of the user. The paths of files are relative to their root.
        """

    def match_folder(self, path: str) -> bool:
        """Return True if files of the store may lie in a folder or below it.

        The path is relative to the root, with `/` and without a trailing one.
        """

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session, to be run in its folder."""


class FileFormat(Format, Protocol):
    """A store of files: lines of JSON, or documents."""

    def match_file(self, path: str) -> SourceFile | None:
        """Return how a file belongs to a session, or None; `path` is relative, with `/`."""

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line without its newline, or of one document.

        `state` is `{}` at the begin of a file and is changed in place. A record must not depend on
        it for more than facts, usage, keys and tool names: the engine reads single lines again
        with an empty state to show them. The length is `len(data) + 1` for a line.
        """

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return the record of a line above the cap, of which only the first bytes are passed.

        It has no messages; a format that can tell a compaction by the head sets `is_compaction`.
        """

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the facts of a sidecar; its content is bounded by the engine."""


class DatabaseFormat(Format, Protocol):
    """A store in an SQLite database that another program writes."""

    @property
    def row_selections(self) -> Sequence[RowSelection]:
        """The rows to keep of a session, from which this format can read it again."""

    def match_database(self, path: str) -> bool:
        """Return True if a file below the root is a database of the store."""

    def has_tables(self, query: Query) -> bool:
        """Return True if the database has the tables that this format reads."""

    def read_changes(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return up to about `limit` changed records and move the watermark in `state`.

        An empty list means that nothing is left. A message that was returned before has the same
        offset and `replaces` set. No query may scan a table of messages.
        """

    def read_session(self, query: Query, session_id: str, offsets: Sequence[int]) -> list[Record]:
        """Return records of a session again by their offsets; missing ones are left out."""

    def list_session_ids(self, query: Query) -> list[str]:
        """Return the ids of all sessions that the database holds now."""
