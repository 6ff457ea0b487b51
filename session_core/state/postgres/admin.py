"""Reports and upkeep of a home in PostgreSQL, reached as `db.admin`."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from session_core.errors import InvalidInput
from session_core.state import sql_blocks, validation
from session_core.state.ledger_tables import LedgerTables
from session_core.state.postgres import holders
from session_core.state.postgres.connection import PostgresConnection
from session_core.state.postgres.store import PostgresStore
from session_core.state.protocol import StepCallback
from session_core.state.sqlite import usage
from session_core.state.sqlite.admin import admin
from session_core.state.sqlite.search.search_api import TimeRangeSearches
from session_core.types import (
    BlockedIndex,
    Capabilities,
    Claim,
    Finding,
    Holder,
    HomeFacts,
    InventoryItem,
    Sizes,
    VacuumResult,
)

SQL = sql_blocks.load_blocks("integrity", "session_core.state.postgres")
FEED_SQL = sql_blocks.load_blocks("feed", "session_core.state.postgres")
SIZES_SQL = sql_blocks.load_blocks("sizes", "session_core.state.postgres")

_MAX_TRIES = 3
_FLAG_S = 0.00008
"""Measured on a busy machine: 4,000 messages flagged and as many added."""


class PostgresAdmin(TimeRangeSearches):
    """Upkeep and reports of a home."""

    def get_home_id(self) -> str | None:
        """Return the id that the home got at its creation."""
        mark = self._read(lambda handle: handle.fetch_value(FEED_SQL["get_mark"]))
        return None if mark is None else str(mark)

    def get_clock_offset(self) -> float:
        """Return the seconds by which the clock of the server is ahead, as last measured."""
        return cast("PostgresStore", self._store).server_clock.offset_s

    def get_ledger_tables(self) -> LedgerTables:
        """Return the tables of the ledger, in the transactions of this instance."""
        return cast("LedgerTables", self._store)

    def get_capabilities(self) -> Capabilities:
        """Return the features of this home: it has payloads and state."""
        self._store.check_open()
        return Capabilities(payloads=True, state=True, foreign_gateway=False, flag_s=_FLAG_S)

    def list_holders(self) -> list[Holder]:
        """Return the other programs that have written to the home and have not closed it."""
        return self._read(holders.list_holders)

    def list_claims(self) -> list[Claim]:
        """Return the claims that processes have stored in the database, including old claims."""
        return self._read(lambda handle: list(admin.iter_claims(handle)))

    def read_health_facts(self) -> HomeFacts:
        """Return the problems and totals of the home."""
        now = self._clock()

        def read_facts(handle: Any) -> HomeFacts:
            version = handle.fetch_value("SELECT current_setting('server_version')")
            return admin.read_facts(handle, now, engine=f"PostgreSQL {version}", fault=None)

        return self._read(read_facts)

    def list_inventory(self) -> list[InventoryItem]:
        """Return one light row for each session, all from one snapshot."""
        return self._read(admin.list_inventory)

    def list_sources(self) -> list[str]:
        """Return the sources of all sessions."""
        return self._read(
            lambda handle: [row[0] for row in handle.fetch_tuples(admin.SQL["list_sources"])]
        )

    def list_folders(self) -> list[str]:
        """Return the working folders and git roots of all sessions, each once."""
        return self._read(admin.read_folders)

    def get_model_usage(self, session_id: str) -> list[dict[str, Any]]:
        """Return the usage of each model in a session."""
        return self._read(lambda handle: usage.list_model_usage(handle, session_id))

    def recount_session(self, session_id: str) -> bool:
        """Recompute the counters of a session and return True if they had drifted.

        Raises:
            NotFound: the session does not exist.
        """
        for _ in range(_MAX_TRIES):
            counted = self._read(lambda handle: admin.count_session(handle, session_id))
            step = partial(admin.recount_if_unchanged, session_id=session_id, counted=counted)
            drifted = self._write(step)
            if drifted is not None:
                return drifted
        return self._write(
            lambda handle: bool(
                admin.recount_if_unchanged(
                    handle, session_id, admin.count_session(handle, session_id)
                )
            )
        )

    def find_drifted_sessions(self, limit: int = 1000) -> list[str]:
        """Return sessions whose message counter differs from their rows."""
        validation.check_limit(limit)
        return self._read(
            lambda handle: [
                row[0] for row in handle.fetch_tuples(admin.SQL["list_drifted"], (limit,))
            ]
        )

    def check_integrity(
        self, *, deep: bool = False, step: StepCallback | None = None
    ) -> list[Finding]:
        """Return the rows that refer to missing rows.

        With `deep`, also return the messages that the search index lacks.
        """
        self._store.check_open()
        if step is not None:
            step()
        return self._read(partial(_find_problems, deep=deep))

    def list_blocked_indexes(self) -> list[BlockedIndex]:
        """Return no index, since this engine can write all of its indexes."""
        return []

    def measure_sizes(
        self, *, exact: bool = False, tables: bool = True, step: StepCallback | None = None
    ) -> Sizes:
        """Return the bytes of all homes of the schema, which the server does not count by home."""
        if step is not None:
            step()
        rows = self._read(lambda handle: handle.fetch_tuples(SIZES_SQL["list_relations"]))
        sizes = {name: int(size) for name, size, _ in rows}
        index = sum(int(size) for _, size, is_index in rows if is_index)
        whole = sum(sizes.values())
        shown = sizes if tables or exact else {}
        return Sizes(db=whole, wal=0, free=0, index=index, tables=shown, exact=exact)

    def optimize_step(self) -> bool:
        """Index queued messages and return False."""
        self._store.check_open()
        self._store.update_search_index()
        return False

    def vacuum(self, *, step: StepCallback | None = None) -> VacuumResult:
        """Report the size, since the server frees space by itself in the background."""
        if self._store.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; vacuum after it")
        if self._store.in_transaction:
            raise InvalidInput("a transaction of this thread is open; vacuum after it")
        size = self.measure_sizes(step=step).db
        return VacuumResult(size, size)


def _find_problems(handle: PostgresConnection, *, deep: bool) -> list[Finding]:
    messages, usages, parents = handle.fetch_tuples(SQL["count_orphans"])[0]
    problems = [
        ("orphaned_messages", messages, "messages of missing sessions"),
        ("orphaned_rows", usages, "rows of session_model_usage whose session is gone"),
        ("broken_parents", parents, "sessions whose parent is missing"),
    ]
    if deep:
        missing = handle.fetch_value(SQL["count_unindexed"])
        problems.append(
            ("search_index_incomplete", missing, "messages missing from the search index")
        )
    return [Finding(code, count, what) for code, count, what in problems if count]
