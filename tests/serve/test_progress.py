"""Progress and cancellation of changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import anyio
import pytest
from mcp import Client
from mcp.types import Implementation

from mcp_serve import server
from mcp_serve.plan_answers import RESUMED_NOTE
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import Maintenance
from session_core.maintenance import health
from session_core.maintenance import types as maintenance_progress
from session_core.state.sqlite.admin import vacuum_file

pytestmark = pytest.mark.anyio

OLD = 1_600_000_000
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(name="served")
def _served(home_path):
    served = ServedStores(ServerOptions(home=str(home_path)))
    yield served
    served.close()


@pytest.fixture(autouse=True)
def _sessions(db):
    create = {"source": "cli", "started_at": OLD}
    for number in range(3):
        db.append_message(f"old{number}", "user", "x" * 50, timestamp=OLD, create=create)
        db.end_session(f"old{number}", "user_exit")
    db.create_session("ghost", "cli", started_at=OLD)
    for number in range(60):
        text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
        db.append_message("long", "user", text, create={"source": "cli"})


class Heard:
    """Records the progress that a client receives."""

    def __init__(self) -> None:
        self.so_far: list[tuple[float, float | None]] = []

    async def __call__(self, progress: float, total: float | None, _: str | None) -> None:
        """Record a report."""
        self.so_far.append((progress, total))


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another thread makes true."""
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 -- another thread sets no event
            await anyio.sleep(0.005)


@pytest.mark.requirement("changing:working")
@MODES
async def test_plan_reports_progress(served, mode):
    events_answer = Heard()
    async with Client(server.create_server(served), mode=mode) as client:

        async def apply(tool, **arguments):
            events_answer.so_far.clear()
            answer = await client.call_tool(tool, arguments, progress_callback=events_answer)
            assert not answer.is_error, answer.content[0].text
            return answer.structured_content

        for number in range(3):
            await apply("sessions_edit", sessions=f"old{number}", title=f"T{number}")
        planned = await apply("sessions_prune", what="trash", older_than_days=0)
        await apply("sessions_prune", plan=planned["plan"])
        assert events_answer.so_far == [(1, 3), (2, 3), (3, 3)]
        planned = await apply("sessions_prune", what="all")
        result = await apply("sessions_prune", plan=planned["plan"])
        assert events_answer.so_far[-1] == (planned["count"], planned["count"])
        await apply("sessions_restore", batch=result["batch"])
        steps = [step for step, _ in events_answer.so_far]
        assert steps == sorted(set(steps))
        assert events_answer.so_far[-1] == (steps[-1], steps[-1])
        planned = await apply("sessions_compress", session="long", method="extractive", keep_last=9)
        await apply("sessions_compress", plan=planned["plan"])
        assert events_answer.so_far == [(planned["count"], planned["count"])]


@pytest.mark.requirement("changing:working")
@MODES
async def test_progress_requires_token(served, mode):
    async with Client(server.create_server(served), mode=mode) as client:
        planned = (await client.call_tool("sessions_prune", {})).structured_content
        answer = await client.call_tool("sessions_prune", {"plan": planned["plan"]})
        assert answer.structured_content["outcome"] == "applied"


@pytest.mark.requirement("changing:working")
@MODES
async def test_cancelled_plan_stops_between_steps(served, db, mode):
    async with (
        Client(server.create_server(served), mode=mode) as client,
        anyio.create_task_group() as t,
    ):
        planned = (await client.call_tool("sessions_prune", {"what": "all"})).structured_content
        assert planned["count"] > 3
        arguments, ended, scope = {"plan": planned["plan"]}, anyio.Event(), anyio.CancelScope()

        async def apply():
            with scope:
                await client.call_tool("sessions_prune", arguments)
            ended.set()

        ledger = served.get_home().ledger
        with db.transaction():  # its first step has to wait for this
            t.start_soon(apply)
            await wait_until(lambda: ledger.get_plan(planned["plan"]).state == "applying")
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
        await ended.wait()
        await wait_until(lambda: not ledger.list_unsettled_steps())
        begun = ledger.get_plan(planned["plan"])
        assert begun.state == "applying"
        assert 0 < len(begun.remaining) < planned["count"]
        answer = (await client.call_tool("sessions_prune", arguments)).structured_content
        assert (answer["outcome"], answer["remaining"]) == ("applied", 0)
        assert RESUMED_NOTE in answer["warnings"]
        assert answer["batch"] == begun.batch
        (batch,) = (await client.call_tool("sessions_restore", {})).structured_content["batches"]
        assert batch["batch"] == answer["batch"]
        back = await client.call_tool("sessions_restore", {"batch": answer["batch"]})
        assert back.structured_content["outcome"] == "applied"
        assert RESUMED_NOTE not in back.structured_content["warnings"]
        assert db.get_session("old0") is not None


@pytest.mark.requirement("changing:working")
@MODES
async def test_timed_out_plan_is_resumed(served, db, mode, monkeypatch):
    """Make the time limit of a call expire after one step."""
    for does in (Maintenance.apply, Maintenance.restore):
        assert does.__defaults__ == (20.0,)
        monkeypatch.setattr(does, "__defaults__", (0.0,))
    async with Client(server.create_server(served), mode=mode) as client:

        async def to_the_end(tool, **arguments):
            answers = []
            while not answers or answers[-1]["outcome"] == "partial":
                answers.append((await client.call_tool(tool, arguments)).structured_content)
            remaining = [answer["remaining"] for answer in answers]
            assert len(remaining) > 1
            assert remaining == sorted(set(remaining), reverse=True)
            assert (answers[-1]["outcome"], remaining[-1]) == ("applied", 0)
            assert len({answer["batch"] for answer in answers}) == 1
            return answers[-1]

        planned = (await client.call_tool("sessions_prune", {"what": "all"})).structured_content
        done = await to_the_end("sessions_prune", plan=planned["plan"])
        assert db.get_session("old0") is None
        await to_the_end("sessions_restore", batch=done["batch"])
        assert db.get_session("old0") is not None


@pytest.mark.requirement("changing:working")
@MODES
async def test_cancelled_compression_changes_nothing(served, db, mode):
    async with (
        Client(server.create_server(served), mode=mode) as client,
        anyio.create_task_group() as t,
    ):
        call = {"session": "long", "method": "extractive", "keep_last": 9}
        planned = (await client.call_tool("sessions_compress", call)).structured_content
        arguments, ended, scope = {"plan": planned["plan"]}, anyio.Event(), anyio.CancelScope()

        async def apply():
            with scope:
                await client.call_tool("sessions_compress", arguments)
            ended.set()

        threads = set(threading.enumerate())

        def has_begun():
            begun = set(threading.enumerate()) - threads
            return any(thread.name == "compression lock" for thread in begun)

        before = db.get_revision("long")
        with db.transaction():
            t.start_soon(apply)
            await wait_until(has_begun)
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
        await ended.wait()
        await wait_until(lambda: not has_begun())
        assert db.get_revision("long") == before
        assert served.get_home().ledger.get_plan(planned["plan"]).state == "planned"
        answer = (await client.call_tool("sessions_compress", arguments)).structured_content
        assert answer["outcome"] == "applied"


@pytest.mark.requirement("changing:log")
@MODES
@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("editor", "mcp-sessions: editor"),
        ("a\u202e\nb" + "c" * 99, f"mcp-sessions: a b{'c' * 56}…"),
    ],
)
async def test_audit_log_names_client(served, mode, name, noted):
    info = Implementation(name=name, version="1")
    async with Client(server.create_server(served), mode=mode, client_info=info) as client:
        await client.call_tool("sessions_edit", {"sessions": "long", "title": "Named"})
        planned = (await client.call_tool("sessions_prune", {})).structured_content
        await client.call_tool("sessions_prune", {"plan": planned["plan"]})
    lines = served.get_home().ledger.list_audit_entries().items
    assert [line.client for line in lines] == [noted] * 2


@pytest.mark.requirement("changing:working")
@MODES
async def test_deep_stats_reports_progress_and_cancels(served, mode, monkeypatch):
    monkeypatch.setattr(maintenance_progress, "_PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr(vacuum_file, "_INSTRUCTIONS_PER_STEP", 50)
    events_answer = Heard()
    async with Client(server.create_server(served), mode=mode) as client:
        deep = {"deep": True}
        answer = await client.call_tool("sessions_stats", deep, progress_callback=events_answer)
        assert not answer.structured_content["estimated"]
        steps_told = [step for step, _ in events_answer.so_far]
        assert len(steps_told) > 2
        assert steps_told == sorted(set(steps_told))
        assert {total for _, total in events_answer.so_far} == {2}
        assert max(steps_told) < 2

        ended: list[str] = []
        examine = health.examine_home
        looking = threading.Event()

        def examined(*arguments, stop, **options):
            looking.set()
            report = examine(*arguments, stop=lambda: wait_for(stop), **options)
            ended.extend(finding.code for finding in report.findings)
            return report

        def wait_for(stop):
            while not stop():
                time.sleep(0.005)
            return True

        monkeypatch.setattr(health, "examine_home", examined)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.call_tool, "sessions_stats", deep))
            await wait_until(looking.is_set)
            tasks.cancel_scope.cancel()
        await wait_until(lambda: "ended" in ended)
        answer = await client.call_tool("sessions_stats", {})
        assert not answer.is_error
