"""Two writers on one session of each adapter, and what they have stored.

A writer makes numbered steps forever and acknowledges each one that has returned. Its texts begin
with its name. `read_texts` returns the texts of a session in their order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

Acknowledge = Callable[[], object]
Write = Callable[[str, str, str, Acknowledge], Coroutine[Any, Any, None]]
Read = Callable[[str, str], Coroutine[Any, Any, list[str]]]

_PAUSE_S = 0.003


def make_texts(name: str, number: int) -> list[str]:
    """Return the texts of a step, which are stored together or not at all."""
    return [f"{name} {number} {part}" for part in ("asks", "answers")]


async def write_openai(home: str, session: str, name: str, acknowledge: Acknowledge) -> None:
    """Add batches of two items."""
    from session_core.adapters.openai import OpenAISession  # noqa: PLC0415 -- after the fork

    ours = OpenAISession(session, home)
    for number in itertools.count():
        texts = make_texts(name, number)
        await ours.add_items([{"role": "user", "content": text} for text in texts])
        acknowledge()


async def read_openai(home: str, session: str) -> list[str]:
    """Return the texts of all items."""
    from session_core.adapters.openai import OpenAISession  # noqa: PLC0415 -- as above

    with OpenAISession(session, home) as ours:
        return [item["content"] for item in await ours.get_items()]


def _make_entries(name: str, number: int) -> Iterator[dict[str, Any]]:
    for text in make_texts(name, number):
        yield {"type": "user", "uuid": text, "message": {"role": "user", "content": text}}


async def write_claude(home: str, session: str, name: str, acknowledge: Acknowledge) -> None:
    """Append batches of two entries, each sent a second time with the next one."""
    from session_core.adapters.claude import ClaudeSessionStore  # noqa: PLC0415 -- as above

    store, key = ClaudeSessionStore(home), {"project_key": "-shop", "session_id": session}
    previous: list[dict[str, Any]] = []
    for number in itertools.count():
        entries = list(_make_entries(name, number))
        await store.append(key, previous + entries)
        previous = entries
        acknowledge()


async def read_claude(home: str, session: str) -> list[str]:
    """Return the texts of all entries."""
    from session_core.adapters.claude import ClaudeSessionStore  # noqa: PLC0415 -- as above

    with ClaudeSessionStore(home) as store:
        entries = await store.load({"project_key": "-shop", "session_id": session})
        return [entry["message"]["content"] for entry in entries or []]


async def write_pydantic_ai(home: str, session: str, name: str, acknowledge: Acknowledge) -> None:
    """Save a conversation with two more messages. Load it again after a conflict."""
    from pydantic_ai.conversation import Conversation  # noqa: PLC0415 -- as above
    from pydantic_ai.conversation_store import ConversationConflict  # noqa: PLC0415 -- as above
    from pydantic_ai.messages import ModelRequest, UserPromptPart  # noqa: PLC0415 -- as above

    from session_core.adapters.pydantic_ai import PydanticConversationStore  # noqa: PLC0415

    store = PydanticConversationStore(home)
    for number in itertools.count():
        while True:
            conversation = await store.load(session) or Conversation(conversation_id=session)
            conversation.messages += [
                ModelRequest(parts=[UserPromptPart(text)]) for text in make_texts(name, number)
            ]
            try:
                await store.save(conversation)
            except ConversationConflict:
                continue
            break
        acknowledge()
        await asyncio.sleep(_PAUSE_S)  # as in `write_adk`


async def read_pydantic_ai(home: str, session: str) -> list[str]:
    """Return the texts of all messages."""
    from session_core.adapters.pydantic_ai import PydanticConversationStore  # noqa: PLC0415

    with PydanticConversationStore(home) as store:
        conversation: Any = await store.load(session)
        return [message.parts[0].content for message in conversation.messages]


async def write_adk(home: str, session: str, name: str, acknowledge: Acknowledge) -> None:
    """Append events that change state. Read the session again if it has changed."""
    from google.adk.errors import StaleSessionError  # noqa: PLC0415 -- as above
    from google.adk.errors.already_exists_error import AlreadyExistsError  # noqa: PLC0415
    from google.adk.events.event import Event  # noqa: PLC0415 -- as above
    from google.adk.events.event_actions import EventActions  # noqa: PLC0415 -- as above
    from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415 -- as above

    from session_core.adapters.adk import AdkSessionService  # noqa: PLC0415 -- as above

    service = AdkSessionService(home)
    key: Any = {"app_name": "shop", "user_id": "ann", "session_id": session}
    newest = GetSessionConfig(num_recent_events=1)
    held: Any = await service.get_session(**key, config=newest)
    if held is None:
        try:
            held = await service.create_session(**key)
        except AlreadyExistsError:
            held = await service.get_session(**key, config=newest)
    for number in itertools.count():
        parts = [types.Part(text=text) for text in make_texts(name, number)]
        event = Event(
            author="user",
            invocation_id=f"{name} {number}",
            content=types.Content(role="user", parts=parts),
            actions=EventActions(state_delta={name: number}),
        )
        while True:
            try:
                await service.append_event(held, event)
            except StaleSessionError:
                held = await service.get_session(**key, config=newest)
                continue
            break
        acknowledge()
        await asyncio.sleep(_PAUSE_S)  # the other writer reads meanwhile, or is stale forever


async def read_adk(home: str, session: str) -> list[str]:
    """Return the texts of all events, whose state must be that of the last one."""
    from session_core.adapters.adk import AdkSessionService  # noqa: PLC0415 -- as above

    with AdkSessionService(home) as service:
        key = {"app_name": "shop", "user_id": "ann", "session_id": session}
        held: Any = await service.get_session(**key)
    texts = [part.text for event in held.events for part in event.content.parts]
    last = {text.split()[0]: int(text.split()[1]) for text in texts}
    assert held.state == last, (held.state, last)
    return texts


ADAPTERS: dict[str, tuple[Write, Read]] = {
    "openai": (write_openai, read_openai),
    "claude": (write_claude, read_claude),
    "pydantic-ai": (write_pydantic_ai, read_pydantic_ai),
    "adk": (write_adk, read_adk),
}
