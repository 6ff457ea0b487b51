"""Two machines share a home: they hear each other, prune beside appends, and outlive each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from session_core.state.postgres.session_db import PostgresDB
from tests.faults.postgres_fleet import Agents, Fleet, call, measure_agents, measure_servers
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.anyio

_OLD = [f"old {number}" for number in range(30)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", name="fleet")
def _fleet() -> Iterator[Fleet]:
    """Two machines and a server, for all tests of this module."""
    with Fleet() as fleet:
        yield fleet


@pytest.mark.faults
@pytest.mark.requirement("postgres:machines")
async def test_machines_hear_each_other(fleet: Fleet, tmp_path: Path) -> None:
    assert len(measure_agents(fleet, 4)) == 4
    assert len(await measure_servers(fleet, 2, tmp_path)) == 2


@pytest.mark.faults
@pytest.mark.requirement("postgres:machines")
async def test_one_prunes_while_other_appends(fleet: Fleet, tmp_path: Path) -> None:
    with PostgresDB(fleet.direct, clock=lambda: 1.6e9) as db:
        for name in _OLD:
            db.append_message(name, "user", "x", create={"source": "cli"})
            db.end_session(name, "user_exit")
    writer = ("postgres_writer", fleet.get_address(2), "live")
    with ChildProcess(*writer, before=fleet.machines.get_command(2)) as process:
        async with fleet.serve(1, tmp_path) as client:
            stored = [process.read_line() for _ in range(5)]
            planned = await call(client, "sessions_prune", older_than_days=30)
            pruned = await call(client, "sessions_prune", plan=planned["plan"])
            process.write_line()
            while line := process.read_line():
                stored.append(line)
            assert pruned["outcome"] == "applied"
            with PostgresDB(fleet.direct) as db:
                assert [db.get_session(name) for name in _OLD] == [None] * len(_OLD)
                texts = [f"stored {row['content']}" for row in db.get_messages("live")]
            assert texts == stored
            restored = await call(client, "sessions_restore", batch=pruned["batch"])
            assert restored["outcome"] == "applied"
    with PostgresDB(fleet.direct) as db:
        assert all(db.get_session(name) for name in _OLD)


@pytest.mark.faults
@pytest.mark.requirement("postgres:machines")
async def test_machine_goes_on_after_other_dies(tmp_path: Path) -> None:
    await _check_survivor(tmp_path, vanishes=False)


@pytest.mark.slow  # the network gives up after 14 seconds
async def test_vanished_machine_releases_home(tmp_path: Path) -> None:
    await _check_survivor(tmp_path, vanishes=True)


async def _check_survivor(folder: Path, *, vanishes: bool) -> None:
    """Let a machine end in a change, which holds the home; the other machine continues."""
    with ExitStack() as stack, Fleet() as fleet:
        agents = Agents(fleet, stack)
        async with fleet.serve(1, folder) as client:
            cursor = (await call(client, "events_wait", timeout_s=0))["cursor"]
            agents.append(1, "acknowledged")
            agents.hold(1)
            if vanishes:
                fleet.machines.cut(2)
            else:
                fleet.machines.kill(2)
            await anyio.to_thread.run_sync(agents.append, 0, "after its end")
            events = (await call(client, "events_wait", cursor=cursor, timeout_s=5))["events"]
            assert [event["text"] for event in events] == ["acknowledged", "after its end"]
            await call(client, "sessions_edit", sessions=["agent 2"], title="Of a dead machine")
