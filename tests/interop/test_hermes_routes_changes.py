"""Our changes of routes as loaded by the real session store, from either stored copy."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from session_core.config import GatewayConfig
from session_core.errors import Conflict
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.interop.hermes import Hermes
from tests.interop.routes import SOURCES, Chats

COPIES = ("neither", "table", "file")


@pytest.fixture
def chats(theirs, ours):
    """A home with several chats that the real store has routed."""
    found = Chats(theirs, ours)
    found.furnish()
    return found


@pytest.fixture(params=COPIES)
def lost(request, chats):
    """The copy that is lost after the change. Versions with one copy lose none."""
    return request.param if request.param in chats.copies_to_lose() else "neither"


def _send_message(chats, name):
    """Start the gateway, handle a message of a chat, and return its session."""
    chats.loaded_by_theirs()
    entry = chats.theirs.job("arrive", source=SOURCES[name])
    return entry["session_id"]


def _get_end_reason(chats, session_id):
    return chats.theirs.call("get_session", session_id)["end_reason"]


def _rotate_session(chats, name, *, child="child_1", lost_ids=False):
    """Compress a session as Hermes does, up to the point where it saves the route."""
    parent = chats.loaded_by_theirs()[chats.keys[name]]["session_id"]
    chats.theirs.call("end_session", parent, "compression")
    chats.theirs.call("create_session", child, "telegram", parent_session_id=parent)
    chats.theirs.call("append_message", child, "user", "summary of all before")
    return parent, child


@pytest.mark.requirement("routes:change")
def test_hermes_loads_reset(chats, lost):
    key = chats.keys["ann"]
    with chats.ours() as store:
        before = store.get(key).session_id
        new = store.reset_session(key).session_id
    chats.lose(lost)
    loaded = chats.loaded_by_theirs()[key]
    assert (loaded["session_id"], loaded["is_fresh_reset"]) == (new, True)
    assert _send_message(chats, "ann") == new != before
    assert _get_end_reason(chats, before) == "session_reset"


def test_hermes_loads_switch(chats, lost):
    key = chats.keys["ann"]
    with chats.ours() as store:
        before = store.get(key).session_id
        store.switch_session(key, "cron_job1_20250101")
    chats.lose(lost)
    assert _send_message(chats, "ann") == "cron_job1_20250101"
    assert _get_end_reason(chats, "cron_job1_20250101") is None
    assert _get_end_reason(chats, before) == "session_switch"


def test_switch_to_older_session_survives_gateway_stop(chats, lost):
    """The newest session of the chat is another one then. The route decides."""
    key = chats.keys["ann"]
    with chats.ours() as store:
        store.switch_session(key, "cron_job1_20250101")
        chats.theirs.call("end_session", "cron_job1_20250101", "agent_close")
        assert store.repair_routes() == [key]
    chats.lose(lost)
    assert _send_message(chats, "ann") == "cron_job1_20250101"


def test_switch_updates_session_like_hermes(chats, version):
    """So it is found again if both copies are lost."""
    if version == "0.17.0":
        return  # it does not change the session
    with chats.ours() as store:
        store.switch_session(chats.keys["ann"], "cron_job1_20250101")
    ours = chats.theirs.call("get_session", "cron_job1_20250101")
    chats.theirs.job("store_open")
    chats.theirs.job(
        "store_call", method="switch_session", args=[chats.keys["ann"], "ended_for_nothing"]
    )
    theirs = chats.theirs.call("get_session", "ended_for_nothing")
    told = ("source", "session_key", "chat_id", "chat_type", "thread_id", "user_id",
            "display_name", "origin_json")  # fmt: skip
    assert {n: ours[n] for n in told if n in ours} == {n: theirs[n] for n in told if n in theirs}


def test_hermes_loads_suspension(chats, lost):
    key = chats.keys["ann"]
    with chats.ours() as store:
        before = store.get(key).session_id
        assert store.suspend_session(key)
    chats.lose(lost)
    loaded = chats.loaded_by_theirs()[key]
    assert (loaded["session_id"], loaded["suspended"]) == (before, True)
    assert _send_message(chats, "ann") != before


@pytest.mark.requirement("routes:change")
def test_hermes_loads_followed_rotation(chats, lost):
    key = chats.keys["ann"]
    parent, child = _rotate_session(chats, "ann")
    with chats.ours() as store:
        store.move_to_continuation(key, parent, child)
        with pytest.raises(Conflict):
            store.move_to_continuation(key, parent, "another")
    chats.lose(lost)
    assert chats.loaded_by_theirs()[key]["session_id"] == child
    assert _send_message(chats, "ann") == child
    row = chats.theirs.call("get_session", child)
    told = {"session_key": key, "chat_id": "42", "chat_type": "dm", "user_id": "42"}
    assert {name: row[name] for name in told if name in row} == {
        name: value for name, value in told.items() if name in row
    }


def test_rotation_is_recovered_without_route_copies(chats, version):
    if version == "0.17.0":
        return  # it finds nothing again
    parent, child = _rotate_session(chats, "ann")
    with chats.ours() as store:
        store.move_to_continuation(chats.keys["ann"], parent, child)
    chats.lose("table" if chats.has_table else "neither")
    chats.lose("file")
    assert _send_message(chats, "ann") == child


@pytest.mark.requirement("routes:change")
def test_hermes_loads_pruning(chats, lost):
    old = (datetime.now() - timedelta(days=91)).isoformat()  # noqa: DTZ005 -- local, as stored
    chats.edit("ann", updated_at=old)
    chats.edit("thread", updated_at=old)  # which is suspended
    before = set(chats.loaded_by_theirs())
    with chats.ours(config={"session_store_max_age_days": 90}) as store:
        assert store.prune_old_entries(store.config.session_store_max_age_days) == 1
    chats.lose(lost)
    assert before - set(chats.loaded_by_theirs()) == {chats.keys["ann"]}


def test_hermes_loads_new_chat(chats, lost):
    """A chat that begins in our store continues in Hermes with its messages."""
    begun = {}
    with chats.ours() as store:
        for name, other in (("ann", "43"), ("signal", "g2")):
            source = chats.source(name)
            source.chat_id = other
            entry = store.get_or_create_session(source)
            fields = store.build_session_fields(entry)
            chats.db.append_message(entry.session_id, "user", "said here", create=fields)
            begun[entry.session_key] = (source.to_dict(), entry.session_id)
    chats.lose(lost)
    chats.loaded_by_theirs()
    for key, (source, session_id) in begun.items():
        entry = chats.theirs.job("arrive", source=source)
        assert (entry["session_key"], entry["session_id"]) == (key, session_id)
        assert chats.theirs.call("get_messages", session_id)[0]["content"] == "said here"


def test_crash_after_rotation_loses_conversation_in_hermes(chats):
    """A correction: Hermes drops the route, or stays in the ended session."""
    _, child = _rotate_session(chats, "ann")
    assert _send_message(chats, "ann") != child or not chats.theirs.has("archive_and_compact")


@pytest.mark.requirement("routes:change")
def test_start_check_repairs_route_after_crash(chats, lost):
    key = chats.keys["ann"]
    _, child = _rotate_session(chats, "ann")
    with chats.ours() as store:
        assert key in store.repair_routes()
        assert store.get(key).session_id == child
        assert store.repair_routes() == []
    chats.lose(lost)
    assert chats.loaded_by_theirs()[key]["session_id"] == child
    assert _send_message(chats, "ann") == child
    assert _get_end_reason(chats, child) is None


def test_start_check_follows_chain_of_rotations(chats):
    _, first = _rotate_session(chats, "ann")
    chats.theirs.call("end_session", first, "compression")
    chats.theirs.call("create_session", "child_2", "telegram", parent_session_id=first)
    chats.theirs.call("append_message", "child_2", "user", "summary of the summary")
    with chats.ours() as store:
        store.repair_routes()
    assert _send_message(chats, "ann") == "child_2"


def test_closed_session_with_agent_stays_routed(chats, lost):
    """A correction: Hermes reopens the session and still drops its route."""
    key = chats.keys["ann"]
    before = chats.loaded_by_theirs()[key]
    chats.theirs.call("end_session", before["session_id"], "agent_close")
    with chats.ours() as store:
        assert key in store.repair_routes()
        assert store.get(key).session_id == before["session_id"]
    chats.lose(lost)
    assert _send_message(chats, "ann") == before["session_id"]


def test_hermes_loads_routes_of_own_home(version, tmp_path):
    if version == "0.17.0":
        return  # it reads nothing of a file that begins with an explanation
    home = tmp_path / "own"
    with SessionDB(home / "state.db") as db:
        with SessionStore(home / "sessions", config=GatewayConfig(), db=db) as store:
            chats = {name: Chats.source(None, name) for name in SOURCES}
            for source in chats.values():
                entry = store.get_or_create_session(source)
                db.append_message(
                    entry.session_id, "user", "ours", create=store.build_session_fields(entry)
                )
            written = {key: entry.to_dict() for key, entry in store.load_entries().items()}
        assert db.kind == "own"
    with Hermes(version, home) as theirs:
        loaded = theirs.job("store_open")
        assert {key: entry["session_id"] for key, entry in loaded.items()} == {
            key: entry["session_id"] for key, entry in written.items()
        }
        for name, source in SOURCES.items():
            entry = theirs.job("arrive", source=source)
            assert entry["session_id"] == written[entry["session_key"]]["session_id"], name
