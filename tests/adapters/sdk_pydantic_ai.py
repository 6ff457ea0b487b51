"""Run random operations on the in-memory store of Pydantic AI and on ours. Both must agree."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from session_core import Conflict, open_home
from session_core.adapters.pydantic_ai import PydanticConversationStore
from tests.adapters.sdk_homes import name_home

SCOPES = [None, "ann", "bo"]


def make_message(dice: random.Random, number: int) -> ModelMessage:
    """Return a message with parts of some kinds."""
    text = f"message {number}: where is the ledger \x00 é 東京?"
    match dice.randrange(4):
        case 0:
            return ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(text)])
        case 1:
            call = ToolCallPart("look", {"at": number}, tool_call_id=f"c{number}")
            return ModelResponse(parts=[ThinkingPart("Look."), TextPart(text), call])
        case 2:
            result = ToolReturnPart("look", {"found": [number]}, tool_call_id=f"c{number}")
            return ModelRequest(parts=[result])
        case _:
            return ModelResponse(parts=[TextPart(text)])


class Twins:
    """Two stores, and for each the conversations that were loaded last."""

    def __init__(self, ours: ConversationStore, seed: int) -> None:
        self.stores: list[ConversationStore] = [InMemoryConversationStore(), ours]
        self.held: list[dict[str, Conversation]] = [{}, {}]
        self.dice = random.Random(seed)
        self.number = 0

    async def step(self) -> str:
        """Run one operation on both stores and compare the results."""
        name = self.dice.choice(["save"] * 6 + ["load"] * 3 + ["branch", "fork", "list", "delete"])
        conversation_id = f"c{self.dice.randrange(8)}"
        choices = self.dice.getrandbits(64)
        operation: Callable[..., Coroutine[Any, Any, Any]] = getattr(self, name)
        results = []
        for side in range(2):
            dice = random.Random(choices)
            try:
                results.append(await operation(side, conversation_id, dice))
            except (ConversationConflict, UserError) as error:
                results.append(type(error).__name__)
        assert results[0] == results[1], (name, conversation_id, results)
        self.number += 1
        return name

    async def save(self, side: int, conversation_id: str, dice: random.Random) -> Any:
        """Extend or rewrite a conversation that is held, or begin one."""
        held = self.held[side]
        conversation = held.get(conversation_id) or Conversation(conversation_id=conversation_id)
        if dice.random() < 0.2 and conversation.messages:
            keep = dice.randrange(len(conversation.messages))
            del conversation.messages[keep:]
            conversation.new_message_index = None
        for offset in range(dice.randrange(4)):
            conversation.messages.append(make_message(dice, self.number * 10 + offset))
        conversation.usage = RunUsage(requests=self.number, input_tokens=7)
        scope = dice.choice(SCOPES)
        try:
            stored = await self.stores[side].save(conversation, scope=scope)
        except ConversationConflict:
            held.pop(conversation_id, None)
            raise
        held[conversation_id] = conversation
        return [strip_times(entry.message) for entry in stored]

    async def load(self, side: int, conversation_id: str, dice: random.Random) -> Any:
        """Load a conversation whole or in part."""
        limit = dice.choice([None, None, 0, 1, 3])
        loaded = await self.stores[side].load(conversation_id, limit=limit)
        if loaded is None:
            self.held[side].pop(conversation_id, None)
            return None
        if limit is None:
            self.held[side][conversation_id] = loaded
        return [strip_times(message) for message in loaded.messages], loaded.usage

    async def branch(self, side: int, conversation_id: str, dice: random.Random) -> Any:
        """Go back to an earlier message, or to a branch that was left."""
        store = self.stores[side]
        record = await store.read_record(conversation_id)
        revision = None if record is None else record.revision
        target: dict[str, Any] = {"at": dice.randrange(4)}
        if record is not None and record.branches and dice.random() < 0.5:
            target = {"from_entry": dice.choice(record.branches)}
        branched = await store.branch(conversation_id, expected_revision=revision, **target)
        self.held[side][conversation_id] = branched
        return [strip_times(message) for message in branched.messages]

    async def fork(self, side: int, conversation_id: str, dice: random.Random) -> Any:
        """Fork a conversation into another one, which may exist."""
        target = f"c{dice.randrange(8)}"
        forked = await self.stores[side].fork(
            conversation_id, at=dice.choice([None, 1, 2]), new_conversation_id=target
        )
        self.held[side][target] = forked
        return [strip_times(message) for message in forked.messages]

    async def list(self, side: int, _: str, dice: random.Random) -> Any:
        """List the conversations of a scope."""
        limit = dice.choice([None, 2])
        records = await self.stores[side].list_conversations(scope=dice.choice(SCOPES), limit=limit)
        return [
            (each.conversation_id, each.scope, each.usage, each.forked_from, len(each.branches))
            for each in records
        ]

    async def delete(self, side: int, conversation_id: str, _: random.Random) -> Any:
        """Delete a conversation, sometimes one that does not exist."""
        await self.stores[side].delete(conversation_id)
        return await self.stores[side].read_record(conversation_id)


def strip_times(message: ModelMessage) -> Any:
    """Return a message as JSON without times, which each side sets by itself."""
    (dumped,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return _drop_times(dumped)


def _drop_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_times(item) for key, item in value.items() if key != "timestamp"}
    return [_drop_times(item) for item in value] if isinstance(value, list) else value


async def run_random_operations(base: str, count: int) -> dict[str, int]:
    """Return how often each operation ran with equal results."""
    counts: dict[str, int] = {}
    with PydanticConversationStore(name_home(base, "random")) as store:
        twins = Twins(store, seed=7)
        for _ in range(count):
            name = await twins.step()
            counts[name] = counts.get(name, 0) + 1
    return counts


async def use_store(base: str) -> dict[str, Any]:
    """Run an agent, restart, delete and restore, and return the results."""
    agent = Agent(TestModel(custom_output_text="It is in ledger.py."))
    with open_home(name_home(base, "used")) as home, PydanticConversationStore(home) as store:
        begun = Conversation(conversation_id="chat")
        result = await agent.run("Where is the ledger?", conversation=begun)
        await store.save(result, scope="ann")
        fork = await store.fork("chat", at=1)
        loaded = await store.load("chat")
        hits = home.db.search("ledger", per="message").hits
        await store.delete("chat")
        missing = await store.load("chat")
        forked = await store.load(fork.conversation_id)
        home.maintenance.restore(home.ledger.list_batches().items[0].id)
        restored = await store.load("chat")
        wins = []
        for number in range(20):
            name = f"race{number}"
            await store.save(await agent.run("1", conversation=Conversation(conversation_id=name)))
            record = await store.read_record(name)
            loaded_race = await store.load(name)
            second = await agent.run("2", conversation=loaded_race)
            results = await asyncio.gather(
                store.delete_record(name, expected_revision=record.revision if record else ""),
                store.save(second),
                return_exceptions=True,
            )
            wins.append(sum(not isinstance(result, Exception) for result in results))
        home.db.append_message("tg", "user", "private", create={"source": "telegram"})
        try:
            foreign = str(await store.load("tg"))
        except Conflict as error:
            foreign = str(error)
        return {
            "foreign": foreign,
            "wins": sorted(set(wins)),
            "messages": len(loaded.messages) if loaded else None,
            "hits": len(hits),
            "missing": missing,
            "forked": len(forked.messages) if forked else None,
            "restored": restored is not None
            and loaded is not None
            and restored.messages == loaded.messages,
        }


async def main(base: str, count: int) -> None:
    """Print the results."""
    results = {"random": await run_random_operations(base, count), **await use_store(base)}
    print(json.dumps(results))


asyncio.run(main(sys.argv[1], int(sys.argv[3])))
