"""Types of the tool answers, from which the output schemas are generated."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

Status = Literal["open", "ended", "archived"]


class SessionOutput(TypedDict):
    """One conversation."""

    id: str
    root_id: NotRequired[str]
    title: str | None
    preview: str
    source: str
    status: Status
    started_at: str | None
    last_active_at: str | None
    ended_at: NotRequired[str]
    end_reason: NotRequired[str]
    messages: NotRequired[int]
    project: NotRequired[str]
    pinned: bool
    store: NotRequired[str]
    chat: NotRequired[str]
    resume: NotRequired[str]
    kept: NotRequired[bool]


class ListedSessionOutput(SessionOutput):
    """One conversation of a list, with the fields that only `detail=detailed` adds."""

    branch: NotRequired[str]
    model: NotRequired[str]
    cost: NotRequired[float]
    tokens: NotRequired[int]


class SessionsPage(TypedDict):
    """A page of conversations."""

    sessions: list[ListedSessionOutput]
    next_cursor: str | None
    note: NotRequired[str]


class ReadSessionOutput(SessionOutput):
    """The session of a read page, with its neighbours."""

    continues: NotRequired[str]
    continued_by: NotRequired[str]


class AttachmentOutput(TypedDict):
    """A part of a message that is not text."""

    kind: str
    name: NotRequired[str]
    bytes: NotRequired[int]


class MessageOutput(TypedDict):
    """One message."""

    id: int
    role: str
    text: str
    at: str | None
    tool: NotRequired[str]
    compacted: NotRequired[bool]
    session_id: NotRequired[str]
    cut_chars: NotRequired[int]
    attachments: NotRequired[list[AttachmentOutput]]


class MessagesPage(TypedDict):
    """A page of messages of a session."""

    session: ReadSessionOutput
    messages: list[MessageOutput]
    next_cursor: str | None
    prev_cursor: NotRequired[str]
    note: NotRequired[str]


class HitOutput(TypedDict):
    """A search hit."""

    session_id: str
    message_id: int
    role: str
    at: str | None
    snippet: str
    next: NotRequired[str]
    title: str | None
    source: str
    compacted: NotRequired[bool]
    store: NotRequired[str]


# From strict to loose.
MatchMode = Literal["all", "conversation", "prefix", "any", "substring", "text", "title"]


class HitsPage(TypedDict):
    """Search hits, best first."""

    hits: list[HitOutput]
    matched: MatchMode
    searched_back_to: str | None
    coverage: NotRequired[float]
    next_cursor: str | None
    note: NotRequired[str]


class RouteOutput(TypedDict):
    """A chat and its current session."""

    session_key: str
    session_id: str
    platform: str | None
    state: Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]
    name: str | None
    updated_at: str | None
    store: NotRequired[str]


class RoutesPage(TypedDict):
    """A page of routes."""

    routes: list[RouteOutput]
    next_cursor: str | None
    note: NotRequired[str]


class SessionCountsOutput(TypedDict):
    """Counts of sessions."""

    total: int
    open: int
    ended: int
    archived: int
    by_source: dict[str, int]


class SizeOutput(TypedDict):
    """Bytes of a home on the disk."""

    db: int
    wal: int
    index: int
    free: int
    trash: int


class FindingOutput(TypedDict):
    """A fault or a waste of space, with the tool call that fixes it."""

    code: str
    count: int
    bytes: int
    what: str
    tool: str | None


class StoreOutput(TypedDict):
    """The contents of one store."""

    name: str
    sessions: int
    messages: int
    bytes: int
    coverage: NotRequired[float]


class KeepOutput(TypedDict):
    """The kept sessions of other agents."""

    on: bool
    sessions: int
    bytes: int
    source_gone: int


class StatsOutput(TypedDict):
    """The report on the stores."""

    home: str
    stores: list[StoreOutput]
    sessions: SessionCountsOutput
    messages: int
    size: SizeOutput
    growth_per_week: int
    tokens: dict[str, int]
    cost: float
    findings: list[FindingOutput]
    sqlite: str
    gateway_live: bool
    estimated: bool
    keep: NotRequired[KeepOutput]


class EventOutput(TypedDict):
    """An event of a session."""

    type: Literal[
        "message",
        "session_started",
        "session_ended",
        "title_changed",
        "route_changed",
        "compressed",
    ]
    at: str | None
    session_id: str
    store: NotRequired[str]
    message_id: NotRequired[int]
    role: NotRequired[str]
    text: NotRequired[str]
    title: NotRequired[str]
    session_key: NotRequired[str]
    reason: NotRequired[str]


class EventsOutput(TypedDict):
    """Events since a cursor."""

    events: list[EventOutput]
    cursor: str
    gap: bool
    note: NotRequired[str]


class EditOutput(TypedDict):
    """Edited sessions."""

    sessions: list[SessionOutput]
    batch: str | None
    note: NotRequired[str]


class PlanItemOutput(TypedDict):
    """One item of a plan."""

    id: str
    title: str | None
    why: str
    messages: NotRequired[int]
    last_active_at: NotRequired[str]


class PlanTotalsOutput(TypedDict):
    """The totals of a plan."""

    messages: int
    bytes: int
    by_source: dict[str, int]


class ProtectedOutput(TypedDict):
    """The protected sessions for one reason: their number, and the first ids."""

    why: str
    count: int
    ids: list[str]


class PlanBytesOutput(TypedDict):
    """Bytes on the disk: estimates in a plan, measured in a result."""

    needed_now: int
    free_in_file: int
    returned_to_disk: int
    trash: int


class SkippedOutput(TypedDict):
    """An item that was left unchanged."""

    id: str
    why: str


class AnyPlanOutput(TypedDict):
    """A plan of any tool, or its result after applying."""

    # Its values are in the documentation: an enumeration in each schema costs too much.
    outcome: str
    plan: str | None
    expires_at: str | None
    count: int
    bytes: PlanBytesOutput
    warnings: list[str]
    remaining: NotRequired[int]
    batch: NotRequired[str | None]
    store: NotRequired[str]


class PlanOutput(AnyPlanOutput):
    """A plan about several items, or its result after applying."""

    items: list[PlanItemOutput]
    protected: list[ProtectedOutput]
    skipped: NotRequired[list[SkippedOutput]]


class PruneOutput(PlanOutput):
    """The plan or result of a prune."""

    totals: NotRequired[PlanTotalsOutput]
    next_cursor: NotRequired[str | None]
    removed: NotRequired[int]
    next: NotRequired[str]
    note: NotRequired[str]


class FinalizeOutput(PlanOutput):
    """The plan or result of a finalize."""

    totals: NotRequired[PlanTotalsOutput]
    finalized: NotRequired[int]
    note: NotRequired[str]


class BatchOutput(TypedDict):
    """A change that can be undone."""

    batch: str
    at: str | None
    tool: str
    count: int
    expires_at: str | None
    store: NotRequired[str]


class RestoreOutput(TypedDict):
    """The list of undoable changes, or the plan or result of a restore."""

    batches: NotRequired[list[BatchOutput]]
    next_cursor: NotRequired[str | None]
    note: NotRequired[str]
    outcome: NotRequired[str]
    plan: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    count: NotRequired[int]
    items: NotRequired[list[PlanItemOutput]]
    protected: NotRequired[list[ProtectedOutput]]
    bytes: NotRequired[PlanBytesOutput]
    warnings: NotRequired[list[str]]
    restored: NotRequired[int]
    skipped: NotRequired[list[SkippedOutput]]
    remaining: NotRequired[int]
    batch: NotRequired[str | None]
    store: NotRequired[str]


class BriefOutput(TypedDict):
    """The brief for the writer of a summary."""

    from_id: int
    to_id: int
    messages: int
    tokens: int
    must_survive: list[str]
    target_chars: int
    digest: str


class RetentionOutput(TypedDict):
    """The number of facts found, and of those that the summary keeps."""

    found: int
    kept: int
    by_kind: dict[str, list[int]]


class CompressOutput(AnyPlanOutput):
    """The plan with its brief, or the result of a compression."""

    brief: NotRequired[BriefOutput]
    shape: NotRequired[Literal["in_place", "continuation"]]
    session_id: NotRequired[str]
    tokens_before: NotRequired[int]
    tokens_after: NotRequired[int]
    retention: NotRequired[RetentionOutput]
