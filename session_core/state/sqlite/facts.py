"""What is known of a home beside its sessions, in a time that hardly grows with it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from session_core import driver
from session_core.models import Claim, Facts, Orphans
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle, quoted
from session_core.state.sqlite.store import Store

SQL = blocks.load("facts")

WEEKS = 26
MOST_ORPHANS = 10_000
"""So many sessions that are not there are named for each table."""

_WEEK_S = 604_800.0
_RUN = 8
_COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


class FactFinding(Store):
    """Finds what is known of a home beside its sessions."""

    def claims(self) -> list[Claim]:
        """Return what others have noted in the database that they are at, also if long ago."""
        return self._read(lambda handle: list(_claims(handle)))

    def health_facts(self) -> Facts:
        """Return what is wrong and how much there is, beside the sessions themselves."""
        now = self._clock()
        return self._read(lambda handle: _facts(handle, now))


def _facts(handle: Handle, now: float) -> Facts:
    tokens, cost = _usage(handle)
    described = driver.describe()
    return Facts(
        orphans=tuple(_orphans(handle)),
        claims=tuple(_claims(handle)),
        weeks=_weeks(handle, now),
        tokens=tokens,
        cost=cost,
        engine=f"SQLite {described.version}",
        fault=None if described.fixed else _FAULT,
    )


_FAULT = "a rare race of two checkpoints can damage a database; use SQLite 3.51.3 or newer"


def _claims(handle: Handle) -> Iterator[Claim]:
    if handle.has("compression_locks"):
        for session_id, holder, at, until in handle.values(SQL["list_compression_locks"]):
            yield Claim("compression", str(session_id), str(holder), _time(at), _time(until))
    if handle.has("session_turn_leases"):
        for session_id, holder, at, until in handle.values(SQL["list_turn_leases"]):
            yield Claim("turn", str(session_id), str(holder), _time(at), _time(until))
    if handle.has("gateway_heartbeats", "host"):
        for backend, pid, host, at in handle.values(SQL["list_heartbeats"]):
            known = pid if isinstance(pid, int) else None
            yield Claim("gateway", None, str(backend), _time(at), None, known, str(host))


def _orphans(handle: Handle) -> Iterator[Orphans]:
    for table, column in handle.values(SQL["list_keyed_to_sessions"]):
        names = {"table": table, "column": column}
        block = "list_orphans" if handle.value(SQL["has_index"], names) else "scan_orphans"
        last_at = "max(timestamp)" if handle.has(table, "timestamp") else "NULL"
        sql = SQL[block].format(table=quoted(table), column=quoted(column), last_at=last_at)
        for session_id, rows, at in handle.values(sql, {"most": MOST_ORPHANS}):
            yield Orphans(table, column, str(session_id), rows, _time(at))


def _usage(handle: Handle) -> tuple[dict[str, int], float]:
    sums = [f"total({_column(handle, column)})" for column in _COUNTS.values()]
    names = {
        "sums": ", ".join(sums),
        "actual": _column(handle, "actual_cost_usd"),
        "estimated": _column(handle, "estimated_cost_usd"),
    }
    *counts, cost = map(_finite, handle.values(SQL["sum_usage"].format_map(names))[0])
    return {name: int(count) for name, count in zip(_COUNTS, counts, strict=True)}, cost


def _column(handle: Handle, name: str) -> str:
    return name if handle.has("sessions", name) else "NULL"


def _weeks(handle: Handle, now: float) -> tuple[int, ...]:
    """Return how many messages came in each of the last weeks, this one first, by their ids."""
    first, last = handle.values(SQL["get_ends"])[0]
    if first is None:
        return (0,) * WEEKS
    after = last + 1
    found: list[int] = []
    for week in range(1, WEEKS + 1):
        begin = _first_since(handle, now - week * _WEEK_S, first, after)
        found.append(after - begin)
        after = begin
    return tuple(found)


def _first_since(handle: Handle, since: float, low: int, high: int) -> int:
    """Return about the first id of a time on; that some rows kept older times matters little."""
    while low < high:
        middle = (low + high) // 2
        time = handle.value(SQL["get_time_at"], {"id": middle, "run": _RUN})
        if time is not None and time >= since:
            high = middle
        else:
            low = middle + 1
    return low


def _finite(total: float) -> float:
    return total if isfinite(total) else 0.0


def _time(stored: Any) -> float | None:
    return float(stored) if isinstance(stored, (int, float)) else None
