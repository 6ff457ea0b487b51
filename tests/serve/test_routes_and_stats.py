"""`routes_list` and `sessions_stats`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from session_core import SessionSource, SessionStore

pytestmark = pytest.mark.anyio


@pytest.fixture(name="key")
def _key(db, home_path):
    chat = SessionSource(platform="telegram", chat_id="42", chat_name="Lisbon \u202etrip")
    with SessionStore.open(home_path, db) as store:
        entry = store.get_or_create_session(chat)
        db.append_message(entry.session_id, "user", "hello", create={"source": "telegram"})
        other = store.get_or_create_session(SessionSource(platform="discord", chat_id="7"))
        store.suspend_session(other.session_key)
        return entry.session_key


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


@pytest.mark.requirement("serving:routes")
async def test_read_resolves_session_key(call, key):
    page = await call("sessions_read", session=key)
    assert [message["text"] for message in page["messages"]] == ["hello"]


@pytest.mark.requirement("serving:stats")
async def test_stats_report_has_contract_keys(call, key, home_path):
    report = await call("sessions_stats")
    assert list(report) == [
        "home",
        "stores",
        "sessions",
        "messages",
        "size",
        "growth_per_week",
        "tokens",
        "cost",
        "findings",
        "sqlite",
        "gateway_live",
        "estimated",
    ]
    assert list(report["sessions"]) == ["total", "open", "ended", "archived", "by_source"]
    assert list(report["size"]) == ["db", "wal", "index", "free", "trash"]
    assert (report["home"], report["messages"]) == (str(home_path), 1)
    assert report["sessions"]["by_source"]["telegram"] == 1


@pytest.mark.requirement("serving:stats")
async def test_stats_finding_names_repair_call(call, db):
    db.append_message("old", "user", "x", timestamp=1.6e9, create={"started_at": 1.6e9})
    db.end_session("old", "user_exit")
    findings = {finding["code"]: finding for finding in (await call("sessions_stats"))["findings"]}
    assert findings["old_sessions"]["tool"] == "sessions_prune(what='sessions')"


@pytest.mark.requirement("serving:stats")
async def test_stats_report_counts_sessions(call, db):
    for name in ("open", "ended", "archived"):
        db.append_message(name, "user", "hello", create={"source": "cli"})
        db.append_message(name, "assistant", "hi")
    db.update_token_counts("open", input_tokens=700, output_tokens=30, estimated_cost_usd=0.25)
    db.update_token_counts("ended", input_tokens=300, output_tokens=12, estimated_cost_usd=0.5)
    db.end_session("ended", "user_exit")
    db.set_session_archived("archived", archived=True)
    db.archive_and_compact("open", [{"role": "user", "content": "[summary]"}])
    report = await call("sessions_stats")
    counts = {"total": 3, "open": 1, "ended": 1, "archived": 1, "by_source": {"cli": 3}}
    assert report["sessions"] == counts
    assert report["messages"] == sum(db.message_count(n) for n in ("open", "ended", "archived"))
    assert {"input": 1000, "output": 42}.items() <= report["tokens"].items()
    assert report["cost"] == 0.75
    assert report["growth_per_week"] > 0
    assert report["size"]["db"] > 0
    assert report["gateway_live"] is False
    assert report["sqlite"].startswith("SQLite 3.")
    for finding in report["findings"]:
        assert list(finding) == ["code", "count", "bytes", "what", "tool"]


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
