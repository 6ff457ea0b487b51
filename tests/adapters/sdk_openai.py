"""Run the same agent over `SQLiteSession` and `OpenAISession`, and print both lists of items."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import Session
from agents.memory.session_settings import SessionSettings
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from session_core.adapters.openai import OpenAISession
from tests.adapters.sdk_homes import name_home

QUESTIONS = ["What is the weather in Oslo?", "And tomorrow?", "Thanks."]


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


class FakeModel(Model):
    """Calls the tool on the first request and answers later requests with text."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def get_response(self, **request):
        """Return the call of the tool, or an answer."""
        self.seen.append(json.loads(json.dumps(request["input"])))
        number = len(self.seen)
        if number == 1:
            output: Any = ResponseFunctionToolCall(
                id="fc_1",
                call_id="call_1",
                type="function_call",
                name="get_weather",
                arguments='{"city": "Oslo"}',
            )
        else:
            text = ResponseOutputText(
                text=f"answer {number}", type="output_text", annotations=[], logprobs=[]
            )
            output = ResponseOutputMessage(
                id=f"m_{number}",
                type="message",
                role="assistant",
                status="completed",
                content=[text],
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_arguments, **_options):
        """Refuse to stream."""
        raise AssertionError("no streaming here")


async def run_agent(session: Session) -> dict[str, Any]:
    """Ask all questions, and return the requests to the model and the stored items."""
    model = FakeModel()
    agent = Agent(name="weather", model=model, tools=[get_weather])
    for question in QUESTIONS:
        await Runner.run(agent, question, session=session)
    items = await session.get_items()
    return {
        "seen": model.seen,
        "items": items,
        "latest": await session.get_items(2),
        "popped": await session.pop_item(),
        "rest": len(await session.get_items()),
        "is_session": isinstance(session, Session),
    }


async def main(base: str, folder: Path) -> None:
    """Print the results of both sessions."""
    set_tracing_disabled(disabled=True)
    peer = SQLiteSession("s", folder / "peer.db")
    ours = OpenAISession("s", name_home(base, "home"), session_settings=SessionSettings())
    results = {"peer": await run_agent(peer), "ours": await run_agent(ours)}
    print(json.dumps(results))
    peer.close()
    ours.close()


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
