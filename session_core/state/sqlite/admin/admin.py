"""Reports and upkeep of a home, reached as `db.admin`: health, inventory, counters and checks.

Messages are counted in their indexes, so that no text is read. Only the flag `compacted` is in no
index of Hermes. The inventory reads every row of `sessions`, since no index has the end times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from session_core import _sqlite3
from session_core.state import sql_blocks, validation
from session_core.state.protocol import StepCallback
from session_core.state.sqlite import database_file, extension, lineage, sessions, usage
from session_core.state.sqlite.admin import integrity, sizes
from session_core.state.sqlite.admin.vacuum import SqliteVacuum
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.search.search_api import TimeRangeSearches
from session_core.types import (
    BlockedIndex,
    Capabilities,
    Claim,
    Finding,
    Holder,
    HomeFacts,
    InventoryItem,
    LinkKind,
    OrphanRows,
    Revision,
    Sizes,
)

SQL = sql_blocks.load_blocks("admin")

WEEK_COUNT = 26
MAX_ORPHANS = 10_000
"""Largest number of missing sessions that is listed for a table."""

_WEEK_S = 604_800.0
_PROBE_ROWS = 8
_FLAG_S = 0.00003
_HERMES_FLAG_S = 0.00017
"""The triggers of Hermes index each flagged message twice."""

_TOKEN_COLUMNS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


class SqliteAdmin(SqliteVacuum, TimeRangeSearches):
    """Upkeep and reports of a home."""

    @property
    def immutable(self) -> bool:
        """True if the file is read as immutable, on a read-only mount."""
        return self._store.immutable

    def get_home_id(self) -> str | None:
        """Return the id of a home of our own, or None for a Hermes home."""
        return self._read(lambda handle: sessions.find_meta(handle, database_file.HOME_ID_KEY))

    def get_ledger_tables(self) -> None:
        """Return None, since the ledger of a SQLite home has its own files."""

    def get_capabilities(self) -> Capabilities:
        """Return the features of this home that not every home has.

        An older home of our own gets all of them at its first change.
        """
        is_own = self._store.kind == "own"
        return self._read(
            lambda handle: Capabilities(
                payloads=is_own or handle.has_column("messages", "payload_json"),
                state=is_own,
                foreign_gateway=not is_own,
                flag_s=_FLAG_S if is_own else _HERMES_FLAG_S,
            )
        )

    def get_clock_offset(self) -> float:
        """Return 0, since the home is on this machine."""
        return 0.0

    def list_holders(self) -> list[Holder]:
        """Return the other processes that have the database open, if the system reports them."""
        return self._store.list_holders()

    def list_claims(self) -> list[Claim]:
        """Return the claims that processes have stored in the database, including old claims."""
        return self._read(lambda handle: list(iter_claims(handle)))

    def read_health_facts(self) -> HomeFacts:
        """Return the problems and totals of the home."""
        now = self._clock()
        described = _sqlite3.describe_sqlite()
        engine = f"SQLite {described.version}"
        fault = None if described.fixed else _CHECKPOINT_RACE_WARNING
        return self._read(lambda handle: read_facts(handle, now, engine=engine, fault=fault))

    def list_inventory(self) -> list[InventoryItem]:
        """Return one light row for each session, all from one snapshot.

        A row whose id is not text is left out, since no caller could refer to it.
        """
        return self._read(list_inventory)

    def list_sources(self) -> list[str]:
        """Return the sources of all sessions."""
        return self._read(
            lambda handle: [row[0] for row in handle.fetch_tuples(SQL["list_sources"])]
        )

    def list_folders(self) -> list[str]:
        """Return the working folders and git roots of all sessions, each once."""
        return self._read(read_folders)

    def get_model_usage(self, session_id: str) -> list[dict[str, Any]]:
        """Return the usage of each model in a session."""
        return self._read(lambda handle: usage.list_model_usage(handle, session_id))

    def recount_session(self, session_id: str) -> bool:
        """Recompute the counters of a session and return True if they had drifted.

        Raises:
            NotFound: the session does not exist.
        """
        # Counting reads many rows, so it runs outside of the write transaction. Only its result
        # is checked there.
        for _ in range(_MAX_TRIES):
            counted = self._read(lambda handle: count_session(handle, session_id))
            drifted = self._write(
                partial(recount_if_unchanged, session_id=session_id, counted=counted)
            )
            if drifted is not None:
                return drifted
        return self._write(
            lambda handle: bool(
                recount_if_unchanged(handle, session_id, count_session(handle, session_id))
            )
        )

    def find_drifted_sessions(self, limit: int = 1000) -> list[str]:
        """Return sessions whose message counter differs from their rows."""
        validation.check_limit(limit)
        return self._read(
            lambda handle: [
                row[0]
                for row in handle.fetch_tuples(handle.expand_sql(SQL["list_drifted"]), (limit,))
            ]
        )

    def check_integrity(
        self, *, deep: bool = False, step: StepCallback | None = None
    ) -> list[Finding]:
        """Return the problems of the file. With `deep`, also check the search indexes on a copy."""
        self._store.check_open()
        if self._store.is_in_memory:
            return self._read(lambda handle: integrity.check_copy(handle, deep=deep, step=step))
        with self._store.translate_errors():
            # Only a Hermes home brings an extension for its index.
            loads = self._store.loads_extension and self._store.kind == "hermes"
            folder = self._store.path.parent if loads else None
            return integrity.check_file(self._store.path, deep=deep, step=step, extension_of=folder)

    def list_blocked_indexes(self) -> list[BlockedIndex]:
        """Return the search indexes that this process cannot write."""
        return self._read(extension.list_blocked_indexes)

    def measure_sizes(
        self, *, exact: bool = False, tables: bool = True, step: StepCallback | None = None
    ) -> Sizes:
        """Return bytes by table: quick estimates, or exact counts from a child process.

        Without `tables`, only measure the file and the dead part of its indexes.
        """
        estimated = self._read(
            lambda handle: sizes.estimate_sizes(handle, self._store.path, tables=tables or exact)
        )
        if not exact:
            return estimated
        layout = self._read(sizes.read_layout)
        if self._store.is_in_memory:
            counted = self._read(sizes.count_pages)
            return layout.fill_sizes(estimated, counted, exact=True) if counted else estimated
        return sizes.count_sizes(estimated, layout, self._store.path, step)


def read_facts(handle: Connection, now: float, *, engine: str, fault: str | None) -> HomeFacts:
    """Return the problems and totals of the home.

    `fault` describes a known defect of the engine.
    """
    tokens, cost = _sum_usage(handle)
    return HomeFacts(
        orphans=tuple(_count_orphans(handle)),
        claims=tuple(iter_claims(handle)),
        weeks=_count_weeks(handle, now),
        tokens=tokens,
        cost=cost,
        engine=engine,
        fault=fault,
    )


_CHECKPOINT_RACE_WARNING = (
    "a rare race of two checkpoints can damage a database; use SQLite 3.51.3 or newer"
)


def iter_claims(handle: Connection) -> Iterator[Claim]:
    """Yield the claims that processes have stored in the database."""
    # Homes of older schemas lack some of these tables.
    if handle.has_column("compression_locks"):
        for session_id, holder, at, until in handle.fetch_tuples(SQL["list_compression_locks"]):
            yield Claim(
                "compression",
                str(session_id),
                str(holder),
                _parse_timestamp(at),
                _parse_timestamp(until),
            )
    if handle.has_column("session_turn_leases"):
        for session_id, holder, at, until in handle.fetch_tuples(SQL["list_turn_leases"]):
            yield Claim(
                "turn", str(session_id), str(holder), _parse_timestamp(at), _parse_timestamp(until)
            )
    if handle.has_column("gateway_heartbeats", "host"):
        for backend, pid, host, at in handle.fetch_tuples(SQL["list_heartbeats"]):
            heartbeat_pid = pid if isinstance(pid, int) else None
            yield Claim(
                "gateway", None, str(backend), _parse_timestamp(at), None, heartbeat_pid, str(host)
            )


def _count_orphans(handle: Connection) -> Iterator[OrphanRows]:
    for table, column in handle.fetch_tuples(SQL["list_keyed_to_sessions"]):
        names = {"table": table, "column": column}
        # Without an index on the column the whole table is scanned.
        block = (
            "list_orphan_rows" if handle.fetch_value(SQL["has_index"], names) else "scan_orphans"
        )
        last_at = "max(timestamp)" if handle.has_column(table, "timestamp") else "NULL"
        sql = SQL[block].format(table=quote_name(table), column=quote_name(column), last_at=last_at)
        for session_id, rows, at in handle.fetch_tuples(sql, {"most": MAX_ORPHANS}):
            yield OrphanRows(table, column, str(session_id), rows, _parse_timestamp(at))


def _sum_usage(handle: Connection) -> tuple[dict[str, int], float]:
    total = handle.resolve_block(SQL["total"])
    sums = [total.format(_select_column(handle, column)) for column in _TOKEN_COLUMNS.values()]
    names = {
        "sums": ", ".join(sums),
        "actual": _select_column(handle, "actual_cost_usd"),
        "estimated": _select_column(handle, "estimated_cost_usd"),
    }
    *counts, cost = map(
        _replace_infinite,
        handle.fetch_tuples(handle.resolve_block(SQL["sum_usage"]).format_map(names))[0],
    )
    return {name: int(count) for name, count in zip(_TOKEN_COLUMNS, counts, strict=True)}, cost


def _select_column(handle: Connection, name: str) -> str:
    return name if handle.has_column("sessions", name) else "NULL"


def _count_weeks(handle: Connection, now: float) -> tuple[int, ...]:
    """Return the number of messages in each of the last weeks, newest first."""
    # Computed from ids by a search for the first id of each week, so that no index on times is
    # needed.
    first, last = handle.fetch_tuples(SQL["get_ends"])[0]
    if first is None:
        return (0,) * WEEK_COUNT
    after = last + 1
    counts: list[int] = []
    for week in range(1, WEEK_COUNT + 1):
        begin = _find_first_id_since(handle, now - week * _WEEK_S, first, after)
        counts.append(after - begin)
        after = begin
    return tuple(counts)


def _find_first_id_since(handle: Connection, since: float, low: int, high: int) -> int:
    """Return approximately the first message id at or after a time."""
    while low < high:
        middle = (low + high) // 2
        # The latest of several rows, since single messages may have an earlier time.
        time = handle.fetch_value(SQL["get_time_at"], {"id": middle, "run": _PROBE_ROWS})
        if time is not None and time >= since:
            high = middle
        else:
            low = middle + 1
    return low


def _replace_infinite(total: float) -> float:
    # A foreign value may be infinite, which JSON cannot hold.
    return total if isfinite(total) else 0.0


def _parse_timestamp(stored: Any) -> float | None:
    return float(stored) if isinstance(stored, (int, float)) else None


_MAX_TRIES = 3


def count_session(handle: Connection, session_id: str) -> tuple[int, int, int]:
    """Return the number of live rows, their highest id, and the number of their tool calls."""
    live, last_id = _count_live(handle, session_id)
    return (
        live,
        last_id,
        handle.fetch_value(handle.expand_sql(SQL["count_tool_calls"]), (session_id,)),
    )


def set_counters(handle: Connection, session_id: str, messages: int, tool_calls: int) -> None:
    """Store the counters of messages and tool calls of a session."""
    counts = {"id": session_id, "messages": messages, "tool_calls": tool_calls}
    handle.execute_update(SQL["set_counters"], counts)


def _count_live(handle: Connection, session_id: str) -> tuple[int, int]:
    live, last_id = handle.fetch_tuples(handle.expand_sql(SQL["count_live"]), (session_id,))[0]
    return live, last_id


def recount_if_unchanged(
    handle: Connection, session_id: str, counted: tuple[int, int, int]
) -> bool | None:
    """Store the counters and return True if they had drifted.

    Return None if the rows have changed since they were counted.
    """
    rows = handle.fetch_tuples(SQL["get_counters"], (session_id,))
    if not rows:
        raise sessions.make_not_found(handle, session_id)
    live, last_id, tool_calls = counted
    if _count_live(handle, session_id) != (live, last_id):
        return None
    if rows[0] == (live, tool_calls):
        return False
    set_counters(handle, session_id, live, tool_calls)
    return True


_INVENTORY_COLUMNS = (
    "id",
    "source",
    "title",
    "parent_session_id",
    "session_key",
    "started_at",
    "ended_at",
    "end_reason",
    "archived",
    "pinned",
    "api_call_count",
    "expiry_finalized",
    "message_count",
    "rewind_count",
)
_REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def read_folders(handle: Connection) -> list[str]:
    """Return the working folders and git roots of all sessions, each once."""
    columns = [name for name in lineage.FOLDER_COLUMNS if handle.has_column("sessions", name)]
    parts = [f"SELECT {name} AS folder FROM sessions" for name in columns]  # noqa: S608 -- column names of fixed tuples
    statement = handle.resolve_block(SQL["list_folders"]).format(folders=" UNION ".join(parts))
    return [row[0] for row in handle.fetch_tuples(statement)] if parts else []


@dataclass(slots=True)
class _MessageCounts:
    """Counts of the messages of one session."""

    live: int = 0
    rows: int = 0
    last_id: int = 0
    compacted: int = 0
    last_at: float | None = None


_NO_MESSAGES = _MessageCounts()


def list_inventory(handle: Connection) -> list[InventoryItem]:
    """Return every session as of the open snapshot."""
    # One scan of each table, instead of a query for each session.
    rows = {row[0]: row for row in _read_session_rows(handle) if _is_usable_id(handle, row[0])}
    counts = _count_messages(handle)
    parents = {session_id: _to_text(row[_PARENT]) for session_id, row in rows.items()}
    for row in rows.values():
        _link_marked_delegate(row, parents)
    return [
        _to_inventory_row(row, parents[row[0]], rows, counts.get(row[0], _NO_MESSAGES))
        for row in rows.values()
    ]


def _link_marked_delegate(row: tuple[Any, ...], parents: dict[str, str | None]) -> None:
    """Set the parent of an unlinked delegate from its mark, unless that would form a cycle."""
    session_id, marks = row[0], row[-1]
    if parents[session_id] is not None or marks is None:
        return
    delegator = ancestor = lineage.get_delegator(marks)
    seen = {session_id}
    while ancestor is not None and ancestor not in seen:
        seen.add(ancestor)
        ancestor = parents.get(ancestor)
    if delegator in parents and ancestor is None:
        parents[session_id] = delegator


def _read_session_rows(handle: Connection) -> list[tuple[Any, ...]]:
    columns = [
        name if handle.has_column("sessions", name) else f"NULL AS {name}"
        for name in _INVENTORY_COLUMNS
    ]
    column_list = ", ".join([*columns, handle.resolve_block(SQL["link_marks"])])
    return handle.fetch_tuples(
        handle.resolve_block(SQL["list_sessions"]).replace("{columns}", column_list)
    )


def _count_messages(handle: Connection) -> dict[str, _MessageCounts]:
    counts_by_session: dict[str, _MessageCounts] = {}
    for session_id, active, count, last_id, compacted, last_at in handle.iter_rows(
        handle.expand_sql(SQL["count_messages"])
    ):
        counted = counts_by_session.get(session_id)
        if counted is None:
            counted = counts_by_session[session_id] = _MessageCounts(last_at=last_at)
        counted.rows += count
        counted.last_id = max(counted.last_id, last_id)
        counted.compacted += compacted
        if active == 1 or active is None:  # NULL means live in older homes
            counted.live += count
    return counts_by_session


def _is_usable_id(handle: Connection, session_id: Any) -> bool:
    """Return True if an id is text and equal to its stored bytes."""
    if not isinstance(session_id, str):
        return False
    if _REPLACEMENT_CHARACTER not in session_id:
        return True
    return handle.fetch_value("SELECT 1 FROM sessions WHERE id = ?", (session_id,)) is not None


def _to_inventory_row(
    row: tuple[Any, ...], parent_id: str | None, rows: Mapping[str, Any], counted: _MessageCounts
) -> InventoryItem:
    (
        session_id, source, title, stored_parent, key, started, ended, reason,
        archived, pinned, api_calls, finalized, count, rewinds, _,
    ) = row  # fmt: skip
    started_at = _to_number(started)
    return InventoryItem(
        id=session_id,
        source=_to_text(source) or "",
        title=_to_text(title),
        parent_id=parent_id,
        link=_classify_link(row, rows.get(stored_parent)),
        session_key=_to_text(key),
        started_at=started_at or 0.0,
        ended_at=None if ended is None else _to_number(ended) or 0.0,
        end_reason=_to_text(reason),
        archived=bool(archived),
        pinned=bool(pinned),
        api_calls=api_calls,
        expiry_finalized=bool(finalized),
        last_active_at=started_at if counted.last_at is None else _to_number(counted.last_at),
        live=counted.live,
        rows=counted.rows,
        counted=count,
        revision=Revision(counted.last_id, counted.live, counted.compacted, rewinds, ended),
    )


def _classify_link(row: tuple[Any, ...], parent: tuple[Any, ...] | None) -> LinkKind | None:
    return lineage.classify_link(
        {
            "parent_session_id": row[_PARENT],
            "model_config": row[-1],
            "source": row[_SOURCE],
            "started_at": _to_number(row[_STARTED]) or 0.0,
            "parent_reason": parent and parent[_REASON],
            "parent_ended_at": parent and _to_number(parent[_ENDED]),
        }
    )


_SOURCE, _PARENT, _STARTED, _ENDED, _REASON = map(
    _INVENTORY_COLUMNS.index,
    ("source", "parent_session_id", "started_at", "ended_at", "end_reason"),
)


def _to_number(stored: Any) -> float | None:
    """Return a stored time, or None if it is not a finite number."""
    return stored if isinstance(stored, (int, float)) and isfinite(stored) else None


def _to_text(stored: Any) -> str | None:
    return stored if stored is None or isinstance(stored, str) else str(stored)
