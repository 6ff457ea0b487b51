"""Make plans: select the members of each kind and record them in the ledger with their state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.ledger.types import Member
from session_core.maintenance import disk, kinds, members, space_reclaim
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.kinds import PlanKind
from session_core.maintenance.members import PlanDraft
from session_core.maintenance.select.snapshot import (
    MEASUREMENT_NAME,
    MaintenanceSnapshot,
    measure_message_bytes,
    take_snapshot,
)
from session_core.maintenance.types import (
    MAX_ITEMS,
    Bytes,
    PlanPreview,
    PlanRequest,
    PlanTotals,
    to_recorded,
)
from session_core.state import validation
from session_core.state.protocol import StateDatabase
from session_core.state.query import is_match, parse_query
from session_core.state.search_text import fold_text
from session_core.state.validation import check_line

_TRASH_SHARE = 0.15
"""The approximate size of trash, relative to the rows with all their indexes in the database."""

_MAX_NAMES = 5

_MAX_KEEP_ENTRIES = 200
_HIT_PAGE_SIZE = 100


def make_plan(home: HomeContext, request: PlanRequest) -> PlanPreview:
    """Record a plan for a request."""
    kind = kinds.PLAN_KINDS[request.kind]
    check_request(kind, request)
    snapshot = take_snapshot(home)
    all_sessions = snapshot.conversations.sessions.values()
    titles = {session.id: session.title for session in all_sessions if session.title}
    kept, unmatched = find_kept_sessions(home.db, titles, request.keep)
    draft = PlanDraft(replace(snapshot, kept=kept))
    add_selected(draft, kind, request)
    return record_plan(home, kind.name, draft, request, map(_format_unmatched_warning, unmatched))


def _format_unmatched_warning(entry: str) -> str:
    return f"keep {entry!r:.80} is in no message, title or id, so it protects nothing"


def add_selected(draft: PlanDraft, kind: PlanKind, request: PlanRequest) -> None:
    """Add the members that a kind of plan selects to a draft."""
    select = kinds.load_function(kind.select)
    if kind.part:
        draft.add_sessions(kind.part, select(draft.snapshot, request))
    else:
        select(draft, request)


def add_all_kinds(draft: PlanDraft, request: PlanRequest) -> None:
    """Add the members of each kind that a plan of all kinds includes."""
    for kind in kinds.list_requestable("prune"):
        if kind.is_in_all:
            # Each kind has its own default age, unless the request gives one for all.
            part = PlanRequest(kind.what, "prune", None, request.where, request.older_than_days)
            add_selected(draft, kind, part)


def record_plan(
    home: HomeContext,
    kind: str,
    draft: PlanDraft,
    wanted: PlanRequest,
    more: Iterable[str] = (),
    **about: Any,
) -> PlanPreview:
    """Record a draft as a plan of a kind.

    `more` are further warnings, `about` further values to store with the plan.
    """
    snapshot = draft.snapshot
    selected = list(draft.members.values())
    warnings = (*more, *_list_warnings(snapshot, kinds.PLAN_KINDS[kind], wanted, selected))
    items = tuple(draft.items[member.id] for member in selected[:MAX_ITEMS])
    protected = dict(draft.protected.most_common())
    if not selected:
        ids = draft.protected.ids
        return PlanPreview("nothing", None, None, 0, (), protected, Bytes(), warnings, ids)
    # An end changes a row in place and needs neither room nor a writable search index.
    deletes_rows = wanted.verb != "finalize"
    if deletes_rows:  # an index that blocks it is reported before a plan is made
        home.db.rows.check_rows_writable(draft.list_changed_tables())
    size = estimate_bytes(draft) if deletes_rows else Bytes()
    about |= {
        "wanted": {"verb": wanted.verb, "what": wanted.what, "start_new": wanted.start_new},
        **to_recorded(items, protected, size, warnings),
        "protected_ids": draft.protected.ids,
        **({"totals": asdict(measure_totals(draft))} if draft.by_source else {}),
        MEASUREMENT_NAME: measure_message_bytes(home.ledger, snapshot, lambda: draft.sizes),
    }
    return PlanPreview.from_plan(
        home.ledger.add_plan(kind, selected, about, snapshot.get_cutoff(wanted))
    )


def measure_totals(draft: PlanDraft) -> PlanTotals:
    """Return the totals of a plan."""
    size = draft.snapshot.estimate_bytes(draft.rows, draft.sizes)
    return PlanTotals(draft.rows, size, dict(draft.by_source.most_common()))


def estimate_bytes(draft: PlanDraft) -> Bytes:
    """Return an estimate of the disk space that a plan to prune needs and frees."""
    snapshot, sizes = draft.snapshot, draft.sizes
    rows = snapshot.estimate_bytes(draft.rows, sizes)
    trash = int(rows * _TRASH_SHARE) + draft.file_bytes
    if draft.has_part("index"):
        can_shrink = space_reclaim.find_rewrite_obstacle(snapshot.activity.company) is None
        size = space_reclaim.estimate_rewrite_bytes(sizes, rows, can_shrink=can_shrink)
    else:
        freed = disk.estimate_freed_bytes(sizes, draft.rows, snapshot.rows)
        size = Bytes(free_in_file=freed)
    return replace(
        size,
        needed_now=size.needed_now + trash,
        returned_to_disk=size.returned_to_disk + draft.file_bytes,
        trash=trash,
    )


def check_request(kind: PlanKind, request: PlanRequest) -> None:
    """Require a consistent request.

    Raises:
        InvalidInput: the request is inconsistent.
    """
    if kind.needs_ids and not request.ids:
        raise InvalidInput(f"ids must name the sessions to {kind.tool}")
    if request.ids is not None and not kind.takes_ids:
        accepting = (kind.name for kind in kinds.list_requestable() if kind.takes_ids)
        raise InvalidInput(f"{kind.name} does not accept ids; only {', '.join(accepting)} do")
    if request.start_new and request.verb != "finalize":
        raise InvalidInput("start_new is only valid for finalize")
    check_line("reason", request.reason)
    empty_filters = [
        name for name in _TEXT_FILTERS if _has_empty_text(getattr(request.where, name, None))
    ]
    if empty_filters:
        raise InvalidInput(
            f"{empty_filters[0].partition('_')[0]} is empty and would match everything"
        )


def _has_empty_text(value: str | Collection[str] | None) -> bool:
    """Return True for an empty text, or for a list with an empty text."""
    return value == "" if isinstance(value, str) else "" in (value or ())


_TEXT_FILTERS = ("project", "title_like", "cwd_prefix", "model_like", "branch_like")
"""An empty value of these filters would match everything; it is most likely a mistake of the
caller."""


def _list_warnings(
    snapshot: MaintenanceSnapshot, kind: PlanKind, request: PlanRequest, selected: Iterable[Member]
) -> Iterator[str]:
    if request.ids is not None and kind.part:
        unmatched = snapshot.list_unmatched(request.ids, request.where)
        if unmatched:
            names = ", ".join(unmatched[:_MAX_NAMES]) + (", ..." if unmatched[_MAX_NAMES:] else "")
            count = len(unmatched)
            yield f"{count} of the named sessions do not match the filter and stay: {names}"
    company = snapshot.activity.company
    part_names = {members.get_part(member) for member in selected}
    parts = [part for name, part in kinds.PLAN_PARTS.items() if name in part_names]
    if company.gateway is not None and (kind.changes_routes or request.start_new):
        yield f"{company.gateway} holds the routes in memory: stop it to change them"
    if company.holders and any(part.is_limited_by_holders for part in parts):
        holders = ", ".join(map(str, company.holders))
        yield f"{holders} has the database open: open and recently ended sessions stay"
    ends_sessions = any(part.ends_sessions for part in parts)
    if ends_sessions and snapshot.db.admin.get_capabilities().foreign_gateway:
        yield PLUGINS_WARNING


PLUGINS_WARNING = "plugins of Hermes are not called for sessions finalized here; our own hooks are"


def parse_keep(keep: Sequence[str]) -> tuple[str, ...]:
    """Validate `keep` and return it as a tuple.

    Raises:
        InvalidInput: an entry is empty, or there are too many.
    """
    entries = validation.parse_texts("keep", keep) or ()
    if len(entries) > _MAX_KEEP_ENTRIES:
        raise InvalidInput(
            f"keep must have at most {_MAX_KEEP_ENTRIES} entries, got {len(entries):,}"
        )
    for entry in entries:
        if not _split_words(entry):
            raise InvalidInput(f"keep must not have an entry without a word, got {entry!r:.40}")
    return entries


def find_kept_sessions(
    db: StateDatabase, titles: Mapping[str, str], keep: Sequence[str]
) -> tuple[set[str], list[str]]:
    """Return the sessions that `keep` protects, and its entries that match no session.

    `titles` are the titles by session. If an entry can be an id and a query, it keeps the sessions
    of both, since too much protection does no harm.
    """
    kept: set[str] = set()
    unmatched = []
    entries = parse_keep(keep)
    folded_titles = {id_: fold_text(title) for id_, title in titles.items()} if entries else {}
    for entry in entries:
        sessions = _find_sessions(db, folded_titles, entry)
        kept |= sessions
        if not sessions:
            unmatched.append(entry)
    return kept, unmatched


def _find_sessions(db: StateDatabase, titles: Mapping[str, str], entry: str) -> set[str]:
    if db.get_session(entry) is not None:
        return {entry}
    by_prefix = db.resolve_session_id(entry)
    # Quoted and joined, so that no word is an operator and no looser match is tried.
    query = " AND ".join(f'"{word}"' for word in _split_words(entry))
    node = parse_query(query).node
    titled = {id_ for id_, title in titles.items() if node is not None and is_match(node, title)}
    by_id = set() if by_prefix is None else {by_prefix}
    return {*by_id, *titled, *_search_messages(db, query)}


def _split_words(entry: str) -> list[str]:
    words = entry.replace('"', " ").split()
    return [word for word in words if any(char.isalnum() for char in word)]


def _search_messages(db: StateDatabase, query: str) -> set[str]:
    """Return all sessions with a message that matches."""
    session_ids: set[str] = set()
    cursor: str | None = None
    while True:
        page = db.search(query, status="all", limit=_HIT_PAGE_SIZE, cursor=cursor)
        session_ids.update(hit.session_id for hit in page.hits)
        cursor = page.next_cursor
        if cursor is None:
            return session_ids
