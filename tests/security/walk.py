"""A walk over all requests to a server: every tool, resource, prompt, completion and error.

Each output is kept with its origin, so that the tests can search all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.types import ElicitResult, PromptReference, ResourceTemplateReference

from mcp_serve import server
from mcp_serve.plain_text import to_plain_line
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB
from tests.security.corpus import LONG, end_session, make_tool_call, plant_texts, shorten_to_title

COMPLETED = ("session", "session_id", "session_key", "source", "project")
LONGEST_TIME = 64
PROMPTS = ("catch_up", "continue_here", "tidy_up", "compress_session")


@dataclass
class Walk:
    """One walk and its recorded outputs: texts, or values parsed from texts."""

    client: Client
    said: list[tuple[str, Any]] = field(default_factory=list)

    def note(self, where: str, what: Any) -> None:
        """Record an output."""
        self.said.append((where, what))

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool. Record an error as its text."""
        result = await self.client.call_tool(tool, arguments)
        (half,) = result.content
        if result.is_error:
            self.note(f"{tool} refused", half.text)
            return None
        assert json.loads(half.text) == result.structured_content
        self.note(tool, result.structured_content)
        return result.structured_content

    async def pages(self, tool: str, **arguments: Any) -> None:
        """Call a tool and follow its pages to the end."""
        page = await self.call(tool, **arguments)
        while page and page["next_cursor"]:
            page = await self.call(tool, cursor=page["next_cursor"])

    async def ask(self, where: str, awaited: Any) -> Any:
        """Send a request other than a tool call. Record a protocol error as its text."""
        try:
            result = await awaited
        except MCPError as error:
            self.note(f"{where} refused", error.error.message)
            return None
        self.note(where, result.model_dump(mode="json", exclude={"meta"}))
        return result

    async def everywhere(self, db: SessionDB, texts: list[str]) -> None:
        """Run the walk."""
        await self._listings()
        await self._reading(db)
        await self._events(db, texts)
        await self._resources(db)
        await self._other_faces(texts)
        await self._errors(texts)
        await self._changes(texts)

    async def _listings(self) -> None:
        await self.ask("tools/list", self.client.list_tools())
        await self.ask("prompts/list", self.client.list_prompts())
        await self.ask("templates/list", self.client.list_resource_templates())
        for detail in ("concise", "detailed"):
            await self.pages("sessions_list", status="all", limit=100, detail=detail)
        await self.call("sessions_list", source="nope")
        await self.call("sessions_list", project="/srv/nope")
        await self.call("sessions_stats")
        await self.call("routes_list")

    async def _reading(self, db: SessionDB) -> None:
        ids = [row.id for row in db.list_sessions(limit=200).items]
        for key in ids:
            await self.call("sessions_read", session=key)
            await self.call("sessions_read", session=key, detail="detailed", view="full")
        await self.pages("sessions_read", session=LONG, max_chars=4_000)
        for detail in ("concise", "detailed"):
            for query in ("needle", "cmd", "decided"):
                arguments = {"query": query, "per": "message", "limit": 100, "detail": detail}
                await self.pages("sessions_search", **arguments)
            await self.call("sessions_search", query="eedl", mode="substring", detail=detail)

    async def _events(self, db: SessionDB, texts: list[str]) -> None:
        start = await self.call("events_wait", timeout_s=0)
        for number, text in enumerate(texts):
            create = {"source": text}
            db.append_message(f"e{number:02}", "user", text, create=create)
            db.append_message(f"e{number:02}", "assistant", text, tool_calls=make_tool_call(text))
            db.set_session_title(f"e{number:02}", f"event {number} {shorten_to_title(text)}")
            end_session(db, f"e{number:02}", text)
        answer = await self.call("events_wait", cursor=start["cursor"], timeout_s=10)
        while answer["events"]:
            answer = await self.call("events_wait", cursor=answer["cursor"], timeout_s=0)

    async def list_resources(self) -> list[str]:
        """List resources page by page, and return their addresses."""
        page = await self.ask("resources/list", self.client.list_resources())
        addresses = [entry.uri for entry in page.resources]
        while page.next_cursor:
            page = await self.ask(
                "resources/list", self.client.list_resources(cursor=page.next_cursor)
            )
            addresses += [entry.uri for entry in page.resources]
        return addresses

    async def _resources(self, db: SessionDB) -> None:
        listed = await self.list_resources()
        keys = [row["session_key"] for row in (await self.call("routes_list"))["routes"]]
        addresses = [f"route://{key.replace(':', '%3A')}" for key in keys]
        for item in db.list_sessions(limit=30).items:
            addresses += [f"session://{item.id}", f"session://{item.id}/messages"]
        for address in dict.fromkeys([*addresses, *listed, "session://none"]):
            await self._read(address)

    async def _read(self, address: str) -> None:
        kind = address.partition("://")[0]
        try:
            (content,) = (await self.client.read_resource(address)).contents
        except MCPError as error:
            self.note(f"resource {kind} refused", error.error.message)
        else:
            self.note("address", address)
            is_json = content.mime_type == "application/json"
            read = json.loads(content.text) if is_json else {"text": content.text}
            self.note(f"resource {kind}", read)

    async def _other_faces(self, texts: list[str]) -> None:
        named = {"tidy_up": {}, "continue_here": {"project": "/srv/shop"}}
        for name in PROMPTS:
            arguments = named.get(name, {"session": LONG})
            await self.ask(f"prompt {name}", self.client.get_prompt(name, arguments))
        for text in texts:
            prompt = self.client.get_prompt("continue_here", {"project": f"/srv/{text}"})
            await self.ask("prompt continue_here", prompt)
        for argument in COMPLETED:
            for value in ("", "h", "z"):
                await self._complete(argument, value)
        for text in texts:
            for value in (text[:3], text[:12]):
                await self._complete("session", value)

    async def _complete(self, argument: str, value: str) -> None:
        reference = (
            ResourceTemplateReference(type="ref/resource", uri="session://{session_id}")
            if argument == "session_id"
            else PromptReference(type="ref/prompt", name="catch_up")
        )
        arguments = {"name": argument, "value": value}
        await self.ask(f"completion {argument}", self.client.complete(reference, arguments))

    async def _errors(self, texts: list[str]) -> None:
        await self.call("sessions_read", session="h")
        await self.call("sessions_read", session="h0x")
        await self.call("sessions_read", session="h00", around=1_000_000)
        await self.call("sessions_edit", sessions="h0", title="x")
        await self.call("sessions_prune", sessions=["h0"])
        await self.call("sessions_finalize")
        await self.call("sessions_list", nope=1)
        await self.call("sessions_list", cursor="x")
        for text in texts:
            await self.call("sessions_list", store=text)
            await self.call("sessions_prune", plan=text)
            await self.call("sessions_restore", batch=text)
            if len(text) <= LONGEST_TIME:
                await self.call("sessions_list", since=text)

    async def _changes(self, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            edited = await self.call(
                "sessions_edit",
                sessions=f"h{number:02}",
                title=f"{number} {shorten_to_title(text)}",
            )
            if edited:
                await self.call("sessions_restore", batch=edited["batch"])
        open_ones = [f"h{number:02}" for number in range(1, len(texts), 2)]
        reason = to_plain_line(shorten_to_title(texts[0]))
        await self._planned("sessions_finalize", sessions=open_ones, reason=reason)
        await self._planned("sessions_prune", what="sessions")
        await self._planned("sessions_prune", what="all")
        done = await self._planned("sessions_compress", session=LONG, keep_last=10)
        if done:
            await self.call("sessions_read", session=done["session_id"], view="full")
            await self.call("sessions_restore", batch=done["batch"])
        await self.pages("sessions_restore", limit=5)

    async def _planned(self, tool: str, **arguments: Any) -> Any:
        planned = await self.call(tool, **arguments)
        if not planned or not planned["plan"]:
            return None
        summary = {"summary": "Ports were decided."} if tool == "sessions_compress" else {}
        done = await self.call(tool, plan=planned["plan"], **summary)
        if done and tool != "sessions_compress":
            await self.call("sessions_restore", batch=done["batch"])
        return done


async def walk_home(path: Path, mode: str, texts: dict[str, str]) -> list[tuple[str, Any]]:
    """Write texts into a home, walk over it in one protocol version, and return the outputs."""
    home = path / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_SESSIONS_STATE", str(path / "state"))
        patch.setenv("HOME", str(path))
        plant_texts(home, texts)
        served = ServedStores(ServerOptions(home=str(home)))

        async def human(_: Any, params: Any) -> ElicitResult:
            walk.note("question", params.message)
            return ElicitResult(action="accept", content={"agree": True})

        created = server.create_server(served)
        async with Client(created, mode=mode, elicitation_callback=human, cache=None) as client:
            walk = Walk(client)
            with SessionDB(home / "state.db") as db:
                await walk.everywhere(db, list(texts.values()))
            lines = await to_thread.run_sync(served.get_home().ledger.list_audit_entries, 200)
            for line in lines.items:
                walk.note("audit", [line.client, line.what, line.plan, line.counts])
        served.close()
        return walk.said


def iterate_strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of the outputs with its key."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield key, name
            yield from iterate_strings(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from iterate_strings(item, key)
    elif isinstance(value, str):
        yield key, value
