"""Routes that the real session store wrote are read by ours without loss, and the reverse."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from session_core.chats import SessionSource, build_session_key
from session_core.errors import Denied
from session_core.routing.entries import SessionEntry
from tests.interop.routes import SOURCES, Chats

LATER = {"metadata": {"deep": [1, {"a": None}]}, "prev_session_id": "s0", "active_turn_token": 7}
"""Fields that later versions have, and nobody knows here."""


@pytest.fixture
def chats(theirs, ours):
    """A home with several chats that the real store has routed."""
    found = Chats(theirs, ours)
    found.furnish()
    return found


@pytest.mark.requirement("routes:read")
def test_routes_written_by_hermes_are_read_whole(chats):
    chats.edit("ann", **LATER)
    chats.edit("slack", expiry_finalized=None, memory_flushed=True)
    stored = chats.table() or chats.file_entries()
    assert set(chats.keys.values()) <= set(stored)
    with chats.ours() as store:
        read = {key: entry.to_dict() for key, entry in store.load_entries().items()}
        assert store.problems == []
        assert [store.get(key).to_dict() for key in read] == list(read.values())
    flushed = stored[chats.keys["slack"]]
    assert flushed.pop("memory_flushed")
    flushed["expiry_finalized"] = True
    stored[chats.keys["channel"]]["origin"]["scope_id"] = "g1"  # the older versions have one name
    assert read == stored


def test_every_hermes_entry_state_is_understood(chats):
    with chats.ours() as store:
        found = {name: store.get(key) for name, key in chats.keys.items()}
    assert found["thread"].suspended
    assert (found["channel"].resume_pending, found["channel"].resume_reason) == (
        True,
        "restart_timeout",
    )
    assert found["channel"].last_resume_marked_at is not None
    assert found["slack"].is_fresh_reset
    assert (found["whatsapp"].was_auto_reset, found["whatsapp"].auto_reset_reason) == (
        True,
        "suspended",
    )
    assert (found["signal"].last_prompt_tokens, found["signal"].cost_status) == (1234, "estimated")
    if chats.has_table:
        override = {"model": "m", "provider": "p", "base_url": "https://b.test"}
        assert found["matrix"].model_override == override
        assert found["matrix"].to_dict()["model_override"] == override
    for name, source in SOURCES.items():
        assert {**found[name].origin.to_dict(), **source} == found[name].origin.to_dict()


@pytest.mark.requirement("routes:read")
def test_manual_additions_survive_route_changes(chats):
    chats.edit("ann", **LATER)
    chats.edit_file(_note={"kept": [1, 2]}, broken=True)
    with chats.ours() as store:
        for key in (chats.keys["ann"], chats.keys["matrix"]):
            store.update_session(key, 77)
    file = chats.file()
    assert (file["_note"], file["broken"]) == ({"kept": [1, 2]}, True)
    for copy in filter(None, (chats.table(), chats.file_entries())):
        entry = copy[chats.keys["ann"]]
        assert {name: entry[name] for name in LATER} == LATER
        assert entry["last_prompt_tokens"] == 77


@pytest.mark.requirement("routes:read")
@pytest.mark.parametrize("copy", ["neither", "table", "file"])
def test_hermes_loads_every_written_field(chats, copy):
    if copy not in chats.copies_to_lose():
        return  # this version has but one copy
    with chats.ours(config={"sessions_dir": ""}) as store:
        _write_all_kinds(store, chats)
        written = {key: entry.to_dict() for key, entry in store.load_entries().items()}
    assert chats.table() in ({}, written)
    assert chats.file_entries() == written
    chats.lose(copy)
    loaded = chats.loaded_by_theirs()
    assert set(loaded) == set(written)
    for key, entry in loaded.items():
        assert _drop_fields(entry, "origin") == {
            name: written[key].get(name) for name in entry if name != "origin"
        }
        assert entry["origin"] == {name: written[key]["origin"][name] for name in entry["origin"]}
        assert SessionEntry.from_dict(entry).session_id == written[key]["session_id"]


def _write_all_kinds(store, chats):
    """Change every entry in another way, and add chats of our own."""
    for number in range(20):
        kind = ("dm", "group", "thread")[number % 3]
        source = SessionSource("telegram", str(number), f"Chat {number} é", kind, user_id="u")
        store.get_or_create_session(source)
    for name, key in chats.keys.items():
        entry = store.get(key)
        entry.display_name = f'{name} "quoted" \\ 数据库 \u2028'
        entry.input_tokens, entry.estimated_cost_usd = 2**40, 0.1
        entry.created_at = datetime(2024, 2, 29, 23, 59, 59, 999999)  # noqa: DTZ001 -- local, as stored
        store.save(entry)
    store.suspend_session(chats.keys["ann"])
    store.mark_resume_pending(chats.keys["signal"])
    store.set_model_override(chats.keys["slack"], {"model": "big", "api_key": "secret"})


def _drop_fields(entry, name):
    return {key: value for key, value in entry.items() if key != name}


def test_route_file_for_tableless_hermes_is_loaded(chats):
    """The oldest versions stop reading at a text, so only newer ones get the explanation."""
    if chats.has_table:
        return
    explained = "_README" in chats.file()
    with chats.ours() as store:
        store.update_session(chats.keys["ann"], 5)
    assert ("_README" in chats.file()) is explained
    assert set(chats.keys.values()) <= set(chats.loaded_by_theirs())


def test_hermes_changes_reach_open_store(chats):
    key = chats.keys["ann"]
    with chats.ours() as store:
        before = store.get(key)
        assert not before.suspended
        chats.theirs.job("store_call", method="suspend_session", args=[key])
        assert store.get(key).suspended
        chats.theirs.job("arrive", source=SOURCES["ann"])
        assert store.get(key).session_id != before.session_id
        new = chats.theirs.job("arrive", source={**SOURCES["ann"], "chat_id": "43"})
        assert store.get(new["session_key"]).to_dict() == new
        assert store.lookup_by_session_id(new["session_id"]).session_key == new["session_key"]


def test_route_table_takes_precedence_over_file(chats):
    if not chats.has_table:
        return
    key = chats.keys["ann"]
    in_file = {**chats.table()[key], "session_id": "of_the_file"}
    chats.edit_file(**{key: in_file, "agent:main:telegram:dm:only": {
        **in_file, "session_key": "agent:main:telegram:dm:only"}})  # fmt: skip
    with chats.ours() as store:
        ours = {one: entry.session_id for one, entry in store.load_entries().items()}
    theirs = {one: entry["session_id"] for one, entry in chats.loaded_by_theirs().items()}
    assert ours == theirs
    assert ours[key] == chats.table()[key]["session_id"] != "of_the_file"
    assert ours["agent:main:telegram:dm:only"] == "of_the_file"


@pytest.mark.requirement("routes:read")
@pytest.mark.parametrize("copy", ["neither", "table", "file"])
def test_deleted_routes_stay_deleted_in_hermes(chats, copy):
    if copy not in chats.copies_to_lose():
        return
    gone, stays = chats.keys["ann"], chats.keys["matrix"]
    with chats.ours() as store:
        assert store.remove({gone: store.get(gone)}) == [gone]
    chats.lose(copy)
    loaded = chats.loaded_by_theirs()
    assert gone not in loaded
    assert stays in loaded
    with chats.ours() as store:
        assert store.get(gone) is None


def test_disabled_route_file_restores_no_deleted_routes(chats):
    gone = chats.keys["ann"]
    with chats.ours(config={"write_sessions_json": False}) as store:
        before = chats.file_path.read_bytes()
        store.update_session(chats.keys["matrix"], 99)
        if chats.has_table:
            assert chats.file_path.read_bytes() == before
        store.remove({gone: store.get(gone)})
    assert gone not in chats.loaded_by_theirs()


@pytest.mark.requirement("routes:read")
def test_session_keys_match_hermes(theirs):
    chance = random.Random(3)
    sources = [_make_random_source(chance) for _ in range(600)]
    for grouped in (True, False):
        for threaded in (True, False):
            for profile in (None, "", "default", "coder"):
                options = {"group_sessions_per_user": grouped, "thread_sessions_per_user": threaded}
                expected = theirs.job("keys", sources=sources, profile=profile, **options)
                built = [
                    build_session_key(SessionSource.from_dict(one), profile=profile, **options)
                    for one in sources
                ]
                assert built == expected


def _make_random_source(chance):
    """Return a source of any shape that an adapter makes."""
    platforms = ("telegram", "discord", "slack", "whatsapp", "signal", "matrix", "email", "feishu")
    ids = ("", "42", "-100", "12-34@g.us", "+49170:3@s.whatsapp.net", "49170:12@s.whatsapp.net")
    platform = chance.choice(platforms)
    if platform != "whatsapp":  # theirs raises for an id that WhatsApp has not
        ids += ("a:b", "C1/2", "ünï", "@me:server", "+49 170")
    source = {
        "platform": platform,
        "chat_id": chance.choice(ids),
        "chat_type": chance.choice(("dm", "dm", "group", "channel", "thread", "forum")),
    }
    for name in ("user_id", "user_id_alt", "thread_id", "guild_id", "profile"):
        if chance.random() < 0.5:
            source[name] = chance.choice(ids)
    return source


@pytest.mark.requirement("routes:read")
def test_route_changes_next_to_gateway_are_refused(chats, tmp_path):
    program = tmp_path / "gateway" / "run.py"
    program.parent.mkdir()
    program.write_text("import sys; print('up', flush=True); sys.stdin.read()")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    key = chats.keys["ann"]
    with (
        subprocess.Popen([sys.executable, str(program)], **pipes) as gateway,
        chats.ours() as store,
    ):
        assert gateway.stdout.readline()
        (chats.db.path.parent / "gateway.pid").write_text(f'{{"pid": {gateway.pid}}}')
        before = chats.table(), chats.file(), store.get(key)
        for change in (
            lambda: store.get_or_create_session(chats.source("ann")),
            lambda: store.reset_session(key),
            lambda: store.suspend_session(key),
            lambda: store.switch_session(key, "cli_work"),
            lambda: store.remove({key: store.get(key)}),
            lambda: store.save(store.get(key)),
        ):
            with pytest.raises(Denied, match=rf"pid {gateway.pid}\b.*stop it"):
                change()
        assert (chats.table(), chats.file(), store.get(key)) == before
        gateway.stdin.close()
    with chats.ours() as store:
        assert store.suspend_session(key)


def test_route_pruning_by_age_matches_hermes(chats):
    """In both, age counts from the last message, and a suspended chat stays."""
    old = (datetime.now() - timedelta(days=91)).isoformat()  # noqa: DTZ005 -- local, as stored
    for name in ("ann", "thread", "matrix"):
        chats.edit(name, updated_at=old)
    before = set(chats.loaded_by_theirs())
    with chats.ours() as store:
        assert store.prune_old_entries(90) == 2
    after = set(chats.loaded_by_theirs())
    assert before - after == {chats.keys["ann"], chats.keys["matrix"]}
    assert chats.theirs.job("store_call", method="prune_old_entries", args=[90]) == 0
