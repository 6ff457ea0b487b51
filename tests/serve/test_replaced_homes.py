"""A home whose database file is replaced or invalid while it is served."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from mcp.types import PromptReference, ResourceTemplateReference

from mcp_serve.features.late_features import ServedFeatures
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB
from tests.serve.fixed_resources import FIXED_RESOURCES

pytestmark = pytest.mark.anyio

COMPLETED = (
    (PromptReference(name="catch_up"), "session"),
    (ResourceTemplateReference(uri="session://{session_id}"), "session_id"),
    (ResourceTemplateReference(uri="route://{session_key}"), "session_key"),
    (PromptReference(name="catch_up"), "source"),
    (PromptReference(name="catch_up"), "project"),
)


def replace_database(home_path: Path, name: str) -> None:
    """Replace the database of a home, as restoring a backup does."""
    other = home_path.parent / name / "state.db"
    with SessionDB(other) as db:
        db.append_message(name, "user", f"of {name}", create={"source": "cli"})
    for file in home_path.glob("state.db*"):
        file.unlink()
    other.replace(home_path / "state.db")


@pytest.mark.requirement("faces:replaced")
async def test_replaced_database_is_read_and_written(home_path, call):
    for name in ("one", "two", "three"):
        replace_database(home_path, name)
        (row,) = (await call("sessions_list"))["sessions"]
        assert row["id"] == name
        changed = await call("sessions_edit", sessions=name, title=f"Title {name}")
        assert changed["sessions"][0]["title"] == f"Title {name}"
        (batch,) = (await call("sessions_restore"))["batches"]
        assert batch["batch"] == changed["batch"]
        planned = await call("sessions_prune", sessions=[name])
        assert planned["outcome"] in ("planned", "nothing")


@pytest.mark.requirement("faces:replaced")
async def test_replaced_database_reports_event_gap(home_path, call):
    replace_database(home_path, "one")
    start = await call("events_wait", timeout_s=0)
    replace_database(home_path, "two")
    answer = await call("events_wait", cursor=start["cursor"], timeout_s=20)
    assert (answer["events"], answer["gap"]) == ([], True)
    with SessionDB(home_path / "state.db") as db:
        db.append_message("two", "user", "news")
    answer = await call("events_wait", cursor=answer["cursor"], timeout_s=20)
    assert [event["text"] for event in answer["events"]] == ["news"]


async def test_running_call_survives_two_replacements(home_path):
    replace_database(home_path, "one")
    served = ServedStores(ServerOptions(home=str(home_path)))
    under_way = served.get_home()
    assert [row.id for row in under_way.db.list_sessions().items] == ["one"]
    for name in ("two", "three"):
        replace_database(home_path, name)
        assert [row.id for row in served.get_home().db.list_sessions().items] == [name]
    assert under_way.feed.get_current_position(None).session is None
    served.close()


@pytest.mark.requirement("faces:replaced")
async def test_replaced_database_notifies_subscribers(home_path):
    replace_database(home_path, "one")
    served = ServedStores(ServerOptions(home=str(home_path)))
    features = ServedFeatures(served)
    assert await features.collect_changes() == ([], False)
    replace_database(home_path, "two")
    changed, listed = await features.collect_changes()
    assert {"sessions://stats", "sessions://routes", "session://one"} <= set(changed)
    assert listed
    assert await features.collect_changes() == ([], False)
    served.close()


@pytest.mark.requirement("faces:replaced")
async def test_batch_of_replaced_database_is_refused(home_path, call, refused):
    replace_database(home_path, "one")
    batch = (await call("sessions_edit", sessions="one", title="One"))["batch"]
    replace_database(home_path, "two")
    assert "no batch" in await refused("sessions_restore", batch=batch)


@pytest.fixture(name="damaged_home", params=["garbage", "folder"])
def _damaged(request, home_path):
    """A home whose database file is not a database."""
    path = home_path / "state.db"
    if request.param == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"this is no database at all" * 400)
    return home_path


@pytest.fixture(name="no_logged_defects")
def _silent(caplog):
    """Fail if the log reports a defect."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.requirement("faces:damage")
async def test_damaged_home_lists_fixed_resources(damaged_home, client, no_logged_defects):
    listed = await client.list_resources()
    assert [str(resource.uri) for resource in listed.resources] == FIXED_RESOURCES
    assert listed.next_cursor is None


@pytest.mark.requirement("faces:damage")
async def test_damaged_home_completes_nothing(damaged_home, client, no_logged_defects):
    for ref, argument in COMPLETED:
        arguments = {"name": argument, "value": "a"}
        assert (await client.complete(ref, arguments)).completion.values == []


@pytest.mark.requirement("faces:damage")
async def test_stats_reports_damaged_home(damaged_home, call, no_logged_defects):
    report = await call("sessions_stats")
    assert [finding["code"] for finding in report["findings"]] == ["unreadable"]
    assert "state.db" in report["findings"][0]["what"]


CALLS = (
    ("sessions_list", {}),
    ("sessions_read", {"session": "s1"}),
    ("sessions_search", {"query": "hi"}),
    ("events_wait", {"timeout_s": 0}),
    ("sessions_edit", {"sessions": "s1", "title": "T"}),
    ("sessions_prune", {}),
    ("sessions_finalize", {"what": "abandoned"}),
    ("sessions_compress", {"session": "s1"}),
)


@pytest.mark.requirement("faces:damage")
async def test_damaged_home_errors_name_stats(damaged_home, refused, no_logged_defects):
    for tool, arguments in CALLS:
        text = await refused(tool, **arguments)
        assert "state.db" in text, tool
        assert "sessions_stats" in text, tool
