"""How much of each store is indexed, from the catalog and the counts of the index."""

from __future__ import annotations

from collections import Counter

from session_core.transcripts.catalog import Catalog, RootCatalog
from session_core.transcripts.index import Index
from session_core.transcripts.types import StoreCoverage

_COUNTS = "SELECT store, count(*), sum(messages) FROM sessions WHERE messages > 0 GROUP BY store"


def measure_coverage(index: Index, catalog: Catalog) -> list[StoreCoverage]:
    """Return the coverage of each store with a root."""
    counts = {store: (sessions, messages) for store, sessions, messages in index.read(_COUNTS)}
    roots: dict[str, list[RootCatalog]] = {}
    for root in catalog.roots.values():
        if root.sweep.folders:  # none if the root does not exist
            roots.setdefault(root.root.format.store, []).append(root)
    return [
        _measure_store(store, parts, *counts.get(store, (0, 0))) for store, parts in roots.items()
    ]


def _measure_store(
    store: str, roots: list[RootCatalog], sessions: int, messages: int
) -> StoreCoverage:
    files = [file for root in roots for file in root.sweep.files.values()]
    entries = [entry for root in roots for entry in root.entries.values()]
    total = sum(file.size for file in files)
    done = sum(entry.identity.size if entry.is_read else entry.offset for entry in entries)
    unknown: Counter[str] = Counter()
    for entry in entries:
        unknown.update(entry.unknown)
    newest_record = max((entry.newest_at or 0 for entry in entries), default=0)
    newest_file = max((file.mtime_ns for file in files), default=0)
    return StoreCoverage(
        store=store,
        roots=tuple(dict.fromkeys(root.root.path for root in roots)),
        files=len(files),
        bytes=total,
        sessions=sessions,
        messages=messages,
        indexed_share=min(1.0, done / total) if total else 1.0,
        newest_file_at=newest_file / 1e9 or None,
        newest_record_at=newest_record / 1000 or None,
        foreign_files=sum(root.sweep.foreign for root in roots),
        links=sum(root.sweep.links for root in roots),
        unreadable=sum(root.sweep.unreadable for root in roots),
        unknown_records=dict(unknown),
    )
