"""Run random histories on ADK's SqliteSessionService and on ours. Both must agree."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import uuid
from pathlib import Path
from typing import Any

from google.adk.cli.service_registry import load_services_module
from google.adk.cli.utils.service_factory import create_session_service_from_options
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from session_core import InvalidInput, open_home
from session_core.adapters.adk import AdkSessionService
from tests.adapters.sdk_homes import name_home

APPS, USERS = ["shop", "bank/app"], ["ann", "bo@x"]
KEYS = ["color", "user:name", "app:theme", "temp:scratch", "user:empty"]


def make_event(dice: random.Random, number: int) -> Event:
    """Return an event with text, a call or a result, and with changes of state."""
    name = f"c{number}"
    part = dice.choice(
        [
            types.Part(text=f"message {number}: where is the ledger \x00 é 東京?"),
            types.Part(
                function_call=types.FunctionCall(id=f"c{number}", name="look", args={"a": 1})
            ),
            types.Part(
                function_response=types.FunctionResponse(
                    id=name, name="look", response={"found": number}
                )
            ),
        ]
    )
    keys = dice.sample(KEYS, dice.randrange(3))
    delta = {key: dice.choice([None, number, {"deep": [number]}, ""]) for key in keys}
    return Event(
        id=f"e{number}",
        invocation_id=f"i{number}",
        author=dice.choice(["user", "agent"]),
        content=types.Content(role="user", parts=[part]),
        actions=EventActions(state_delta=delta),
        timestamp=2e9 + number,
        partial=dice.random() < 0.1,
    )


class Twins:
    """Two services and the sessions that each has returned last."""

    def __init__(self, ours: BaseSessionService, peer: BaseSessionService, seed: int) -> None:
        self.services = [peer, ours]
        self.held: list[dict[tuple[str, str, str], Any]] = [{}, {}]
        self.dice = random.Random(seed)
        self.number = 0

    async def step(self) -> str:
        """Run one operation on both services and compare the results."""
        names = ["create"] * 3 + ["append"] * 8 + ["get"] * 4 + ["list", "delete", "user_state"]
        name = self.dice.choice(names)
        self.number += 1
        key = (self.dice.choice(APPS), self.dice.choice(USERS), f"s{self.dice.randrange(3)}")
        choices = self.dice.getrandbits(64)
        results = []
        for side in range(2):
            operation = getattr(self, name)
            try:
                results.append(await operation(side, key, random.Random(choices)))
            except (AlreadyExistsError, ValueError) as error:
                results.append(type(error).__name__)
        assert results[0] == results[1], (name, key, results)
        return name

    async def create(self, side: int, key: tuple[str, str, str], dice: random.Random) -> Any:
        """Create a session, which may exist."""
        app, user, name = key
        state = {each: dice.randrange(9) for each in dice.sample(KEYS, 2)}
        session = await self.services[side].create_session(
            app_name=app, user_id=user, session_id=name, state=state
        )
        self.held[side][key] = session
        return dump(session)

    async def append(self, side: int, key: tuple[str, str, str], dice: random.Random) -> Any:
        """Append an event to the session object that is held, which may be stale."""
        session = self.held[side].get(key)
        if session is None:
            return None
        await self.services[side].append_event(session, make_event(dice, self.number))
        return dump(session)

    async def get(self, side: int, key: tuple[str, str, str], dice: random.Random) -> Any:
        """Read a session whole or in part."""
        app, user, name = key
        config = dice.choice(
            [
                None,
                GetSessionConfig(num_recent_events=dice.randrange(4)),
                GetSessionConfig(after_timestamp=2e9 + self.number - 20),
            ]
        )
        session = await self.services[side].get_session(
            app_name=app, user_id=user, session_id=name, config=config
        )
        # An object that is not renewed becomes stale when another one is appended to.
        if session is not None and dice.random() < 0.7:
            self.held[side][key] = session
        return None if session is None else dump(session)

    async def list(self, side: int, key: tuple[str, str, str], dice: random.Random) -> Any:
        """List the sessions of an app or of a user."""
        user = dice.choice([None, key[1]])
        response = await self.services[side].list_sessions(app_name=key[0], user_id=user)
        found = [dump(session) for session in response.sessions]
        return sorted(found, key=json.dumps)

    async def delete(self, side: int, key: tuple[str, str, str], _: random.Random) -> Any:
        """Delete a session, which may not exist."""
        app, user, name = key
        await self.services[side].delete_session(app_name=app, user_id=user, session_id=name)
        return None

    async def user_state(self, side: int, key: tuple[str, str, str], _: random.Random) -> Any:
        """Read the state of a user."""
        return await self.services[side].get_user_state(app_name=key[0], user_id=key[1])


def dump(session: Any) -> Any:
    """Return a session as JSON, without its time, which each service sets at a creation."""
    values = session.model_dump(mode="json")
    del values["last_update_time"]
    return values


async def run_random_operations(base: str, folder: Path, count: int) -> dict[str, int]:
    """Return how often each operation ran with equal results."""
    counts: dict[str, int] = {}
    peer = SqliteSessionService(str(folder / f"{uuid.uuid4()}.db"))
    with AdkSessionService(name_home(base, "random")) as ours:
        twins = Twins(ours, peer, seed=7)
        for _ in range(count):
            name = await twins.step()
            counts[name] = counts.get(name, 0) + 1
    await peer.close()
    return counts


async def use_service(base: str, folder: Path) -> dict[str, Any]:
    """Append, search, delete and restore, and return the results."""
    key = {"app_name": "shop", "user_id": "ann", "session_id": "s"}
    dice, uri = random.Random(1), f"sessions://{name_home(base, 'used')}"
    with open_home(name_home(base, "used")) as home, AdkSessionService(home) as service:
        session = await service.create_session(**key, state={"color": "red"})
        for number in range(6):
            await service.append_event(session, make_event(dice, number))
        stored = await service.get_session(**key)
        hits = home.db.search("ledger", per="message").hits
        await service.delete_session(**key)
        missing = await service.get_session(**key)
        home.maintenance.restore(home.ledger.list_batches().items[0].id)
        restored = await service.get_session(**key)
    with AdkSessionService(uri=uri) as service:
        again = await service.get_session(**key)
    services = folder / "agents"
    services.mkdir()
    (services / "services.yaml").write_text(
        "services:\n  - scheme: sessions\n    type: session\n"
        "    class: session_core.adapters.adk.AdkSessionService\n"
    )
    load_services_module(str(services))
    made = create_session_service_from_options(base_dir=services, session_service_uri=uri)
    by_factory = await made.get_session(**key)
    made.close()
    try:
        AdkSessionService("bot", db_path="x")
    except InvalidInput as error:
        refused = str(error).partition(";")[0]
    return {
        "texts": await search_unusual_texts(base),
        "refused": refused,
        "factory": by_factory == stored,
        "events": len(stored.events),
        "hits": len(hits) > 0,
        "missing": missing,
        "restored": restored == stored,
        "again": again == stored,
    }


async def search_unusual_texts(base: str) -> list[int]:
    """Store code, the output of code and an error, and return how many messages have each."""
    code = types.ExecutableCode(code="print(walrus)", language=types.Language.PYTHON)
    output = types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="a narwhal")
    parts = [types.Part(executable_code=code), types.Part(code_execution_result=output)]
    events = [
        Event(author="agent", content=types.Content(role="model", parts=parts)),
        Event(author="agent", error_code="429", error_message="the quota of beluga is used up"),
    ]
    with open_home(name_home(base, "unusual")) as home, AdkSessionService(home) as service:
        session = await service.create_session(app_name="shop", user_id="ann")
        for event in events:
            await service.append_event(session, event)
        words = ("walrus", "narwhal", "beluga")
        return [len(home.db.search(word, per="message").hits) for word in words]


async def main(base: str, folder: Path, count: int) -> None:
    """Print the results."""
    results = {
        "random": await run_random_operations(base, folder, count),
        **await use_service(base, folder),
    }
    print(json.dumps(results))


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
