"""Reading routes, and changes by another process or a live gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, Denied, InvalidInput, SessionDB, SessionEntry, SessionStore
from session_core.config import GatewayConfig
from tests.routing.chats import (
    BOTH,
    IDLE,
    KEY,
    NONE,
    Clock,
    chat,
    file_entries,
    make_stored_entry,
    put_row,
    read_rows,
)

# Reading


def test_lookup_finds_entry_by_session_id(any_store: SessionStore) -> None:
    for name in ("a", "b"):
        any_store.get_or_create_session(chat(name))
    key = "agent:main:telegram:dm:b"
    session_id = any_store.peek_session_id(key)
    assert session_id is not None
    entry = any_store.lookup_by_session_id(session_id)
    assert entry is not None
    assert entry.session_key == key
    assert any_store.lookup_by_session_id("none") is None
    assert any_store.peek_session_id("none") is None


def test_list_sessions_sorts_by_activity(any_store: SessionStore, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        any_store.get_or_create_session(chat(name))
        clock.advance(minutes=10)
    names = [entry.session_key[-1] for entry in any_store.list_sessions()]
    recent = [entry.session_key[-1] for entry in any_store.list_sessions(active_minutes=20)]
    assert (names, recent) == (["c", "b", "a"], ["c", "b"])


@pytest.mark.parametrize(("config", "ends"), [(NONE, False), (IDLE, True), (BOTH, True)])
def test_session_finalizable_depends_on_policy(
    make: Any, db: SessionDB, config: GatewayConfig, ends: bool
) -> None:
    store = make(db, config=config)
    assert store.is_session_finalizable(store.get_or_create_session(chat())) is ends


# Another process


@pytest.mark.requirement("store:conflict")
def test_store_sees_changes_of_second_store(any_store: SessionStore, make: Any) -> None:
    any_store.get_or_create_session(chat())
    other = make(any_store.db)
    reset = other.reset_session(KEY)
    assert reset is not None
    assert any_store.peek_session_id(KEY) == reset.session_id
    assert any_store.get_or_create_session(chat()).session_id == reset.session_id


@pytest.mark.requirement("store:conflict")
def test_lost_update_raises_conflict(any_store: SessionStore, make: Any) -> None:
    any_store.get_or_create_session(chat())
    stale = any_store.get(KEY)
    assert stale is not None
    make(any_store.db).suspend_session(KEY)
    stale.total_tokens = 5
    with pytest.raises(Conflict):
        any_store.save(stale)
    entry = any_store.get(KEY)
    assert entry is not None
    assert (entry.suspended, entry.total_tokens) == (True, 0)


@pytest.mark.requirement("store:conflict")
def test_new_entry_does_not_overwrite_existing(
    any_store: SessionStore,
) -> None:
    entry = any_store.get_or_create_session(chat())
    entry.stored = None
    entry.session_id = "another"
    with pytest.raises(Conflict):
        any_store.save(entry)


# A live gateway


def write_live_gateway(home: Path, pid: int) -> None:
    """Write the pid file of a live gateway."""
    argv = ["hermes", "gateway", "run"]
    record = {"pid": pid, "kind": "hermes-gateway", "argv": argv}
    (home / "gateway.pid").write_text(json.dumps(record))


@pytest.fixture
def gateway(home_path: Path) -> Any:
    """A process that looks like a live gateway of this home."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "hermes", "gateway", "run"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        write_live_gateway(home_path, process.pid)
        yield process
        process.kill()


@pytest.mark.requirement("store:gateway")
def test_live_gateway_makes_routes_read_only(
    make: Any, hermes: SessionDB, gateway: Any, folder: Path
) -> None:
    put_row(hermes, folder, make_stored_entry())
    store = make(hermes)
    entry = store.get(KEY)
    assert entry is not None
    before = read_rows(hermes, folder)
    changes = (
        lambda: store.get_or_create_session(chat()),
        lambda: store.reset_session(KEY),
        lambda: store.suspend_session(KEY),
        lambda: store.save(entry),
        lambda: store.prune_old_entries(1),
        lambda: store.remove(store.load_entries()),
        lambda: store.move_to_continuation(KEY, "s1", "s2"),
        store.repair_routes,
    )
    entry.total_tokens = 9
    store.settings.now.advance(days=30)
    for change in changes:
        with pytest.raises(Denied, match=rf"gateway \(pid {gateway.pid}\).*stop it"):
            change()
    assert read_rows(hermes, folder) == before
    assert not (folder / "sessions.json").exists()


@pytest.mark.requirement("store:gateway")
def test_live_gateway_blocks_file_store(make: Any, gateway: Any) -> None:
    with pytest.raises(Denied):
        make().get_or_create_session(chat())


@pytest.mark.requirement("store:gateway")
def test_live_gateway_blocks_store_in_separate_folder(
    hermes: SessionDB, gateway: Any, tmp_path: Path
) -> None:
    with SessionStore(tmp_path / "elsewhere" / "sessions", db=hermes) as store:
        with pytest.raises(Denied, match="gateway"):
            store.get_or_create_session(chat())
        assert store.load_entries() == {}


@pytest.mark.requirement("store:gateway")
def test_gateway_can_embed_store(
    make: Any, hermes: SessionDB, home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live_gateway(home_path, os.getpid())
    monkeypatch.setattr("session_core.processes.get_argv", lambda _: ("hermes", "gateway", "run"))
    assert make(hermes).get_or_create_session(chat()).session_key == KEY


@pytest.mark.requirement("store:refused")
def test_out_of_range_age_selects_every_entry(any_store: SessionStore) -> None:
    any_store.get_or_create_session(chat())
    assert len(any_store.list_sessions(10**12)) == 1
    assert any_store.suspend_recently_active(10**15) == 1


@pytest.mark.requirement("store:refused")
def test_entry_with_metadata_key_is_refused(any_store: SessionStore, clock: Clock) -> None:
    entry = SessionEntry("_x", "s1", created_at=clock(), updated_at=clock())
    with pytest.raises(InvalidInput, match="_x"):
        any_store.save(entry)


@pytest.mark.requirement("store:open")
def test_store_opens_with_home_configuration(db: SessionDB, home_path: Path) -> None:
    (home_path / "gateway.json").write_text('{"sessions_dir": "routes"}')
    (home_path / "config.yaml").write_text("session_reset: {mode: daily}\n")
    with SessionStore.open(home_path, db) as store:
        assert store.config.default_reset_policy.mode == "daily"
        entry = store.get_or_create_session(chat())
    assert read_rows(db, home_path / "routes")[KEY]["session_id"] == entry.session_id
    assert list(file_entries(home_path / "routes")) == [KEY]
