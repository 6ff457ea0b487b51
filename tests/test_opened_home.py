"""`open_home` and `aopen_home`: parts that belong together, and the order in which they close."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    Corrupt,
    GatewayConfig,
    Hooks,
    InvalidInput,
    OpenedHome,
    SessionDB,
    SessionSource,
    Unsupported,
    aopen_home,
    open_home,
)
from session_core.maintenance import PlanRequest
from tests import homes

CHAT = SessionSource(platform="telegram", chat_id="42")


def build_echo(run):
    def answer(run, message):
        run.append("user", message)
        run.append("assistant", f"you said {message}")
        return f"you said {message}"

    return answer


def add_old_session(home: OpenedHome) -> None:
    long_ago = time.time() - 120 * 86_400
    home.db.append_message("old", "user", "hi", timestamp=long_ago, create={"source": "cli"})
    home.db.end_session("old", "user_exit")


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_opening_creates_no_file(tmp_path):
    with open_home(tmp_path / "home") as home:
        assert home.path == tmp_path / "home" / "state.db"
        assert home.db.list_sessions().items == []
    assert not (tmp_path / "home").exists()


def test_parts_share_one_home(tmp_path):
    with open_home(tmp_path / "home") as home:
        assert home.runtime(build_echo).handle(CHAT, "hello").text == "you said hello"
        add_old_session(home)
        preview = home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
        result = home.maintenance.apply(preview.plan)
        assert home.db.get_session("old") is None
        assert [batch.id for batch in home.ledger.list_batches().items] == [result.batch]
        home.maintenance.restore(result.batch)
        assert home.db.get_session("old") is not None
        assert home.compressor.is_due("old") is False
        assert home.store is home.store


def test_file_name_selects_database(tmp_path):
    with open_home(tmp_path / "bot.db") as home:
        home.db.append_message("s", "user", "hi", create={"source": "cli"})
        assert home.state_folder.place == tmp_path / ".mcp-sessions" / "bot.db"
    assert (tmp_path / "bot.db").exists()


def test_state_holds_plans_and_trash(tmp_path):
    state = tmp_path / "state"
    with open_home(tmp_path / "home", state=state) as home:
        add_old_session(home)
        home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
        assert home.state_folder.place.is_relative_to(state)
    assert not (tmp_path / "home" / ".mcp-sessions").exists()
    assert any(name.endswith("ledger.db") for name in list_files(state))


def test_hermes_home_keeps_state_outside(tmp_path):
    folder = tmp_path / "hermes"
    folder.mkdir()
    homes.make_hermes_database(folder / "state.db")
    before = set(list_files(folder))
    state = tmp_path / "state"
    with open_home(folder, state=state) as home:
        assert home.db.kind == "hermes"
        runtime = home.runtime(build_echo)
        runtime.finalize(runtime.handle(CHAT, "hello").session_key)
        assert home.state_folder.place.is_relative_to(state)
    written = set(list_files(folder)) - before
    assert {name for name in written if not name.startswith(("state.db-", "sessions/"))} == set()
    assert any(name.endswith("marks.db") for name in list_files(state))
    assert list_files(tmp_path / "user") == []


def test_config_replaces_that_of_home(tmp_path):
    (tmp_path / "home").mkdir()
    sessions = tmp_path / "chats"
    config = GatewayConfig(sessions_dir=sessions)
    with open_home(tmp_path / "home", config=config) as home:
        assert home.store.config is config
        assert home.store.folder == sessions


def test_hooks_reach_every_part(tmp_path):
    calls: list[str] = []
    hooks = Hooks()
    hooks.add("on_session_finalize", lambda session_id: calls.append(session_id))  # noqa: PLW0108 -- the hook passes by name
    with open_home(tmp_path / "home", hooks=hooks) as home:
        runtime = home.runtime(build_echo)
        reply = runtime.handle(CHAT, "hello")
        runtime.reset(reply.session_key)
        assert runtime.hooks is home.store.hooks is home.hooks is hooks
    assert calls == [reply.session_id]


def test_closed_home_refuses_parts(tmp_path):
    home = open_home(tmp_path / "home")
    home.close()
    home.close()
    with pytest.raises(InvalidInput, match="is closed; open it again"):
        home.ledger.list_batches()


def test_close_shuts_runtimes_down_first(tmp_path):
    home = open_home(tmp_path / "home")
    runtime = home.runtime(build_echo)
    key = runtime.handle(CHAT, "hello").session_key
    home.close()
    with pytest.raises(Exception, match="shutting down"):
        runtime.handle(CHAT, "again")
    with open_home(tmp_path / "home") as again:
        assert again.store.get(key) is not None


@pytest.mark.parametrize("address", ["redis://user:secret@host/db", "https://host/x"])
def test_unknown_address_is_refused_without_password(address):
    with pytest.raises(Unsupported, match="cannot be opened; pass a folder") as error:
        open_home(address)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("path", [None, 5, b"home", "a\0b", "\ud800"])
def test_odd_path_is_refused(path):
    with pytest.raises(InvalidInput, match="path_or_url must be"):
        open_home(path)


def test_empty_path_is_refused():
    with pytest.raises(InvalidInput, match="path_or_url is empty"):
        open_home("")


def test_file_in_place_of_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"notes.txt is a file; pass a folder or a file that"):
        open_home(tmp_path / "notes.txt")


def test_file_of_other_kind_is_refused(tmp_path):
    path = tmp_path / "notes.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(Corrupt), open_home(path) as home:
        home.db.list_sessions()


@pytest.mark.anyio
async def test_async_home_has_async_parts(tmp_path):
    async with await aopen_home(tmp_path / "home") as home:
        runtime = await home.runtime(build_echo)
        reply = await runtime.ahandle(CHAT, "hello")
        assert (await home.db.get_session(reply.session_id))["source"] == "telegram"
        assert (await home.store.peek_session_id(reply.session_key)) == reply.session_id
        assert await home.compressor.is_due(reply.session_id) is False
        preview = await home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
        assert preview.count == 0
    with pytest.raises(InvalidInput, match="is closed"):
        home.home.store.load_entries()


@pytest.mark.anyio
async def test_failed_async_open_closes_database(tmp_path, monkeypatch):
    closed: list[Any] = []
    close = SessionDB.close
    monkeypatch.setattr(SessionDB, "close", lambda db: (closed.append(db), close(db)))
    path = tmp_path / "notes.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(Corrupt):
        await aopen_home(path)
    assert len(closed) == 1
