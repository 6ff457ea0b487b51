"""`routes_list`: filters, pages, and a gateway that holds the routes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("serving:routes")
async def test_route_has_contract_keys(call, key):
    (route,) = (await call("routes_list", platform="telegram"))["routes"]
    assert route == {
        "session_key": key,
        "session_id": route["session_id"],
        "platform": "telegram",
        "state": "active",
        "name": "Lisbon trip",
        "updated_at": route["updated_at"],
    }


@pytest.mark.requirement("serving:routes")
async def test_routes_list_filters_and_pages(call, key):
    assert len((await call("routes_list", query="lisbon"))["routes"]) == 1
    assert len((await call("routes_list", state="active"))["routes"]) == 1
    first = await call("routes_list", limit=1)
    rest = await call("routes_list", cursor=first["next_cursor"])
    result = [route["session_key"] for route in first["routes"] + rest["routes"]]
    assert len(set(result)) == 2
    assert rest["next_cursor"] is None


@pytest.mark.requirement("serving:values")
async def test_platform_ignores_case_and_is_explained(call, key):
    (route,) = (await call("routes_list", platform="Telegram"))["routes"]
    assert route["session_key"] == key
    page = await call("routes_list", platform="slack")
    assert page["routes"] == []
    assert page["note"] == "No platform 'slack'; existing: discord, telegram."
    assert "sessions_list" in (await call("routes_list", query="nobody"))["note"]


@pytest.mark.requirement("serving:routes")
async def test_read_resolves_session_key(call, key):
    page = await call("sessions_read", session=key)
    assert [message["text"] for message in page["messages"]] == ["hello"]


@pytest.fixture(name="gateway")
def _gateway(home_path):
    """A process that looks like a live gateway of this home."""
    code = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", code, "hermes", "gateway", "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        record = {"pid": process.pid, "kind": "hermes-gateway", "argv": command[3:]}
        (home_path / "gateway.pid").write_text(json.dumps(record))
        yield process.pid
        process.kill()


@pytest.mark.requirement("serving:routes")
async def test_live_gateway_refuses_route_changes(call, key, gateway):
    assert (await call("sessions_stats"))["gateway_live"] is True
    (route,) = (await call("routes_list", platform="telegram"))["routes"]
    arguments = {"sessions": [route["session_id"]], "start_new": True}
    planned = await call("sessions_finalize", **arguments)
    assert (planned["outcome"], planned["plan"]) == ("nothing", None)
    assert planned["warnings"] == [
        f"a gateway (pid {gateway}) holds the routes in memory: stop it to change them"
    ]
    (again,) = (await call("routes_list", platform="telegram"))["routes"]
    assert again == route
