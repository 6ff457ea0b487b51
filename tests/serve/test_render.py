"""Values of unexpected types in text columns are rendered as text and break nothing."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client

from mcp_serve import plain_text, server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import _sqlite3

pytestmark = pytest.mark.anyio

COLUMNS = ("title", "source", "end_reason")


def write_odd_value(home_path, column):
    with _sqlite3.connect(f"file:{home_path / 'state.db'}?mode=rw", busy_timeout_s=5) as connection:
        connection.execute(f"UPDATE sessions SET {column} = x'414200ff'")  # noqa: S608
        connection.commit()
    connection.close()


@pytest.mark.requirement("faces:odd-values")
@pytest.mark.parametrize("column", COLUMNS)
async def test_bytes_in_text_column_are_listed(db, home_path, call, column):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    db.end_session("s1", "done")
    write_odd_value(home_path, column)
    (row,) = (await call("sessions_list", status="all"))["sessions"]
    assert row[column].startswith("AB")


@pytest.mark.requirement("faces:odd-values")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_failing_feed_leaves_calls_working(db, home_path, mode, monkeypatch):
    db.append_message("s1", "user", "hello", create={"source": "cli"})
    served = ServedStores(ServerOptions(home=str(home_path)))
    failed = anyio.Event()

    class Feed:
        def get_current_position(self, _):
            anyio.from_thread.run_sync(failed.set)
            raise TypeError

    created = server.create_server(served)
    monkeypatch.setitem(vars(served.get_home()), "feed", Feed())
    async with Client(created, mode=mode, cache=None) as client:
        await client.list_tools()
        with anyio.fail_after(20):
            if mode == "auto":
                async with client.listen(resource_subscriptions=["session://s1"]):
                    await failed.wait()
            else:
                await failed.wait()
        listed = await client.call_tool("sessions_list", {})
        assert len(listed.structured_content["sessions"]) == 1
    served.close()


@pytest.mark.requirement("faces:odd-values")
def test_lone_surrogate_in_name_is_replaced():
    shown = plain_text.to_plain_line("Al \ud83d ex"), plain_text.to_text("agent:\udcff")
    assert shown == ("Al \ufffd ex", "agent:\ufffd")
