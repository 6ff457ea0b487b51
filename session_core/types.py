"""The values that the library accepts and returns: rows as mappings, all others frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

from session_core._typing import Self

T = TypeVar("T")

SqliteChoice = Literal["standard", "bundled"]
"""The SQLite library of Python, or the one that comes as a wheel."""

HomeKind = Literal["own", "hermes", "absent"]
"""A home of our own, a Hermes home, or a Hermes home without a state database."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a home that not every home has."""

    payloads: bool
    """Messages can have `payload_json`."""
    state: bool
    """`db.state` is available."""
    foreign_gateway: bool
    """A gateway of another program may own the routes, end sessions and call its own plugins."""
    flag_s: float
    """The time to flag or add a message, in seconds, with all that depends on it."""


LinkKind = Literal["continuation", "branch", "delegate", "other"]
"""The meaning of `parent_session_id`; only a continuation is the same conversation."""

MessageView = Literal["live", "full"]
"""Live rows only, or compacted rows too; rewound rows are in neither."""

SessionStatus = Literal["open", "ended", "archived", "all"]
SessionOrder = Literal["recent", "started", "size", "cost", "tokens"]
SearchMode = Literal["words", "substring"]
SearchUnit = Literal["conversation", "message"]
SearchOrder = Literal["relevance", "newest", "oldest"]
MatchMode = Literal["all", "conversation", "prefix", "any", "substring", "text", "title"]
SearchStep = Literal["all", "conversation", "title", "inner", "prefix", "any", "rest", "substring"]
"""The steps of a search: those of `MatchMode`, words inside others, and what any words leave."""


class SessionColumns(TypedDict):
    """The columns of `sessions` that every home has."""

    id: str
    source: str
    user_id: str | None
    model: str | None
    model_config: str | None
    system_prompt: str | None
    parent_session_id: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cwd: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    title: str | None
    api_call_count: int
    handoff_state: str | None
    handoff_platform: str | None
    handoff_error: str | None
    rewind_count: int
    archived: int


class SessionRow(SessionColumns, total=False):
    """One row of `sessions`, with the further columns of its home."""

    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    display_name: str | None
    origin_json: str | None
    expiry_finalized: int
    git_branch: str | None
    git_repo_root: str | None
    compression_failure_cooldown_until: float | None
    compression_failure_error: str | None
    compression_fallback_streak: int
    profile_name: str | None
    pinned: int


class MessageColumns(TypedDict):
    """The columns of `messages` that every store has, with `content` and `tool_calls` decoded."""

    id: int
    session_id: str
    role: str
    content: Any
    tool_call_id: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_name: str | None
    timestamp: float
    reasoning: str | None
    platform_message_id: str | None
    active: int


class MessageRow(MessageColumns, total=False):
    """One row of `messages`, with the JSON of further columns as stored."""

    token_count: int | None
    finish_reason: str | None
    reasoning_content: str | None
    reasoning_details: str | None
    codex_reasoning_items: str | None
    codex_message_items: str | None
    observed: int
    effect_disposition: str | None
    compacted: int
    api_content: str | None
    payload_json: str | None


class Revision(NamedTuple):
    """The state of a session at one moment, equal to another if nothing has changed."""

    last_id: int
    """The highest message id of the session; ids rise within it, in the order of commits."""
    live: int
    compacted: int
    rewinds: int
    ended_at: float | None


class AppendResult(int):
    """The id of an appended message, with the revision of its session before and after."""

    before: Revision
    after: Revision
    created: bool
    """Whether this very call has created the session."""

    def __new__(
        cls, message_id: int, before: Revision, after: Revision, created: bool = False
    ) -> Self:
        """Return the id with the revisions attached."""
        appended = super().__new__(cls, message_id)
        appended.before = before
        appended.after = after
        appended.created = created
        return appended

    def __reduce__(self) -> tuple[type[Self], tuple[int, Revision, Revision, bool]]:
        """Return the parts of a copy, so that results can be pickled."""
        return type(self), (int(self), self.before, self.after, self.created)


@dataclass(frozen=True, slots=True)
class AppendManyResult:
    """The ids of appended messages, with the revision of their session before and after."""

    ids: tuple[int, ...]
    before: Revision
    after: Revision
    created: bool = False
    """Whether this very call has created the session."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, and the cursor of the next page or None."""

    items: list[T]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Conditions on sessions, all of which must hold.

    Message counts cover live rows. `active_*` is the time of the last message, or of the start if
    there are no messages. In a list, `started_*` is the start of the conversation. `project` is a
    folder or several: it matches if the working folder or git root is the folder or is below it. If
    a continuation has no folder, source, user or chat, the nearest earlier session of the
    conversation that has a value counts.
    """

    ids: tuple[str, ...] | None = None
    words: str | None = None
    source: tuple[str, ...] | None = None
    exclude_source: tuple[str, ...] | None = None
    status: SessionStatus | None = None
    project: str | tuple[str, ...] | None = None
    titled: bool | None = None
    started_after: float | None = None
    started_before: float | None = None
    active_after: float | None = None
    active_before: float | None = None
    title_like: str | None = None
    end_reason: str | None = None
    cwd_prefix: str | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    model_like: str | None = None
    provider: str | None = None
    user_id: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    branch_like: str | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: int | None = None
    max_tool_calls: int | None = None

    def __post_init__(self) -> None:
        """Store several values as sorted tuples, so that equal filters compare equal."""
        for name in ("ids", "source", "exclude_source", "project"):
            value = getattr(self, name)
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
                texts = tuple(value)
                if all(isinstance(text, str) for text in texts):
                    texts = tuple(sorted(set(texts)))
                object.__setattr__(self, name, texts)


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of a list: a conversation, shown as its tip with the start of its root."""

    id: str
    root_id: str
    title: str | None
    preview: str
    source: str
    status: Literal["open", "ended", "archived"]
    started_at: float
    last_active_at: float
    ended_at: float | None
    end_reason: str | None
    messages: int
    project: str | None
    pinned: bool
    preview_id: int | None = None
    """The message that the preview is taken from."""
    chat: str | None = None
    """The name of its chat or person."""
    branch: str | None = None
    model: str | None = None
    tokens: int = 0
    """Input and output tokens of the whole conversation."""
    cost: float = 0.0
    """US dollars of the whole conversation."""
    user_id: str | None = None
    chat_id: str | None = None


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """Messages of a session in the order of their ids, with flags for more on each side."""

    messages: list[MessageRow]
    more_before: bool
    more_after: bool


@dataclass(frozen=True, slots=True)
class RewindResult:
    """The result of a rewind."""

    target: MessageRow
    rewound: int
    last_id: int | None
    """The newest message that is still live."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that matches, with its conversation."""

    session_id: str
    message_id: int
    role: str
    at: float
    snippet: str
    title: str | None
    source: str
    compacted: bool = False
    score: float = 0.0
    """The rank of the hit; those of several homes compare if their searches have one `moment`."""
    reply_id: int | None = None
    """The next message of the assistant with text, if the hit is of the user."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first, and the mode in which they match the query.

    `searched_back_to` is the time of the oldest message that was searched, if that was not all; the
    cursor continues from there.
    """

    hits: list[SearchHit]
    matched: MatchMode
    searched_back_to: float | None = None
    next_cursor: str | None = None
    least_score: float = 0.0
    """Hits with a lower score are left out; of several stores the highest value counts."""


class SearchEdge(NamedTuple):
    """A place between the messages of a store in the order of time.

    `tie` is an id of the store: of the messages with this time those with smaller ids are older.
    """

    at_ms: int
    tie: int


class FolderUse(NamedTuple):
    """A working folder, its number of sessions, and the time of their last start or end."""

    cwd: str
    sessions: int
    last_active: float


class TermCount(NamedTuple):
    """The number of messages with a word, of messages that were read, and of all messages."""

    found: int
    looked_at: int
    total: int


EventType = Literal["message", "session_started", "session_ended"]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """A committed event."""

    type: EventType
    at: float
    session_id: str
    message_id: int | None = None
    role: str | None = None
    text: str | None = None
    title: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """The events since a cursor, with `gap` if the sessions must be listed again."""

    events: list[SessionEvent]
    cursor: str
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a check has found."""

    code: str
    count: int
    what: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes on disk, where `tables` and `index` are estimates unless `exact` is True."""

    db: int
    wal: int
    free: int
    index: int
    tables: Mapping[str, int] = field(default_factory=dict)
    exact: bool = False
    index_copies: int = 0
    """The part of `index` that is a copy of the text, as in some layouts of Hermes."""
    index_dead: int = 0
    """The estimated part of `index` of deleted messages; a merge frees it within the file."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A live gateway and its command line."""

    pid: int
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """A session that a live process reports as open."""

    session_id: str
    pid: int
    lease_id: str = ""
    surface: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Another process that has the database open, and its name if known."""

    pid: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'process'} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class RawText:
    """Text that is not valid UTF-8, as stored."""

    stored: bytes

    def __len__(self) -> int:
        return len(self.stored)


@dataclass(frozen=True, slots=True)
class RowImages:
    """Rows of one table as they are stored.

    A table without a primary key has its row ids among the columns. `shared` rows are referenced by
    other rows: they are saved and restored, but never deleted. `of` is the session of the rows, if
    no column holds it.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    shared: bool = False
    of: str | None = None
    at: object = field(default=None, compare=False, repr=False)
    """A token by which the database can check that the rows are unchanged, or None."""

    def pack(self) -> list[Any]:
        """Return the images as JSON that may contain bytes."""
        rows: Any = self.rows
        if any(RawText in map(type, row) for row in rows):
            rows = [[_pack_value(value) for value in row] for row in rows]
        return [self.table, self.columns, rows, self.shared, self.of]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Self:
        """Return the images of a packed value."""
        table, columns, rows, shared, of = packed
        unpacked = tuple(tuple(map(_unpack_value, row)) for row in rows)
        return cls(table, tuple(columns), unpacked, shared, of)


def _pack_value(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, RawText) else value


def _unpack_value(value: Any) -> Any:
    return RawText(value["raw"]) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class RowMismatch:
    """A row that was not restored, or a value if `column` is set, with the reason."""

    table: str
    key: tuple[Any, ...]
    why: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of restoring rows."""

    inserted: int = 0
    present: int = 0
    """Rows that already existed unchanged."""
    refused: tuple[RowMismatch, ...] = ()
    emptied: tuple[RowMismatch, ...] = ()
    dropped_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that this schema does not have, by table."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The disk space of the database and its log before and after."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """One session in the inventory of a home, without any of its text."""

    id: str
    source: str
    title: str | None
    parent_id: str | None
    link: LinkKind | None
    session_key: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    archived: bool
    pinned: bool
    api_calls: int | None
    expiry_finalized: bool
    last_active_at: float | None
    """The time of the last message, or of the start without messages, or None if unknown."""
    live: int
    rows: int
    """The number of all its messages, live or not."""
    counted: int | None
    """The number of live messages according to its row."""
    revision: Revision


@dataclass(frozen=True, slots=True)
class OrphanRows:
    """Rows of a table that belong to a session that does not exist."""

    table: str
    column: str
    session_id: str
    rows: int
    last_at: float | None = None
    """The time of the newest row, if the table stores it."""


@dataclass(frozen=True, slots=True)
class BlockedIndex:
    """A search index that this process cannot write, because its tokenizer or module is missing."""

    name: str
    needs: str
    tables: tuple[str, ...]
    """Tables without inserts and deletes, since their triggers write to the index."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A stored note that a process works on a session, which may be outdated."""

    kind: Literal["compression", "turn", "gateway"]
    session_id: str | None
    holder: str
    at: float | None
    """The time of the claim or of its last heartbeat."""
    expires_at: float | None
    pid: int | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """Facts about a home other than its sessions."""

    orphans: tuple[OrphanRows, ...]
    claims: tuple[Claim, ...]
    weeks: tuple[int, ...]
    """The estimated number of messages in each of the last weeks, the current one first."""
    tokens: Mapping[str, int]
    cost: float
    engine: str
    fault: str | None
    """A known defect of this version of the engine."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The SQLite library in use."""

    name: SqliteChoice
    version: str
    fixed: bool
    """True if the library does not have the WAL checkpoint race."""
