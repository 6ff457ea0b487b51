"""Choice of the shape by its cost and by other users of the session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import processes
from session_core.compression import NotCompressed, ranges
from session_core.types import Holder
from tests.compression.homes import LAST, Chat, summarize_short

_HOLDER = """
import sys
from session_core import SessionDB
with SessionDB(sys.argv[1]) as db:
    db.get_session("x")
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(chat: Chat) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the database open."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(chat.db.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    yield child
    child.stdin.close()
    child.wait(10)
    child.stdout.close()


def get_shape(chat: Chat, **options: Any) -> str:
    return chat.compressor().plan(chat.session_id, keep_last=LAST, **options).shape


def age_messages(chat: Chat) -> None:
    """Advance the clock to two hours after the last message."""
    chat.clock.now = chat.db.list_sessions().items[0].last_active_at + 7200


@pytest.mark.requirement("compression:shape")
def test_small_range_is_compressed_in_place(chat: Chat) -> None:
    assert get_shape(chat) == "in_place"


@pytest.mark.requirement("compression:shape")
def test_large_range_becomes_continuation(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_LOCK_S", 0.0001)
    assert get_shape(chat) == "continuation"
    with pytest.raises(NotCompressed) as refused:
        get_shape(chat, shape="in_place")
    assert refused.value.code == "too_large"


@pytest.mark.needs_files
@pytest.mark.requirement("compression:shape")
@pytest.mark.parametrize("shape", ["auto", "in_place"])
def test_active_session_is_compressed_in_place(chat: Chat, holder: Any, shape: Any) -> None:
    chat.clock.now = chat.db.list_sessions().items[0].last_active_at + 60
    assert get_shape(chat, shape=shape) == "in_place"
    with pytest.raises(NotCompressed, match="within the hour") as refused:
        get_shape(chat, shape="continuation")
    assert refused.value.code == "live"
    assert str(holder.pid) in str(refused.value)


@pytest.mark.needs_files
@pytest.mark.requirement("compression:shape")
def test_active_session_never_becomes_continuation(
    chat: Chat, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.clock.now = chat.db.list_sessions().items[0].last_active_at + 60
    monkeypatch.setattr(ranges, "MAX_LOCK_S", 0.0001)
    with pytest.raises(NotCompressed, match="stop it") as refused:
        get_shape(chat)
    assert refused.value.code == "live"


def test_idle_session_can_become_continuation(chat: Chat, holder: Any) -> None:
    age_messages(chat)
    assert get_shape(chat, shape="continuation") == "continuation"


@pytest.mark.needs_files
def test_invalid_timestamp_is_ignored(chat: Chat, holder: Any) -> None:
    def stamp(count: int) -> None:
        ids = [row["id"] for row in chat.db.get_messages(chat.session_id)][-count:]
        sql = "UPDATE messages SET timestamp = '2026-01-01T00:00:00' WHERE id >= ?"
        chat.db._write(lambda handle: handle.execute_update(sql, (ids[0],)))

    age_messages(chat)
    stamp(1)
    assert get_shape(chat, shape="continuation") == "continuation"
    stamp(80)
    with pytest.raises(NotCompressed, match="within the hour"):
        get_shape(chat, shape="continuation")


@pytest.mark.needs_files
@pytest.mark.requirement("compression:shape")
def test_open_session_counts_as_active(chat: Chat, holder: Any) -> None:
    age_messages(chat)
    folder = _runtime(chat)
    entry = {"session_id": chat.session_id, "pid": holder.pid, "surface": "tui"}
    (folder / "active_sessions.json").write_text(json.dumps({"entries": [entry]}))
    with pytest.raises(NotCompressed, match="tui"):
        get_shape(chat, shape="continuation")


@pytest.mark.needs_files
@pytest.mark.requirement("compression:shape")
def test_gateway_chat_counts_as_active(chat: Chat) -> None:
    age_messages(chat)
    code = "import sys; sys.stdin.read()"
    gateway = subprocess.Popen(
        [sys.executable, "-c", code, "gateway", "run", "hermes"], stdin=subprocess.PIPE
    )
    try:
        record = {
            "pid": gateway.pid,
            "start_time": processes.get_start_time(gateway.pid),
            "argv": ["hermes", "gateway", "run"],
        }
        (chat.db.path.parent / "gateway.pid").write_text(json.dumps(record))
        before = chat.entry.to_dict()
        with pytest.raises(NotCompressed, match="gateway"):
            chat.compressor().compress(
                chat.session_id, summarize_short, shape="continuation", keep_last=LAST
            )
        assert chat.entry.to_dict() == before
    finally:
        gateway.kill()
        gateway.communicate()


def test_inactive_session_allows_both_shapes(chat: Chat) -> None:
    assert os.getpid() not in {holder.pid for holder in chat.db.admin.list_holders()}
    for shape in ("in_place", "continuation"):
        assert get_shape(chat, shape=shape) == shape


def test_exited_process_is_not_active(
    chat: Chat, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that is just starting has all files of its parent open."""
    look = chat.db.admin.list_holders

    def once() -> list[Holder]:
        found = look()
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait(10)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(chat.db.admin, "list_holders", once)
        assert get_shape(chat, shape="continuation") == "continuation"


def _runtime(chat: Chat) -> Path:
    folder = chat.db.path.parent / "runtime"
    folder.mkdir()
    return folder
