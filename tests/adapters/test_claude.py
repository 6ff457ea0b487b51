"""`ClaudeSessionStore` without the SDK."""

from __future__ import annotations

import pytest

from session_core import open_home
from session_core.adapters.claude import ClaudeSessionStore
from session_core.errors import InvalidInput

KEY = {"project_key": "-shop", "session_id": "one"}


@pytest.mark.anyio
async def test_claude_store_refuses_long_id():
    with open_home(":memory:") as home:
        store = ClaudeSessionStore(home)
        with pytest.raises(InvalidInput, match="at most 500 characters"):
            await store.append({**KEY, "session_id": "é" * 90}, [{"type": "system"}])


@pytest.mark.anyio
async def test_foreign_long_id_breaks_no_list():
    with open_home(":memory:") as home:
        store = ClaudeSessionStore(home)
        columns = {"chat_id": KEY["project_key"], "display_name": "x" * 600}
        home.db.create_session("y" * 600, "claude-agent-sdk", **columns)
        assert await store.list_sessions(KEY["project_key"]) == []


@pytest.mark.anyio
@pytest.mark.parametrize("entry", ["text", None, ["a", "b"], 7])
async def test_claude_store_refuses_no_object(entry):
    with open_home(":memory:") as home:
        store = ClaudeSessionStore(home)
        with pytest.raises(InvalidInput, match="JSON objects"):
            await store.append(KEY, [{"type": "system", "uuid": "first"}, entry])
        assert await store.load(KEY) is None
