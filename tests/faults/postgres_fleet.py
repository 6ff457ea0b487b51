"""Two machines that share one home: each has an MCP server and an agent.

`python -m tests.faults.postgres_fleet` measures how soon one hears what the other has written.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests import postgres_server
from tests.faults.process import ChildProcess
from tests.postgres_cluster import run_statement
from tests.postgres_machines import NETWORK, Machines
from tests.wire.conftest import make_environment

if TYPE_CHECKING:
    from typing_extensions import Self

_ROUNDS = 100


class Fleet:
    """A server on a machine of its own, and machines that share a home of it."""

    def __init__(self, count: int = 2) -> None:
        self.machines = Machines(count)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.machines)
            server = postgres_server.start_server(
                before=self.machines.before_server, listen_addresses="*"
            )
            stack.callback(server.stop)
            with (server.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {NETWORK} trust\n")
            run_statement(server.address, "SELECT pg_reload_conf()")
            self.direct = f"{postgres_server.prepare_database(server.address)}&home=team"
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def get_address(self, number: int) -> str:
        """Return the address of the home for a machine."""
        host = self.machines.get_host(number)
        return f"postgresql://{postgres_server.RUNTIME_ROLE}@{host}/postgres?home=team"

    def start_agent(self, number: int) -> ChildProcess:
        """Start an agent on a machine, with a session of its own; the caller ends it."""
        before = self.machines.get_command(number)
        address, session = self.get_address(number), f"agent {number}"
        return ChildProcess("postgres_agent", address, session, before=before)

    @asynccontextmanager
    async def serve(self, number: int, folder: Path) -> AsyncIterator[Client]:
        """Start an MCP server on a machine, and connect to it."""
        program, *before = self.machines.get_command(number)
        command = [*before, sys.executable, "-m", "mcp_serve.cli.main", "serve"]
        address = {"MCP_SESSIONS_HOME": self.get_address(number)}
        env = make_environment(folder / f"machine {number}") | address
        started = StdioServerParameters(command=program, args=command, env=env)
        async with Client(stdio_client(started), cache=None) as client:
            yield client


class Agents:
    """Agents of several machines, and what they have reported."""

    def __init__(self, fleet: Fleet, stack: ExitStack, count: int = 2) -> None:
        self.processes = [
            stack.enter_context(fleet.start_agent(number)) for number in range(1, count + 1)
        ]
        for process in self.processes:
            assert _read_report(process)[0] == "ready"

    def append(self, writer: int, text: str) -> float:
        """Let an agent append; return the time at which its call has returned."""
        self.processes[writer].write_line(text)
        return self._read_until(writer, "appended", text)

    def wait_until_heard(self, reader: int, text: str) -> float:
        """Return the time at which an agent has heard a text."""
        return self._read_until(reader, "heard", text)

    def hold(self, writer: int) -> None:
        """Let an agent begin a transaction, which stays open."""
        self.processes[writer].write_line("hold")
        self._read_until(writer, "holds", None)

    def _read_until(self, number: int, word: str, text: str | None) -> float:
        while True:
            report, at, found = _read_report(self.processes[number])
            if report == word and text in (None, found):
                return at


def _read_report(process: ChildProcess) -> tuple[str, float, str]:
    word, at, text = process.read_line().split(" ", 2)
    return word, float(at), text


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; return its answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    content: dict[str, Any] = result.structured_content
    return content


def measure_agents(fleet: Fleet, rounds: int) -> list[float]:
    """Return the seconds until the feed of another machine had an append, in both directions."""
    delays = []
    with ExitStack() as stack:
        agents = Agents(fleet, stack)
        for number in range(rounds):
            writer = number % 2
            at = agents.append(writer, f"text {number}")
            delays.append(agents.wait_until_heard(1 - writer, f"text {number}") - at)
    return delays


async def measure_servers(fleet: Fleet, rounds: int, folder: Path) -> list[float]:
    """Return the seconds until `events_wait` of another machine had an append."""
    delays = []
    with ExitStack() as stack:
        agents = Agents(fleet, stack)
        async with fleet.serve(2, folder) as client:
            cursor = (await call(client, "events_wait", timeout_s=0))["cursor"]
            for number in range(rounds):
                at = 0.0

                async def append(text: str = f"text {number}") -> None:
                    nonlocal at
                    await anyio.sleep(0.1)
                    at = await anyio.to_thread.run_sync(agents.append, 0, text)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(append)
                    heard = await call(client, "events_wait", cursor=cursor, timeout_s=30)
                    arrived = anyio.current_time()
                delays.append(arrived - at)
                cursor = heard["cursor"]
                assert [event["text"] for event in heard["events"]] == [f"text {number}"]
    return delays


def main() -> None:
    """Print the delays of both ways."""
    with Fleet() as fleet, tempfile.TemporaryDirectory() as folder:
        ways = {
            "feed of a library": measure_agents(fleet, _ROUNDS),
            "events_wait of a server": anyio.run(
                measure_servers, fleet, _ROUNDS, Path(folder), backend="asyncio"
            ),
        }
    print("| way | appends | median, s | slowest, s | over 0.3 s |\n|---|---|---|---|---|")
    for way, delays in ways.items():
        late = sum(delay > 0.3 for delay in delays)
        middle, worst = statistics.median(delays), max(delays)
        print(f"| {way} | {len(delays)} | {middle:.3f} | {worst:.3f} | {late} |")


if __name__ == "__main__":
    main()
