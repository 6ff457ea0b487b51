"""What stays as it is, and why: judged from the inventory and from who is alive alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from session_core.alive import Alive
from session_core.maintenance.records import Why
from session_core.models import Stock

LATELY_S = 7 * 86_400.0
"""Beside another holder of the database, what ended so lately is not removed yet."""


def of_sessions(
    sessions: Iterable[Stock], alive: Alive, *, removed: bool, but: Collection[Why] = ()
) -> Why | None:
    """Return why sessions that go together stay, None where they may go.

    One that is protected protects all. Where they are only ended, that others have the database
    open says nothing; `but` are reasons that do not count here.
    """
    found = {why for each in sessions for why in _reasons(each, alive, removed=removed)}
    return next((why for why in _ORDER if why in found and why not in but), None)


_ORDER: tuple[Why, ...] = (
    "live",
    "compressing",
    "suspended",
    "routed",
    "pinned",
    "no known age",
    "never ended",
    "ended lately",
)
"""Of several reasons, the one that is named."""


def _reasons(stock: Stock, alive: Alive, *, removed: bool) -> Iterable[Why]:
    routed = stock.id in alive.routes
    company = alive.company
    if company.at_work(stock.id, stock.last_active_at, routed=routed) is not None:
        yield "live"
    if stock.id in alive.compressing:
        yield "compressing"
    if stock.id in alive.suspended:
        yield "suspended"
    if routed:
        yield "routed"
    if stock.pinned or stock.id in alive.pinned:
        yield "pinned"
    if stock.last_active_at is None:
        yield "no known age"
    if removed and company.holders:
        if stock.ended_at is None:
            yield "never ended"
        elif company.at - stock.ended_at < LATELY_S:
            yield "ended lately"
