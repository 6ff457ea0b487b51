"""Plays one course through a client of the Python SDK 1.x, and prints its results.

It runs in an environment of its own, without this project. Each line of its output is JSON. After
the line "subscribed", another process has to write.
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl


def print_line(**line: Any) -> None:
    """Print one line."""
    print(json.dumps(line), flush=True)


@asynccontextmanager
async def open_streams(asked: dict[str, Any]):
    """Connect as it was asked."""
    headers = {"Authorization": f"Bearer {asked.get('token')}"}
    if asked["way"] == "stdio":
        server = {name: asked[name] for name in ("command", "args", "env")}
        async with stdio_client(StdioServerParameters(**server)) as both:
            yield both
    elif asked["way"] == "sse":
        async with sse_client(asked["address"], headers=headers) as both:
            yield both
    else:
        async with streamablehttp_client(asked["address"], headers=headers) as (read, write, _):
            yield read, write


class ClientCourse:
    """The steps of a client with a server."""

    def __init__(self) -> None:
        self.answers = [
            types.ElicitResult(action="decline"),
            types.ElicitResult(action="accept", content={"agree": True}),
        ]
        self.questions: list[str] = []
        self.steps: list[float] = []
        self.updated: list[str] = []
        self.heard = anyio.Event()

    async def answer(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a question of the server."""
        self.questions.append(params.message)
        return self.answers.pop(0)

    async def receive_notification(self, message: Any) -> None:
        """Take a notification."""
        inner = getattr(message, "root", None)
        if isinstance(inner, types.ResourceUpdatedNotification):
            self.updated.append(str(inner.params.uri))
            self.heard.set()

    async def record_progress(self, progress: float, *_: Any) -> None:
        """Take a step of a call that is running."""
        self.steps.append(progress)

    async def run_course(self, session: ClientSession) -> dict[str, Any]:
        """Play it all."""
        began = await session.initialize()
        seen = await check_lists(session) | {
            "server": began.serverInfo.name,
            "instructions": bool(began.instructions),
        }
        page = await session.call_tool("sessions_list", {"limit": 2})
        sessions = page.structuredContent["sessions"]
        stats = await session.read_resource(AnyUrl("sessions://stats"))
        return seen | {
            "sessions": len(sessions),
            "halves": page.structuredContent == json.loads(page.content[0].text),
            "resource": stats.contents[0].mimeType,
            "prompt": len((await session.get_prompt("tidy_up")).messages),
            "errors": await check_errors(session),
            "told": await self.check_subscription(session, sessions[0]["id"]),
            "pruned": await self.check_prune(session),
        }

    async def check_subscription(self, session: ClientSession, of: str) -> bool:
        """Subscribe to a conversation, and hear that it has changed."""
        uri = f"session://{of}"
        await session.subscribe_resource(AnyUrl(uri))
        print_line(step="subscribed", session=of)
        await self.heard.wait()
        return self.updated == [uri]

    async def check_prune(self, session: ClientSession) -> dict[str, Any]:
        """Plan and decline, plan and accept, and take it back."""

        async def prune(**given: Any) -> dict[str, Any]:
            call = session.call_tool(
                "sessions_prune", given, progress_callback=self.record_progress
            )
            return (await call).structuredContent

        declined = await prune(plan=(await prune())["plan"])
        planned = await prune()
        applied = await prune(plan=planned["plan"])
        back = await session.call_tool("sessions_restore", {"batch": applied["batch"]})
        return {
            "declined": declined["outcome"],
            "planned": planned["count"],
            "applied": [applied["outcome"], applied["removed"]],
            "restored": back.structuredContent["restored"],
            "questions": len(self.questions),
            "progress": self.steps[-1],
        }


async def check_lists(session: ClientSession) -> dict[str, Any]:
    """List everything there is."""
    return {
        "tools": [tool.name for tool in (await session.list_tools()).tools],
        "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
        "templates": len((await session.list_resource_templates()).resourceTemplates),
        "resources": len((await session.list_resources()).resources),
    }


async def check_errors(session: ClientSession) -> dict[str, Any]:
    """Make invalid calls, and return the errors."""
    wrong = await session.call_tool("sessions_read", {"session": "nowhere"})
    try:
        await session.call_tool("nothing")
    except McpError as error:
        return {"wrong": wrong.isError, "unknown": error.error.code}
    return {}


async def main() -> None:
    """Play the course as it was asked."""
    course = ClientCourse()
    async with (
        open_streams(json.loads(sys.argv[1])) as (read, write),
        ClientSession(
            read,
            write,
            elicitation_callback=course.answer,
            message_handler=course.receive_notification,
        ) as session,
    ):
        print_line(step="done", seen=await course.run_course(session))


if __name__ == "__main__":
    anyio.run(main)
