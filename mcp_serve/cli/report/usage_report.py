"""Cost and tokens of conversations by week, model and project, and the greatest conversations."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mcp_serve import render
from mcp_serve.stores.served_store import ServedStore, Summary
from session_core import SessionFilter

WEEK_S = 7 * 86_400.0
_WEEK_COUNT = 26
_PAGE_SIZE = 100
_TOP_COUNT = 10
_MAX_TITLE_CHARS = 100


@dataclass(slots=True)
class Amount:
    """Cost in US dollars and tokens, added up."""

    cost: float = 0.0
    tokens: int = 0

    def add_session(self, row: Summary) -> None:
        """Add a conversation."""
        self.cost += row.cost or 0
        self.tokens += row.tokens or 0

    @property
    def rank(self) -> tuple[float, int]:
        """The sort key of an amount: cost first, since tokens of models differ in price."""
        return self.cost, self.tokens


@dataclass(frozen=True, slots=True)
class TopSession:
    """One of the conversations with the greatest cost."""

    id: str
    title: str
    project: str
    model: str
    messages: int | None
    amount: Amount


@dataclass(slots=True)
class UsageReport:
    """Cost and tokens of all conversations of some stores."""

    total: Amount = field(default_factory=Amount)
    weeks: list[Amount] = field(default_factory=lambda: [Amount() for _ in range(_WEEK_COUNT)])
    """The weeks of the last activity, the latest first."""
    models: dict[str, Amount] = field(default_factory=lambda: defaultdict(Amount))
    projects: dict[str, Amount] = field(default_factory=lambda: defaultdict(Amount))
    top: list[TopSession] = field(default_factory=list)


def collect_usage(
    stores: Sequence[ServedStore],
    now: float,
    count: int,
    report_progress: Callable[[int, int], None],
) -> UsageReport:
    """Return the usage of all conversations.

    `count` is about the number of conversations.
    """
    usage = UsageReport()
    greatest: list[tuple[tuple[float, int], int, ServedStore, Summary]] = []
    done = 0
    for store in stores:
        for row in _list_conversations(store):
            done += 1
            if done % _PAGE_SIZE == 0:
                report_progress(min(done, count), count)
            if not row.cost and not row.tokens:
                continue
            _add_row(usage, store, row, now)
            rank = row.cost or 0.0, row.tokens or 0
            place = heapq.heappushpop if len(greatest) >= _TOP_COUNT else heapq.heappush
            place(greatest, (rank, done, store, row))
    usage.top = [_describe_session(store, row) for *_, store, row in sorted(greatest)[::-1]]
    return usage


def _list_conversations(store: ServedStore) -> Iterator[Summary]:
    """Yield all conversations of a store, page by page."""
    after = None
    while True:
        page = store.list_sessions(SessionFilter(status="all"), limit=_PAGE_SIZE, after=after)
        yield from page.items
        if page.next_cursor is None:
            return
        last = page.items[-1]
        after = -last.last_active_at, store.find_shown_store(last.source) or "", last.id


def _add_row(usage: UsageReport, store: ServedStore, row: Summary, now: float) -> None:
    usage.total.add_session(row)
    week = max(int((now - row.last_active_at) // WEEK_S), 0)
    if week < _WEEK_COUNT:
        usage.weeks[week].add_session(row)
    usage.models[render.render_line(store, row.model) or ""].add_session(row)
    usage.projects[render.render_line(store, row.project, 1000) or ""].add_session(row)


def _describe_session(store: ServedStore, row: Summary) -> TopSession:
    title = render.render_line(store, row.title, _MAX_TITLE_CHARS)
    amount = Amount()
    amount.add_session(row)
    return TopSession(
        id=render.render_id(row.id),
        title=title or render.render_preview(store, row),
        project=render.render_line(store, row.project, 1000) or "",
        model=render.render_line(store, row.model) or "",
        messages=row.messages,
        amount=amount,
    )
