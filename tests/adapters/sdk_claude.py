"""Run the conformance suite of the Claude Agent SDK, then use its helpers over one store."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

from claude_agent_sdk import get_session_messages_from_store, list_sessions_from_store
from claude_agent_sdk.testing import run_session_store_conformance

from session_core import open_home
from session_core.adapters.claude import ClaudeSessionStore
from tests.adapters.sdk_homes import name_home

KEY = {"project_key": "-shop", "session_id": "5a9d0c1e-3f6b-4c67-9d1a-000000000001"}
AGENT = {**KEY, "subpath": "subagents/agent-1"}


def make_entries(session_id: str, count: int) -> list[dict[str, object]]:
    """Return a title and a conversation as Claude Code writes them."""
    entries: list[dict[str, object]] = [
        {"type": "custom-title", "customTitle": "The ledger", "sessionId": session_id}
    ]
    parent = None
    for number in range(count):
        kind = ("user", "assistant")[number % 2]
        uuid = f"{session_id}-{number}"
        text = f"{kind} {number}: where is the ledger \ud800?"
        content = text if kind == "user" else [{"type": "text", "text": text}]
        entries.append(
            {
                "type": kind,
                "uuid": uuid,
                "parentUuid": parent,
                "sessionId": session_id,
                "cwd": "/shop",
                "timestamp": f"2026-11-19T10:00:{number:02}.000Z",
                "message": {"role": kind, "content": content},
            }
        )
        parent = uuid
    return entries


async def check_conformance(base: str) -> int:
    """Run the suite over a new home for each contract, and return how many homes it asked for."""
    numbers = itertools.count()
    stores = []

    def make_store() -> ClaudeSessionStore:
        stores.append(ClaudeSessionStore(name_home(base, f"home{next(numbers)}")))
        return stores[-1]

    await run_session_store_conformance(make_store)
    for store in stores:
        store.close()
    return len(stores)


async def use_store(base: str) -> dict[str, object]:
    """Append, repeat, list, search, delete and restore, and return the results."""
    seen: dict[str, object] = {}
    entries = make_entries(KEY["session_id"], 6)
    with open_home(name_home(base, "used")) as home, ClaudeSessionStore(home) as store:
        await store.append(AGENT, make_entries("agent", 2))
        seen["unwritten main"] = await store.load(KEY)
        seen["unwritten list"] = await store.list_sessions("-shop")
        await store.append(KEY, entries[:4])
        await store.append(KEY, entries[2:])
        await asyncio.gather(*(store.append(KEY, entries[1:]) for _ in range(3)))
        seen["loaded"] = await store.load(KEY) == entries
        listed = await list_sessions_from_store(store, directory="/shop")
        seen["sdk list"] = [session.session_id for session in listed]
        messages = await get_session_messages_from_store(
            store, KEY["session_id"], directory="/shop"
        )
        seen["sdk messages"] = len(messages)
        rows = home.db.list_sessions().items
        seen["rows"] = [(row.title, row.source, row.project) for row in rows]
        seen["hits"] = len(home.db.search("ledger", per="message").hits)
        home.db.append_message("other", "user", "hello", create={"source": "cli"})
        long = {**KEY, "session_id": "long"}
        many = make_entries("long", 60)
        for entry in many[1:]:
            entry["padding"] = "text " * 10
            entry["message"] = {"role": entry["type"], "content": "long text " * 200}
        await store.append(long, many)
        home.compressor.compress("long@-shop", keep_last=10, shape="in_place")
        await store.append(long, many[-3:])
        seen["compressed"] = await store.load(long) == many
        await store.delete(long)
        await store.delete(KEY)
        seen["deleted"] = [await store.load(KEY), await store.load(AGENT)]
        batch = home.ledger.list_batches().items[0]
        home.maintenance.restore(batch.id)
        seen["restored"] = [
            await store.load(KEY) == entries,
            len(await store.load(AGENT) or []),
            await store.list_subkeys(KEY),
        ]
    return seen


async def main(base: str) -> None:
    """Print the results."""
    results = {"homes": await check_conformance(base), **await use_store(base)}
    print(json.dumps(results))


asyncio.run(main(sys.argv[1]))
