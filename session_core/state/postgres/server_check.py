"""The check of a server for `doctor`: version, role, migrations, clock and pooler."""

from __future__ import annotations

import time
from typing import Any

import psycopg

from session_core.state.engines import Pooling, ServerReport
from session_core.state.postgres.address import connect, parse_address
from session_core.state.postgres.migrations import runner

_CLOCK_READS = 3
_POOL_READS = 8

_GET_FACTS = """
SELECT current_setting('server_version'), current_user,
    (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user),
    coalesce(has_table_privilege(to_regclass(%s), 'INSERT'), false),
    pg_is_in_recovery(), current_setting('server_encoding')
"""
_GET_TIME = "SELECT extract(epoch FROM clock_timestamp())"
_GET_PROCESS = "SELECT pg_backend_pid()"


def inspect_server(address: str) -> ServerReport:
    """Report the state of the server of an address, without a change.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection.
        InvalidInput: the address is not valid.
        Unsupported: the server is older than PostgreSQL 15.
    """
    place = parse_address(address)
    with connect(place) as connection:
        # It reports a schema that the role may not use.
        applied = runner.read_applied(connection, place.schema)
        table = f"{place.schema}.message_rows"
        row: Any = connection.execute(_GET_FACTS, (table,)).fetchone()
        version, role, is_exempt, can_write, is_standby, encoding = row
        pending = runner.list_pending(applied)
        skew_s, round_trip_s = _compare_clocks(connection)
        with connect(place) as second:
            pooling = _find_pooling(connection, second)
    return ServerReport(
        version=version,
        role=role,
        is_exempt=is_exempt,
        can_write=can_write,
        is_standby=is_standby,
        encoding=encoding,
        pending=tuple(f"{migration.number:04} {migration.name}" for migration in pending),
        newer=runner.find_newer(applied),
        skew_s=skew_s,
        round_trip_s=round_trip_s,
        pooling=pooling,
    )


def _compare_clocks(connection: psycopg.Connection[Any]) -> tuple[float, float]:
    """Return the seconds by which the clock of the server is ahead, and the round trip in seconds.

    The measurement with the shortest round trip counts.
    """
    measurements = []
    for _ in range(_CLOCK_READS):
        began, began_at = time.perf_counter(), time.time()
        there = _fetch_value(connection, _GET_TIME)
        took = time.perf_counter() - began
        measurements.append((took, float(there) - began_at - took / 2))
    took, skew = min(measurements)
    return skew, took


def _find_pooling(first: psycopg.Connection[Any], second: psycopg.Connection[Any]) -> Pooling:
    # A pooler makes up the process id with which a connection begins.
    if _fetch_value(first, _GET_PROCESS) == first.info.backend_pid:
        return "none"
    try:
        with first.transaction():
            first.execute("SELECT 1")
    except psycopg.Error:
        return "statement"
    # Two connections of ours on one of the server: it was lent for a statement, not for a session.
    # The pooler lends the last one that became free, unless another program was faster.
    for _ in range(_POOL_READS):
        if _fetch_value(first, _GET_PROCESS) == _fetch_value(second, _GET_PROCESS):
            return "transaction"
    return "session"


def _fetch_value(connection: psycopg.Connection[Any], statement: Any) -> Any:
    row: Any = connection.execute(statement).fetchone()
    return row[0]
