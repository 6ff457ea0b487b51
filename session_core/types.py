"""The values that go in and out of the library; rows are mappings, everything else is frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

HomeKind = Literal["own", "hermes", "absent"]
"""A home of our own, one of Hermes, or a Hermes home that has no state database."""

LinkKind = Literal["continuation", "branch", "delegate", "other"]
"""What `parent_session_id` means; only a continuation is the same conversation."""

MessageView = Literal["live", "full"]
"""Live rows alone, or compacted ones too; rewound rows are in neither."""

SessionStatus = Literal["open", "ended", "archived", "all"]
SessionOrder = Literal["recent", "started", "size"]
SearchMode = Literal["words", "substring"]
SearchUnit = Literal["conversation", "message"]
MatchMode = Literal["all", "prefix", "any", "substring", "text"]


class SessionRow(TypedDict, total=False):
    """One row of `sessions`, with the columns that this home has."""

    id: str
    source: str
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    display_name: str | None
    origin_json: str | None
    expiry_finalized: int
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
    git_branch: str | None
    git_repo_root: str | None
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
    compression_failure_cooldown_until: float | None
    compression_failure_error: str | None
    compression_fallback_streak: int
    profile_name: str | None
    rewind_count: int
    archived: int
    pinned: int


class MessageRow(TypedDict, total=False):
    """One row of `messages`; `content` and `tool_calls` are decoded, other JSON is as stored."""

    id: int
    session_id: str
    role: str
    content: Any
    tool_call_id: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_name: str | None
    effect_disposition: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: str | None
    codex_reasoning_items: str | None
    codex_message_items: str | None
    platform_message_id: str | None
    observed: int
    active: int
    compacted: int
    api_content: str | None


class Revision(NamedTuple):
    """What a session is at one moment; equal revisions mean that nothing was changed."""

    last_id: int
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
        """Carry the revisions along with the id."""
        appended = super().__new__(cls, message_id)
        appended.before = before
        appended.after = after
        appended.created = created
        return appended

    def __reduce__(self) -> tuple[type[Self], tuple[int, Revision, Revision, bool]]:
        """Return what a copy is made of, as one that goes to another process."""
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
    """A part of a list, with the cursor of the next part; None at the end."""

    items: list[T]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions; every condition that is given must hold.

    Message counts are live rows, counted; `active_*` is the time of the last message, or of the
    start where there is none; in a list `started_*` is when the conversation began, as its line
    says. `project` is a folder: a working folder or git root in or below it. Folder, source, user
    and chat of a continuation are those of the nearest earlier session of its conversation that
    has them.
    """

    ids: tuple[str, ...] | None = None
    words: str | None = None
    source: tuple[str, ...] | None = None
    status: SessionStatus | None = None
    project: str | None = None
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
        """Make equal what means the same, and keep what an iterator gives only once."""
        for name in ("ids", "source"):
            given = getattr(self, name)
            if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
                found = tuple(given)
                if all(isinstance(text, str) for text in found):
                    found = tuple(sorted(set(found)))
                object.__setattr__(self, name, found)


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of a list: a conversation, which is its tip with the start of its root."""

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
    """The message of which the preview is the beginning."""


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """Some messages of a session in the order of their ids, and whether there are more."""

    messages: list[MessageRow]
    more_before: bool
    more_after: bool


@dataclass(frozen=True, slots=True)
class RewindResult:
    """What a rewind took back."""

    target: MessageRow
    rewound: int
    last_id: int | None
    """The newest message that is still live."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One found message, with its conversation."""

    session_id: str
    message_id: int
    role: str
    at: float
    snippet: str
    title: str | None
    source: str
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, best first, and how the query was understood.

    `searched_back_to` is the time of the oldest message that was looked at, where that was not all;
    the cursor goes on from there.
    """

    hits: list[SearchHit]
    matched: MatchMode
    searched_back_to: float | None = None
    next_cursor: str | None = None


EventType = Literal["message", "session_started", "session_ended"]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that was committed."""

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
    """What was committed since a cursor; after a gap, list again."""

    events: list[SessionEvent]
    cursor: str
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check found wrong."""

    code: str
    count: int
    what: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes on disk; `tables` and `index` are estimates unless `exact`."""

    db: int
    wal: int
    free: int
    index: int
    tables: Mapping[str, int] = field(default_factory=dict)
    exact: bool = False
    index_copies: int = 0
    """How much of `index` is a copy of the text, which some layouts of Hermes keep."""
    index_dead: int = 0
    """About how much of `index` belongs to deleted messages; merging frees it within the file."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Another process that has the database open; its name where the system tells."""

    pid: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'process'} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class RawText:
    """Text that is no UTF-8, as it is stored."""

    stored: bytes

    def __len__(self) -> int:
        return len(self.stored)


@dataclass(frozen=True, slots=True)
class RowImages:
    """Rows of one table as they are stored.

    A table without a primary key has its row ids among the columns. Rows that are `shared` are
    those that others refer to: they are kept and put back, and never removed. `of` is the session
    whose rows these are, where no column of theirs needs to say so.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    shared: bool = False
    of: str | None = None
    at: object = field(default=None, compare=False, repr=False)
    """Until when its database knows that they are as they were; None where it does not."""

    def pack(self) -> list[Any]:
        """Return it as JSON in which bytes may stand."""
        rows: Any = self.rows
        if any(RawText in map(type, row) for row in rows):
            rows = [[_pack_value(value) for value in row] for row in rows]
        return [self.table, self.columns, rows, self.shared, self.of]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Self:
        """Return what was packed."""
        table, columns, rows, shared, of = packed
        whole = tuple(tuple(map(_unpack_value, row)) for row in rows)
        return cls(table, tuple(columns), whole, shared, of)


def _pack_value(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, RawText) else value


def _unpack_value(value: Any) -> Any:
    return RawText(value["raw"]) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class RowMismatch:
    """A row that was not put back, or with `column` a value of one that was, and why."""

    table: str
    key: tuple[Any, ...]
    why: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of rows that were put back."""

    inserted: int = 0
    present: int = 0
    """Rows that were there already, as they were."""
    refused: tuple[RowMismatch, ...] = ()
    emptied: tuple[RowMismatch, ...] = ()
    dropped_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table, what this schema has no column for."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What the database and its log take on the disk before and after."""

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class InventoryItem:
    """One session in the inventory of a home: what decides about it, and none of its text."""

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
    """The time of its last message, of its start where it has none, None where nobody knows."""
    live: int
    rows: int
    """Its messages, also those that are not live any more."""
    counted: int | None
    """How many live ones its row says it has."""
    revision: Revision


@dataclass(frozen=True, slots=True)
class OrphanRows:
    """Rows of a table that belong to a session which is not there."""

    table: str
    column: str
    session_id: str
    rows: int
    last_at: float | None = None
    """When the last of them came, where the table says so."""


@dataclass(frozen=True, slots=True)
class BlockedIndex:
    """A search index that this process cannot write, for lack of its tokenizer or module."""

    name: str
    needs: str
    tables: tuple[str, ...]
    """Tables whose rows can be neither inserted nor deleted, since their triggers write to it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody has noted in the database that he is at; it may be long ago."""

    kind: Literal["compression", "turn", "gateway"]
    session_id: str | None
    holder: str
    at: float | None
    """When he took it on or said last that he lives."""
    expires_at: float | None
    pid: int | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """What is known of a home beside its sessions."""

    orphans: tuple[OrphanRows, ...]
    claims: tuple[Claim, ...]
    weeks: tuple[int, ...]
    """About how many messages came in each of the last weeks, this one first."""
    tokens: Mapping[str, int]
    cost: float
    engine: str
    fault: str | None
    """What is known to be wrong with this version of the engine."""
