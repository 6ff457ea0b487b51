"""Relations between sessions: continuation, branch and delegate, with root, tip and chain.

Only a continuation belongs to the same conversation: its parent ended by compression, and neither a
mark nor its source contradicts that. Every walk remembers its path, so a cycle or a broken link
ends it.

Hermes stores folder, source and owner only with the first session of a conversation, so a
continuation inherits them from its nearest ancestor that has them. Branches and delegates do not
inherit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from session_core.errors import InvalidInput
from session_core.state import sql_blocks
from session_core.state.content import decode_json
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import LinkKind, SessionRow

SQL = sql_blocks.load_blocks("lineage")

_DELEGATE, _BRANCH = "_delegate_from", "_branched_from"
_ORPHANED_MARK = "__orphaned__"
"""The mark of a delegate whose delegator Hermes does not know."""

LinkRow = Mapping[str, Any]


class SqliteLineage(SqliteOperations):
    """Relations between sessions."""

    def get_link_kind(self, session_id: str) -> LinkKind | None:
        """Return the relation of a session to its parent, or None if it has no parent.

        A delegate is recognized by its mark, even if it has lost its parent.
        """
        return self._read(lambda handle: find_link_kind(handle, session_id))

    def get_compression_tip(self, session_id: str) -> str:
        """Return the newest continuation of the conversation, or the session itself."""
        return self._read(lambda handle: find_tip(handle, session_id))

    def get_conversation_root(self, session_id: str) -> str:
        """Return the first session of the conversation.

        A branch or a delegate begins a conversation of its own. Hermes also follows their parents.
        """
        return self._read(lambda handle: find_conversation_root(handle, session_id))

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """Return the ids of the sessions of a conversation, from root to tip."""
        return self._read(lambda handle: list_chain(handle, session_id))

    def list_children(self, session_id: str) -> list[SessionRow]:
        """Return the child sessions, oldest first."""
        return self._read(
            lambda handle: cast(
                "list[SessionRow]", handle.fetch_rows(SQL["list_children"], (session_id,))
            )
        )


def classify_link(link: LinkRow) -> LinkKind | None:
    """Return the relation of a session to its parent, or None if it has no parent."""
    # First, since a delegate keeps its mark when it has lost its parent.
    if is_delegate(link["model_config"]):
        return "delegate"
    if link["parent_session_id"] is None:
        return None
    if _get_mark(link["model_config"], _BRANCH) is not None:
        return "branch"
    if link["source"] == "tool":
        return "other"
    if link["parent_reason"] == "compression":
        return "continuation"
    ended_at = link["parent_ended_at"]
    # A branch without a mark: its parent ended as "branched" before it began.
    if link["parent_reason"] == "branched" and ended_at and ended_at <= link["started_at"]:
        return "branch"
    return "other"


def is_delegate(model_config: Any) -> bool:
    """Return True if a session has the mark of a delegate, with any value."""
    return _get_mark(model_config, _DELEGATE) is not None


def get_delegator(model_config: Any) -> str | None:
    """Return the session that the mark of a delegate names, or None."""
    mark = _get_mark(model_config, _DELEGATE)
    return mark if isinstance(mark, str) and mark != _ORPHANED_MARK else None


def list_unlinked_delegates(handle: Connection) -> dict[str, list[str]]:
    """Return the delegates that have lost the link to their parent, grouped by their delegator."""
    delegates: dict[str, list[str]] = {}
    for session_id, model_config in handle.fetch_tuples(SQL["list_unlinked_delegates"]):
        delegator = get_delegator(model_config)
        if delegator is not None:
            delegates.setdefault(delegator, []).append(session_id)
    return delegates


def is_unlinked_delegate(handle: Connection, session_id: str, delegator: str) -> bool:
    """Return True if a delegate has no parent link and its mark names this delegator."""
    link = _read_link(handle, session_id)
    return (
        link is not None
        and link["parent_session_id"] is None
        and get_delegator(link["model_config"]) == delegator
    )


def _get_mark(model_config: Any, mark: str) -> Any:
    # Decoding JSON is slow, and few configurations contain a mark.
    if isinstance(model_config, str) and mark not in model_config:
        return None
    config = decode_json(model_config)
    return config.get(mark) if isinstance(config, dict) else None


def check_parent(handle: Connection, session_id: str, parent: Any) -> None:
    """Refuse a parent that would make the session its own ancestor.

    Raises:
        InvalidInput: the parent is the session itself or a descendant of it.
    """
    is_above = parent == session_id or (
        # A session without children cannot be an ancestor, so most checks need no walk.
        handle.fetch_value(SQL["has_child"], (session_id,)) is not None
        and session_id in list_all_ancestors(handle, parent)
    )
    if is_above:
        raise InvalidInput(
            f"{parent!r:.100} is the session {session_id!r:.100} itself or a descendant of it; "
            "give another parent"
        )


def find_parent(handle: Connection, session_id: str) -> str | None:
    """Return the parent of a session, for any kind of link, or None."""
    return cast("str | None", handle.fetch_value(SQL["get_parent"], (session_id,)))


def list_all_ancestors(handle: Connection, session_id: str) -> set[str]:
    """Return all ancestors of a session, for any kind of link."""
    return {row[0] for row in handle.fetch_tuples(SQL["list_above"], (session_id,))}


def find_resumed_session(handle: Connection, session_id: str) -> str:
    """Return the last session with messages, from the tip on, or the tip."""
    tip = resumed = find_tip(handle, session_id)
    continues = handle.resolve_block(SQL["continues"])
    newest = handle.resolve_block(SQL["find_newest_child"]).format(continues=continues)
    current: str | None = tip
    # Links of a damaged home may form a circle.
    seen = set[str]()
    while current is not None and current not in seen:
        seen.add(current)
        if handle.fetch_value(SQL["has_messages"], (current,)) is not None:
            resumed = current
        current = handle.fetch_value(newest, (current,))
    return resumed


def find_link_kind(handle: Connection, session_id: str) -> LinkKind | None:
    """Return the relation of a session to its parent, or None if it has no parent."""
    link = _read_link(handle, session_id)
    return None if link is None else classify_link(link)


def list_conversation_ancestors(handle: Connection, session_id: str) -> list[str]:
    """Return the earlier sessions of the conversation, nearest first."""
    ancestors: list[str] = []
    parent = find_continued_session(handle, session_id)
    # Links of a damaged home may form a circle.
    seen = {session_id}
    while parent is not None and parent not in seen:
        seen.add(parent)
        ancestors.append(parent)
        parent = find_continued_session(handle, parent)
    return ancestors


def find_conversation_root(handle: Connection, session_id: str) -> str:
    """Return the first session of the conversation."""
    return ([session_id, *list_conversation_ancestors(handle, session_id)])[-1]


def find_root_cached(handle: Connection, session_id: str) -> str:
    """Return the root like `find_conversation_root`, cached for the whole chain.

    Only for read-only callers: changes through this connection do not clear the cache.
    """
    roots: dict[str, str] = handle.seen.setdefault("roots", {})
    path = {session_id: None}
    current = session_id
    while current not in roots:
        parent = find_continued_cached(handle, current)
        if parent in path:
            _cache_cycle_roots(roots, list(path), parent)
            break
        if parent is None:
            roots[current] = current
        else:
            path[parent] = None
            current = parent
    else:
        roots.update(dict.fromkeys(path, roots[current]))
    return roots[session_id]


def _cache_cycle_roots(roots: dict[str, str], path: list[str], entry: str) -> None:
    """Cache the roots of a walk from child to parent that returned to `entry`.

    In a cycle, the root of each session is the session that continues it.
    """
    start = path.index(entry)
    cycle = path[start:]
    roots.update(zip(cycle, (cycle[-1], *cycle), strict=False))
    roots.update(dict.fromkeys(path[:start], cycle[-1]))


def find_tip_cached(handle: Connection, session_id: str) -> str:
    """Return the tip like `find_tip`, cached for the whole chain, for read-only callers."""
    tips: dict[str, str] = handle.seen.setdefault("tips", {})
    path = {session_id: None}
    current = session_id
    while current not in tips:
        links = list_continuation_links(handle, current)
        if not links:
            tips[current] = current
            break
        current = _choose_continuation(handle, links)
        if current in path:
            return find_tip(handle, session_id)  # in a cycle each session has a tip of its own
        path[current] = None
    tips.update(dict.fromkeys(path, tips[current]))
    return tips[current]


def prefetch_chains(handle: Connection, session_ids: Sequence[str]) -> None:
    """Prepare to walk the conversations of some sessions, and to read inherited values."""
    if not handle.can_prefetch:
        return
    fetched: set[str] = handle.seen.setdefault("relatives", set())
    links = (SQL["get_link"], SQL["list_child_links"])
    missing = [one for one in session_ids if one not in fetched]
    handle.prefetch_rows(links, missing)
    # Most conversations are one session, and need no look-up of others.
    chained = [one for one in missing if _is_in_chain(handle, one)]
    if chained:
        relatives = [one for one in handle.list_relatives(chained) if one not in fetched]
        inherited = (_compose_get_origin(handle), _compose_get_owner(handle))
        handle.prefetch_rows((*links, *inherited), relatives)
        fetched.update(relatives)


def _is_in_chain(handle: Connection, session_id: str) -> bool:
    """Return True if a session may continue another one, or be continued."""
    link = _read_link(handle, session_id)
    return link is not None and (
        link["parent_reason"] == "compression" or link["end_reason"] == "compression"
    )


def list_continuations(handle: Connection, session_id: str) -> list[str]:
    """Return the continuations of a session, up to the tip."""
    continuations: list[str] = []
    seen = {session_id}
    current = session_id
    while True:
        links = [
            link for link in list_continuation_links(handle, current) if link["id"] not in seen
        ]
        if not links:
            return continuations
        current = _choose_continuation(handle, links)
        seen.add(current)
        continuations.append(current)


def find_tip(handle: Connection, session_id: str) -> str:
    """Return the newest continuation of a session, or the session itself."""
    return ([session_id, *list_continuations(handle, session_id)])[-1]


def list_chain(handle: Connection, session_id: str) -> list[str]:
    """Return the conversation from its root through this session to the tip."""
    before = list_conversation_ancestors(handle, session_id)
    after = [member for member in list_continuations(handle, session_id) if member not in before]
    return [*reversed(before), session_id, *after]


def list_family(handle: Connection, session_id: str) -> list[str]:
    """Return all sessions of the conversation, including abandoned continuations."""
    root = find_conversation_root(handle, session_id)
    members, seen = [root], {root}
    for member in members:
        for link in list_continuation_links(handle, member):
            if link["id"] not in seen:
                seen.add(link["id"])
                members.append(link["id"])
    return members


def list_continuation_links(handle: Connection, session_id: str) -> list[LinkRow]:
    """Return the links of the continuations of a session."""
    links = handle.fetch_rows(SQL["list_child_links"], (session_id,))
    return [link for link in links if classify_link(link) == "continuation"]


def _read_link(handle: Connection, session_id: str) -> LinkRow | None:
    return handle.fetch_row(SQL["get_link"], (session_id,))


def find_continued_session(handle: Connection, session_id: str) -> str | None:
    """Return the session that a session continues, or None."""
    link = _read_link(handle, session_id)
    return (
        None
        if link is None or classify_link(link) != "continuation"
        else cast("str", link["parent"])
    )


def find_continued_cached(handle: Connection, session_id: str) -> str | None:
    """Return the session that a session continues, cached for read-only callers."""
    parents: dict[str, str | None] = handle.seen.setdefault("parents", {})
    if session_id not in parents:
        parents[session_id] = find_continued_session(handle, session_id)
    return parents[session_id]


def _choose_continuation(handle: Connection, links: list[LinkRow]) -> str:
    """Return the continuation in use.

    A session that was compressed again comes before a live session, and a live session before an
    ended session.
    """
    if len(links) == 1:
        return cast("str", links[0]["id"])

    def rank(link: LinkRow) -> tuple[int, float, float, str]:
        state = 2 if link["end_reason"] == "compression" else int(link["ended_at"] is None)
        last = handle.fetch_value(SQL["get_last_time"], (link["id"],))
        started_at = link["started_at"]
        return state, started_at if last is None else last, started_at, link["id"]

    return cast("str", max(links, key=rank)["id"])


FOLDER_COLUMNS = ("git_repo_root", "cwd")

UNKNOWN_SOURCES = ("", "unknown")
"""Values that Hermes stores if it does not know the source of a session."""

_UNKNOWN_SOURCE = "{}.source IN ('', 'unknown')"


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """The source and the folder of a session."""

    source: str
    folder: str | None

    @property
    def is_whole(self) -> bool:
        """True if neither the source nor the folder must be inherited."""
        return self.source not in UNKNOWN_SOURCES and bool(self.folder)


def find_origin(handle: Connection, row: Mapping[str, Any]) -> SessionOrigin:
    """Return the source and the folder of a session, inherited if necessary.

    The result is cached as in `find_root_cached`, for read-only callers.
    """
    own = _to_origin(row)
    if own.is_whole or row["parent_session_id"] is None:
        return own
    parent = find_continued_cached(handle, row["id"])
    return own if parent is None else _inherit_origin(own, _find_origin_cached(handle, parent))


def _find_origin_cached(handle: Connection, session_id: str) -> SessionOrigin:
    origins: dict[str, SessionOrigin] = handle.seen.setdefault("origins", {})
    own_origins: dict[str, SessionOrigin] = {}
    current: str | None = session_id
    while current is not None and current not in origins and current not in own_origins:
        statement = _compose_get_origin(handle)
        own_origins[current] = _to_origin(handle.fetch_row(statement, (current,)) or {"source": ""})
        current = None if own_origins[current].is_whole else find_continued_cached(handle, current)
    inherited = None if current is None else origins.get(current)
    for member, own in reversed(own_origins.items()):
        inherited = origins[member] = own if inherited is None else _inherit_origin(own, inherited)
    return origins[session_id]


def find_owner(handle: Connection, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the user and the chat of a session, inherited if necessary.

    The links are cached as in `find_root_cached`, for read-only callers.
    """
    user_id, chat_id = row.get("user_id") or None, row.get("chat_id") or None
    seen = {row["id"]}
    current = row["id"] if row["parent_session_id"] is not None else None
    while current is not None and not (user_id and chat_id):
        current = find_continued_cached(handle, current)
        if current is None or current in seen:
            break
        seen.add(current)
        owner = handle.fetch_row(_compose_get_owner(handle), (current,)) or {}
        user_id = user_id or owner.get("user_id") or None
        chat_id = chat_id or owner.get("chat_id") or None
    return user_id, chat_id


def _compose_get_origin(handle: Connection) -> str:
    columns = (name if handle.has_column("sessions", name) else "NULL" for name in FOLDER_COLUMNS)
    return handle.resolve_block(SQL["get_origin"]).format(*columns)


def _compose_get_owner(handle: Connection) -> str:
    chat_column = "chat_id" if handle.has_column("sessions", "chat_id") else "NULL"
    return handle.resolve_block(SQL["get_owner"]).format(chat_column)


def list_heirs(
    handle: Connection, columns: tuple[str, ...], matches: str, values: Mapping[str, Any]
) -> str | None:
    """Return as JSON the sessions that inherit matching columns from an ancestor, or None.

    `matches` is a condition on `sessions s` that is false for a session without these columns. If
    `columns` is empty, every continuation inherits.
    """
    # Cached for the snapshot, since every page of a list asks for the same heirs.
    key = ("heirs", columns, matches, json.dumps(values))
    if key not in handle.seen:
        present_columns = [name for name in columns if handle.has_column("sessions", name)]
        statement = handle.resolve_block(SQL["list_heirs"]).format(
            child_lacks=_build_missing_condition("child", present_columns),
            continues=handle.resolve_block(SQL["continues"]),
            matches=matches,
        )
        can_inherit = present_columns or not columns
        heirs = handle.fetch_value(statement, dict(values)) if can_inherit else "[]"
        handle.seen[key] = None if heirs == "[]" else heirs
    ids: str | None = handle.seen[key]
    return ids


def _build_missing_condition(table: str, columns: list[str]) -> str:
    if columns == ["source"]:
        return _UNKNOWN_SOURCE.format(table)
    return " AND ".join(f"coalesce({table}.{name}, '') = ''" for name in columns) or "1 = 1"


def _to_origin(row: Mapping[str, Any]) -> SessionOrigin:
    return SessionOrigin(row["source"], row.get("git_repo_root") or row.get("cwd") or None)


def _inherit_origin(own: SessionOrigin, above: SessionOrigin) -> SessionOrigin:
    source = above.source if own.source in UNKNOWN_SOURCES else own.source
    return SessionOrigin(source or own.source, own.folder or above.folder)
