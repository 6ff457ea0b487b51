"""Folder, source and owner of a continuation: those of the nearest ancestor that has them.

Hermes stores them with the first session of a conversation alone. An ancestor is one of the same
conversation, never that of a branch or a delegate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session_core.state.sqlite import blocks, lineage
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("inheritance")

FOLDER = ("git_repo_root", "cwd")

NO_SOURCES = ("", "unknown")
"""What Hermes stores if it does not know the source of a session."""

_NO_SOURCE = "{}.source IN ('', 'unknown')"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session comes from: its source, and its folder if it has one."""

    source: str
    folder: str | None

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing to inherit."""
        return self.source not in NO_SOURCES and bool(self.folder)


def known_origin(handle: Handle, row: Mapping[str, Any]) -> Origin:
    """Return the origin of a session, inherited if need be.

    It is kept while nothing changes: like `lineage.known_root` it is for callers that only read.
    """
    own = _get_own(row)
    if own.is_whole or row["parent_session_id"] is None:
        return own
    parent = lineage.known_parent(handle, row["id"])
    return own if parent is None else _inherit(own, _known(handle, parent))


def _known(handle: Handle, session_id: str) -> Origin:
    origins: dict[str, Origin] = handle.seen.setdefault("origins", {})
    walked: dict[str, Origin] = {}
    here: str | None = session_id
    while here is not None and here not in origins and here not in walked:
        columns = [name if handle.has("sessions", name) else "NULL" for name in FOLDER]
        statement = SQL["get_origin"].format(*columns)
        walked[here] = _get_own(handle.row(statement, (here,)) or {"source": ""})
        here = None if walked[here].is_whole else lineage.known_parent(handle, here)
    above = None if here is None else origins.get(here)
    for member, own in reversed(walked.items()):
        above = origins[member] = own if above is None else _inherit(own, above)
    return origins[session_id]


def list_heirs(
    handle: Handle, columns: tuple[str, ...], matches: str, values: Mapping[str, Any]
) -> str | None:
    """Return as JSON the sessions that inherit columns from one that matches, None for none.

    `matches` is a condition on `sessions s` that is false of a session without these columns.
    """
    key = ("heirs", columns, matches, json.dumps(values))
    if key not in handle.seen:
        here = [name for name in columns if handle.has("sessions", name)]
        statement = SQL["list_heirs"].format(
            child_lacks=_lacks("child", here), continues=SQL["continues"], matches=matches
        )
        heirs = handle.value(statement, dict(values)) if here else "[]"
        handle.seen[key] = None if heirs == "[]" else heirs
    ids: str | None = handle.seen[key]
    return ids


def _lacks(table: str, columns: list[str]) -> str:
    if columns == ["source"]:
        return _NO_SOURCE.format(table)
    return " AND ".join(f"coalesce({table}.{name}, '') = ''" for name in columns)


def _get_own(row: Mapping[str, Any]) -> Origin:
    return Origin(row["source"], row.get("git_repo_root") or row.get("cwd") or None)


def _inherit(own: Origin, above: Origin) -> Origin:
    source = above.source if own.source in NO_SOURCES else own.source
    return Origin(source or own.source, own.folder or above.folder)
