"""Coverage of each store: how much is indexed, from the catalog and the index.

If an agent has moved its store, or writes unknown records, the store is empty or outdated without
an error. This module detects that and reports it as a problem.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from session_core.transcripts.catalog import Catalog, RootCatalog
from session_core.transcripts.index import Index
from session_core.transcripts.keep.copies import WHOLE_STORE
from session_core.transcripts.listing import OPEN_S
from session_core.transcripts.types import StoreCoverage

_COUNTS = (
    "SELECT store, count(*), sum(messages), sum(NOT archived AND active_at >= ?), sum(archived),"
    " sum(cost_usd), sum(input_tokens), sum(output_tokens), sum(cache_read_tokens),"
    " sum(cache_write_tokens), sum(reasoning_tokens)"
    " FROM sessions WHERE messages > 0 GROUP BY store"
)

_TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")

_MAX_LAG_S = 3600.0
"""The time between newest record and newest file from which records count as unknown."""

_MAX_FOLDERS = 200


class _Counts(NamedTuple):
    sessions: int = 0
    messages: int = 0
    open: int = 0
    archived: int = 0
    cost: float = 0.0
    tokens: Sequence[int] = ()


def measure_coverage(
    index: Index, catalog: Catalog, seen: Collection[str], now: float
) -> list[StoreCoverage]:
    """Return the coverage of each store that has or had a root.

    `seen` has the names of stores that had sessions before.
    """
    border = int((now - OPEN_S) * 1000)
    counts = {
        row[0]: _Counts(*row[1:6])._replace(tokens=row[6:])
        for row in index.read(_COUNTS, (border,))
    }
    roots: dict[str, list[RootCatalog]] = {}
    for root in catalog.roots.values():
        store = root.root.format.store
        is_known = store in seen or catalog.copies.has_store(store)
        if root.sweep.folders or is_known:  # no folder if the root does not exist
            roots.setdefault(store, []).append(root)
    return [
        _measure_store(store, parts, counts.get(store, _Counts())) for store, parts in roots.items()
    ]


def _measure_store(store: str, roots: list[RootCatalog], counts: _Counts) -> StoreCoverage:
    files = [file for root in roots for file in root.sweep.files.values()]
    entries = [entry for root in roots for entry in root.entries.values()]
    total = sum(file.size for root in roots for file in root.files.values())
    done = sum(entry.identity.size if entry.is_read else entry.offset for entry in entries)
    unknown: Counter[str] = Counter()
    for entry in entries:
        if entry.unknown != "{}":
            unknown.update(json.loads(entry.unknown))
    newest_record = max((entry.newest_at or 0 for entry in entries), default=0) / 1000
    newest_file = max((file.mtime_ns for file in files), default=0) / 1e9
    paths = tuple(dict.fromkeys(root.root.path for root in roots))
    share = min(1.0, done / total) if total else 1.0
    copies, problem = roots[0].copies, None
    if copies.fault is not None:
        problem = str(copies.fault)
    # A store that was forgotten is empty because its user wants it so.
    elif copies.is_excluded(store, WHOLE_STORE):
        pass
    elif not files:
        problem = _explain_empty_store(paths)
    # Before everything is indexed, the newest records are only not read yet.
    elif share == 1.0 and unknown and newest_file - newest_record > _MAX_LAG_S:
        problem = _explain_unknown_records(unknown, len(files))
    return StoreCoverage(
        store=store,
        roots=paths,
        files=len(files),
        bytes=sum(file.size for file in files),
        sessions=counts.sessions,
        messages=counts.messages,
        indexed_share=share,
        newest_file_at=newest_file or None,
        newest_record_at=newest_record or None,
        foreign_files=sum(root.sweep.foreign for root in roots),
        links=sum(root.sweep.links for root in roots),
        unreadable=sum(root.sweep.unreadable for root in roots),
        unknown_records=dict(unknown),
        open_sessions=counts.open,
        archived_sessions=counts.archived,
        tokens=dict(zip(_TOKENS, counts.tokens, strict=False)),
        cost=counts.cost,
        problem=problem,
    )


def _explain_empty_store(roots: Sequence[str]) -> str | None:
    """Return why a store without session files may have been moved, or None."""
    existing = [root for root in roots if os.path.isdir(root)]  # noqa: PTH112 -- os.path avoids building a Path
    if not existing:
        return f"{roots[0]} does not exist any more; the agent may keep its sessions elsewhere now"
    if any(_has_file(root) for root in existing):
        return f"{existing[0]} has files, but none is a session file that is known here"
    return None


def _has_file(root: str) -> bool:
    """Return True if a file is in one of the first folders below a root."""
    folders: Iterator[tuple[str, list[str], list[str]]] = os.walk(root)
    return any(names for _, _, names in islice(folders, _MAX_FOLDERS))


def _explain_unknown_records(unknown: Counter[str], files: int) -> str:
    kinds = ", ".join(f"{name!r:.40} ({count:,})" for name, count in unknown.most_common(3))
    return (
        f"the newest of {files:,} files has no record that is known here; not known are {kinds}; "
        "a newer mcp-sessions may read them"
    )
