"""Homes of every kind: Hermes homes of each schema, without a database, damaged."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB
from tests.homes import fill_database, make_hermes_database

pytestmark = pytest.mark.anyio

READING = (
    ("sessions_list", {}),
    ("sessions_search", {"query": "deploy"}),
    ("sessions_stats", {}),
    ("routes_list", {}),
    ("events_wait", {"timeout_s": 0}),
)


async def list_and_read(path, *calls, **options):
    served = ServedStores(ServerOptions(home=str(path), **options))
    async with Client(server.create_server(served), cache=None) as client:
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
    served.close()
    return answers


@pytest.mark.requirement("faces:homes")
@pytest.mark.parametrize("schema", [16, 19, 22, 26, 30])
async def test_every_schema_version_is_served(home_path, schema):
    make_hermes_database(home_path / "state.db", schema)
    newest = fill_database(home_path / "state.db", 4, 8)[-1]
    calls = (*READING, ("sessions_read", {"session": newest}))
    listed, result, report, _, _, page = await list_and_read(home_path, *calls, read_only=True)
    assert len(listed.structured_content["sessions"]) == 4
    assert result.structured_content["hits"]
    assert report.structured_content["messages"] == 32
    assert len(page.structured_content["messages"]) == 8


@pytest.mark.requirement("faces:homes")
async def test_home_without_database_lists_routes(home_path):
    entry = {
        "session_key": "agent:main:telegram:dm:42",
        "session_id": "20260101_000000_abcd",
        "created_at": "2026-01-01T00:00:00",
        "updated_at": "2026-01-01T00:00:00",
        "platform": "telegram",
        "chat_type": "dm",
    }
    (home_path / "sessions").mkdir()
    written = {"_README": "mine", entry["session_key"]: entry}
    (home_path / "sessions" / "sessions.json").write_text(json.dumps(written))
    listed, _, report, routes, _ = await list_and_read(home_path, *READING, read_only=True)
    assert listed.structured_content["sessions"] == []
    assert [item["session_key"] for item in routes.structured_content["routes"]] == [
        "agent:main:telegram:dm:42"
    ]
    assert "no_database" in [item["code"] for item in report.structured_content["findings"]]
    assert not (home_path / "state.db").exists()


@pytest.mark.requirement("faces:homes")
async def test_damaged_home_reports_error(home_path):
    (home_path / "state.db").write_bytes(b"this is no database at all" * 400)
    listed, result, report, *_ = await list_and_read(home_path, *READING)
    assert listed.is_error
    assert result.is_error
    assert "sessions_stats" in listed.content[0].text
    assert not report.is_error, report.content[0].text
    assert "unreadable" in [finding["code"] for finding in report.structured_content["findings"]]


@pytest.mark.requirement("faces:homes")
async def test_reading_creates_no_files(home_path):
    before = sorted(path.name for path in home_path.iterdir())
    await list_and_read(home_path, *READING)
    assert sorted(path.name for path in home_path.iterdir()) == before


@pytest.mark.requirement("faces:homes")
async def test_concurrent_threads_share_database_and_feed(home_path):
    for _ in range(20):
        home, gate = ServedHome(home_path), threading.Barrier(8)

        def ask(home=home, gate=gate):
            gate.wait()
            return home.feed, home.db

        with ThreadPoolExecutor(8) as threads:
            result = [item.result() for item in [threads.submit(ask) for _ in range(8)]]
        home.close()
        assert len(set(map(id, (part for pair in result for part in pair)))) == 2


def test_terminal_session_has_resume_command(home_path):
    commands = {}
    with SessionDB(home_path / "state.db") as db:
        for session_id, source in (("s1", "cli"), ("-s2", "cli"), ("s3", "telegram")):
            db.create_session(session_id, source)
        for name in ("hermes", "hermes:work", "own"):
            home = ServedHome(home_path, name=name)
            rows = [db.summarize_session(session_id) for session_id in ("s1", "-s2", "s3")]
            commands[name] = [home.build_resume_command(row) for row in rows]
    assert commands == {
        "hermes": [("hermes", "--resume", "s1"), None, None],
        "hermes:work": [("hermes", "-p", "work", "--resume", "s1"), None, None],
        "own": [None, None, None],
    }
