"""A PostgreSQL server with a standby that follows it, for tests of a failover.

Both listen on ports of the loopback interface, so an address names two hosts. The standby has a
copy of the data, and gets each change from the primary.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg

from tests import postgres_server

if TYPE_CHECKING:
    from typing_extensions import Self

_WAIT_S = 30.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_keep_size": "64MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
}


class PostgresCluster:
    """A primary and a standby.

    With `is_synchronous`, a change is acknowledged after the standby has stored it.
    """

    def __init__(self, *, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            ports = _find_free_ports(2)
            self.primary = postgres_server.start_server(port=ports[0], **_SETTINGS)
            stack.callback(self.primary.stop)
            postgres_server.prepare_database(self.primary.address)
            self.standby = self.primary.start_standby(ports[1])
            stack.callback(self.standby.stop)
            self.address = _compose_address(ports)
            self.wait_for_standby()
            if self._is_synchronous:
                run_statement(
                    self.primary.address, "ALTER SYSTEM SET synchronous_standby_names = '*'"
                )
                run_statement(self.primary.address, "SELECT pg_reload_conf()")
                _wait_until(self.primary.address, "sync_state = 'sync'")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def wait_for_standby(self) -> None:
        """Wait until the standby has all changes."""
        note = "SELECT pg_logical_emit_message(true, 'tests', '')"
        ((reached,),) = run_statement(self.primary.address, note)
        _wait_until(self.primary.address, f"replay_lsn >= '{reached}'")

    def promote_standby(self) -> None:
        """Let the standby take changes, and wait until it does."""
        run_statement(self.standby.address, "SELECT pg_promote()")


def run_statement(address: str, statement: Any) -> list[Any]:
    """Run a statement as the owner of a server, and return its rows."""
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _wait_until(address: str, condition: str) -> None:
    """Wait until a condition holds for the standby of a server."""
    until = time.monotonic() + _WAIT_S
    while not run_statement(address, f"SELECT 1 FROM pg_stat_replication WHERE {condition}"):  # noqa: S608 -- a condition of this module
        assert time.monotonic() < until, f"the standby does not follow: {condition}"
        time.sleep(0.01)


def _compose_address(ports: list[str]) -> str:
    """Return an address with both hosts, of which the one that takes changes is used."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    role = postgres_server.RUNTIME_ROLE
    return f"postgresql://{role}@{hosts}/postgres?target_session_attrs=read-write"


def _find_free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]
