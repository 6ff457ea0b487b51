"""The table of plan kinds: for each its selector, executor, default age and words.

Functions are named by their paths below this package and loaded on first use, so that the names of
the kinds can be read without loading maintenance. No other module of maintenance decides by the
name of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from session_core.compression.types import COMPRESS, UNDO
from session_core.errors import InvalidInput

if TYPE_CHECKING:
    from session_core.maintenance.apply.step_items import PartRun
    from session_core.maintenance.members import PartExecutor

Tool = Literal["prune", "finalize", "compress", "restore"]

UNDO_IMPORT = "undo an import"

MAKE_PLAN = "planner:make_plan"
APPLY_PLAN = "apply.run:apply_plan"


@dataclass(frozen=True, slots=True)
class PlanPart:
    """An operation on the members of a plan, and the rules that apply to these members."""

    executor: str
    """The path of the class that drafts its steps."""
    deletes_from: tuple[str, ...] = ()
    """The tables from which it deletes rows of sessions, for the check of the search indexes."""
    is_limited_by_holders: bool = False
    """True if sessions stay that another process with the database open may use."""
    ends_sessions: bool = False
    changes_routes: bool = False
    """True if a running gateway would overwrite the change."""


@dataclass(frozen=True, slots=True)
class PlanKind:
    """A kind of plan.

    `plan(home, request)` makes a plan and `apply(home, plan, request)` applies it. By default,
    `select(snapshot, request)` returns the sessions that become members of `part`; without a part,
    `select(draft, request)` adds the members itself.
    """

    name: str
    tool: Tool
    """The tool that applies it."""
    action: str
    noun: str
    """`action` and `noun` describe a plan: Remove 3 routes."""
    summary: str = ""
    """One line of help; empty if callers cannot request the kind."""
    select: str = ""
    part: str = ""
    plan: str = MAKE_PLAN
    apply: str = APPLY_PLAN
    age_days: float = 0
    """The default minimum number of days since the last activity."""
    takes_ids: bool = False
    needs_ids: bool = False
    changes_routes: bool = False
    """True if a running gateway prevents it."""
    ends_routed: bool = False
    """True if it also ends sessions to which a chat is routed."""
    follows_policy: bool = False
    """True if a session ends only while the reset policy of its chat still ends it."""
    is_in_all: bool = False
    """True if a plan of all kinds includes it."""
    deletes_rows: bool = False
    rewrites_file: bool = False
    has_undo: bool = True
    finding: tuple[str, str] | None = None
    """The code and the words of the finding that a report has for its items."""

    @property
    def can_keep(self) -> bool:
        """Return True if a request may name conversations to keep."""
        return bool(self.part) or self.name == "prune all"

    @property
    def what(self) -> str:
        """The name without the verb, as a request has it."""
        return self.name.partition(" ")[2]


_ROWS = (
    PlanKind(
        "prune sessions",
        "prune",
        "Remove",
        "conversation",
        "ended conversations, inactive for 90 days (change with --older-than)",
        select="select.session_selectors:select_old_sessions",
        part="sessions",
        age_days=90,
        takes_ids=True,
        is_in_all=True,
        deletes_rows=True,
        finding=("old_sessions", "conversations that ended and were not active for 90 days"),
    ),
    PlanKind(
        "prune ghosts",
        "prune",
        "Remove",
        "empty session",
        "sessions that were opened and left empty",
        select="select.ghosts:select_ghosts",
        part="ghosts",
        age_days=1,
        is_in_all=True,
        deletes_rows=True,
        finding=("ghosts", "empty sessions"),
    ),
    PlanKind(
        "prune routes",
        "prune",
        "Remove",
        "route",
        "chats whose session is gone or has ended",
        select="select.lost_routes:add_lost_routes",
        age_days=1,
        takes_ids=True,
        changes_routes=True,
        is_in_all=True,
    ),
    PlanKind(
        "prune orphans",
        "prune",
        "Remove",
        "leftover",
        "rows and files of missing sessions",
        select="select.orphans:add_orphans",
        age_days=1,
        is_in_all=True,
    ),
    PlanKind(
        "prune index",
        "prune",
        "Merge",
        "search index",
        "merge the search index and return free space to the disk",
        select="space_reclaim:add_index",
        plan="space_reclaim:make_plan",
        apply="space_reclaim:apply_plan",
        is_in_all=True,
        rewrites_file=True,
        has_undo=False,
    ),
    PlanKind(
        "prune trash",
        "prune",
        "Permanently delete",
        "batch",
        "expired batches in the trash; cannot be undone",
        plan="trash_plan:make_plan",
        apply="trash_plan:apply_plan",
        takes_ids=True,
        has_undo=False,
    ),
    PlanKind(
        "prune all",
        "prune",
        "Remove",
        "item",
        "all of these except the trash",
        select="planner:add_all_kinds",
        changes_routes=True,
        deletes_rows=True,
        rewrites_file=True,
    ),
    PlanKind(
        "delete sessions",
        "prune",
        "Delete",
        "conversation",
        select="select.session_selectors:select_named_to_delete",
        part="deleted",
        takes_ids=True,
        deletes_rows=True,
    ),
    PlanKind(
        "finalize sessions",
        "finalize",
        "End",
        "session",
        "the sessions named by --session",
        select="select.session_selectors:select_named_to_end",
        part="ended",
        takes_ids=True,
        needs_ids=True,
        ends_routed=True,
    ),
    PlanKind(
        "finalize expired",
        "finalize",
        "End",
        "expired session",
        "sessions that the reset policy of their chat will end",
        select="select.session_selectors:select_expired",
        part="ended",
        ends_routed=True,
        follows_policy=True,
        finding=("expired", "sessions of chats that their policy has ended"),
    ),
    PlanKind(
        "finalize orphaned",
        "finalize",
        "End",
        "orphaned continuation",
        "continuations that never ran, 7 days old",
        select="select.session_selectors:select_orphaned_continuations",
        part="ended",
        age_days=7,
        finding=("orphaned_continuations", "continuations that never ran"),
    ),
    PlanKind(
        "finalize abandoned",
        "finalize",
        "End",
        "abandoned session",
        "sessions that never ended, inactive for 30 days",
        select="select.session_selectors:select_abandoned",
        part="ended",
        age_days=30,
        finding=("abandoned", "conversations that never ended and were not active for 30 days"),
    ),
    PlanKind(COMPRESS, "compress", "Compress", "message", apply=""),
    PlanKind(
        UNDO,
        "restore",
        "Undo a compression by dropping",
        "session",
        apply="restore.batch_restore:apply_compression_undo",
        has_undo=False,
    ),
    PlanKind(
        UNDO_IMPORT,
        "restore",
        "Undo an import by removing",
        "conversation",
        apply="transfer.import_undo:apply_plan",
        deletes_rows=True,
    ),
)

PLAN_KINDS: Mapping[str, PlanKind] = {kind.name: kind for kind in _ROWS}
"""Every kind of plan by its name, as plans, batches and the audit log have it."""

PLAN_PARTS: Mapping[str, PlanPart] = {
    "sessions": PlanPart(
        "apply.session_remover:SessionRemover",
        deletes_from=("sessions", "messages"),
        is_limited_by_holders=True,
    ),
    "ghosts": PlanPart(
        "apply.session_remover:SessionRemover",
        deletes_from=("sessions",),
        is_limited_by_holders=True,
    ),
    "deleted": PlanPart(
        "apply.session_remover:OwnedSessionRemover", deletes_from=("sessions", "messages")
    ),
    "ended": PlanPart("apply.session_finalizer:SessionFinalizer", ends_sessions=True),
    # Files come before routes, since the process that writes the mirror also cleans up its folder.
    "files": PlanPart("apply.orphan_removers:OrphanedFileRemover"),
    "routes": PlanPart("apply.route_removal:LostRouteRemover", changes_routes=True),
    "rows": PlanPart("apply.orphan_removers:OrphanedRowRemover"),
    "locks": PlanPart("apply.orphan_removers:DeadLockRemover"),
    "links": PlanPart("apply.orphan_removers:BrokenLinkRemover"),
}
"""The parts of plans by name."""

PART_ORDER: tuple[str, ...] = tuple(PLAN_PARTS)
"""The order in which parts are applied. The index is no part of it: it comes last, outside any
transaction."""


def list_requestable(tool: str | None = None) -> Iterator[PlanKind]:
    """Yield the kinds that callers can request, of one tool or of all tools."""
    return (kind for kind in _ROWS if kind.summary and tool in (None, kind.tool))


def get_requested_kind(name: str) -> PlanKind:
    """Return a kind that callers can request.

    Raises:
        InvalidInput: the kind is unknown.
    """
    kind = PLAN_KINDS.get(name)
    if kind is None or not kind.summary:
        known_names = ", ".join(sorted(kind.name for kind in list_requestable()))
        raise InvalidInput(f"unknown kind of plan {name!r}; known kinds: {known_names}")
    return kind


def create_executor(part: str, run: PartRun) -> PartExecutor:
    """Return the executor of a part of a plan."""
    executor: PartExecutor = load_function(PLAN_PARTS[part].executor)(run)
    return executor


def load_function(path: str) -> Any:
    """Return the function or class of a path such as `select.ghosts:select_ghosts`."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"session_core.maintenance.{module}"), name)
