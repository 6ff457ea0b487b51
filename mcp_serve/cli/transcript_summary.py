"""The sessions of each agent: their number and the newest title."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mcp_serve import render
from mcp_serve.cli.terminal import Terminal, format_elapsed, format_number
from mcp_serve.stores.stores import ServedStores
from session_core import SessionError

_MAX_TITLE_CHARS = 60


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """The number of sessions and the newest title of one transcript store."""

    name: str
    sessions: int
    newest: str | None
    newest_at: float | None
    problem: str | None

    def describe(self) -> str:
        """Return the counts and the newest title as one line."""
        counts = format_number(self.sessions, "session")
        if self.newest_at is None:
            return counts
        return f"{counts}, newest {format_elapsed(time.time() - self.newest_at)} ago: {self.newest}"


def summarize_stores(served: ServedStores) -> list[StoreSummary]:
    """Return the transcript stores in their order, after indexing them.

    Raises:
        SessionError: the index cannot be used.
    """
    served.index_transcripts()
    summaries = {}
    for name in served.transcript_names:
        store = served.get_transcripts(name)
        with store.open_snapshot():
            rows = store.list_sessions(limit=1).items
            coverage = {part.store: part for part in store.measure_coverage()}.get(name)
        title = rows[0].title or render.render_preview(store, rows[0]) if rows else None
        summaries[name] = StoreSummary(
            name,
            0 if coverage is None else coverage.sessions,
            render.render_line(store, title, _MAX_TITLE_CHARS),
            rows[0].last_active_at if rows else None,
            None if coverage is None else coverage.problem,
        )
    return list(summaries.values())


def show_stores(out: Terminal, served: ServedStores) -> None:
    """Write the stores of other agents with counts and newest titles, if there are any."""
    if not served.transcript_names:
        return
    out.write_line("Sessions of other agents on this machine")
    try:
        for store in summarize_stores(served):
            out.write_truncated(f"  {store.name:<12} {store.describe()}")
            if store.problem is not None:
                out.write_block("    ! ", store.problem)
    except SessionError as error:
        out.write_unwrapped(f"  cannot be read: {error}")
