"""`mcp-sessions demo`: builds a sample home, lists, reads and searches it, and times each step.

The home is one of our own in a temporary folder; no real home is touched.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from mcp_serve.cli import sample
from mcp_serve.cli.driver import choose_driver
from mcp_serve.cli.screen import Screen, ago
from session_core import (
    Driver,
    MessageRow,
    SearchResult,
    SessionDB,
    SessionSummary,
    find_home,
)

T = TypeVar("T")

_NEWEST = 7
_PAGE = 50
_SHOWN = 4

_QUERIES = (
    ("a plain question", "what did we decide about the orders schema?"),
    ("an exact identifier", "orders_sync.flush_batch"),
    ("an error code", "ERR_POOL_4711"),
    ("two characters", "予算"),
    ("a word that was summarised away", "pager"),
    ("text beside a picture", "screenshot"),
    ("a word in an earlier part", "Alfama"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument(
        "--keep", action="store_true", help="leave the sample home there and print its path"
    )


def run(options: argparse.Namespace) -> int:
    """Show it all; return the exit code."""
    driver = choose_driver()
    clock, screen = sample.Clock(), Screen(sys.stdout)
    with _folder(keep=options.keep) as folder, SessionDB(folder / "state.db", clock=clock) as db:
        Demo(db, screen, clock).show(driver)
        if options.keep:
            screen.line()
            screen.whole(f"The sample home stays in {folder}")
    return 0


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mcp-sessions-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class Demo:
    """The tour through one home."""

    def __init__(self, db: SessionDB, screen: Screen, clock: sample.Clock) -> None:
        self._db = db
        self._screen = screen
        self._clock = clock

    def show(self, driver: Driver) -> None:
        """Build, list, read and search."""
        self._preface(driver)
        self._build()
        self._list()
        self._read()
        self._search()

    def _preface(self, driver: Driver) -> None:
        fixed = "" if driver.fixed else "; older than 3.51.3, which mended a rare WAL race"
        real = find_home()
        self._screen.line(f"SQLite      {driver.name} {driver.version}{fixed}")
        self._screen.line(f"Real home   {real.path}")
        self._screen.line(f"            ({real.found_by}; the demo leaves it alone)")

    def _build(self) -> None:
        _, took_ms = _timed(lambda: sample.build(self._db, self._clock))
        count, size = self._db.message_count(), self._db.sizes().db
        self._screen.heading("A sample home", _ms(took_ms))
        self._screen.line(
            f"{count:,} messages of everyday talk, tools and other scripts; {size / 1e6:.1f} MB"
        )

    def _list(self) -> None:
        page, took_ms = _timed(lambda: self._db.list_sessions(limit=_NEWEST))
        self._screen.heading("Newest conversations", _ms(took_ms))
        for summary in page.items:
            self._screen.line(self._one_line(summary))

    def _one_line(self, summary: SessionSummary) -> str:
        when = ago(self._clock() - summary.last_active_at)
        title = summary.title or summary.preview or "(nothing in it)"
        return f"{when:>7}  {summary.source:<9} {summary.messages:>4}  {title}"

    def _read(self) -> None:
        window, took_ms = _timed(lambda: self._db.read_window(sample.LONG, limit=_PAGE))
        rows = window.messages
        self._screen.heading(f"The newest {len(rows)} messages of one session", _ms(took_ms))
        self._screen.dim(f"The last {_SHOWN} of them:")
        for row in rows[-_SHOWN:]:
            self._screen.block(f"{row['role']:<10}", _text(row), lines=2)

    def _search(self) -> None:
        self._screen.heading("Search")
        for kind, query in _QUERIES:
            found, took_ms = _timed(partial(self._db.search, query, limit=5))
            self._screen.sides(f"{query}  ({kind})", _ms(took_ms))
            self._hit(found)

    def _hit(self, found: SearchResult) -> None:
        if not found.hits:
            self._screen.line("   nothing found")
            return
        best = found.hits[0]
        self._screen.block("   ", f"{best.title or best.session_id}: {best.snippet}", lines=2)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - began) * 1000


def _text(row: MessageRow) -> str:
    content = row["content"]
    return content if isinstance(content, str) else str(content)


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"
