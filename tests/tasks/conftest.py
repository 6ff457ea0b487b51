"""A home after some months of use, and a scripted model with tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.cli import sample_home
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB, SessionSource, SessionStore
from tests.collection import list_items_in
from tests.homes import connect
from tests.tasks.model import Model
from tests.thorough import share_kinds

CHAT = "Maria"
LONG_TALK = 260


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run about a fourth of the tests in the older version of the protocol."""
    share_kinds(list_items_in(items, Path(__file__).parent), ["client"], {"legacy": 4})


@pytest.fixture(scope="session", name="months")
def _make_sample_home(tmp_path_factory) -> Path:
    """The sample home of the demo, with a chat."""
    path: Path = tmp_path_factory.mktemp("months")
    clock = sample_home.SampleClock()
    with SessionDB(path / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        _add_long_conversation(db)
    return path


def _add_long_conversation(db: SessionDB) -> None:
    """Add a conversation that exceeds the context window of a model."""
    messages = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": f"Point {number}: service S-{number} moves to port {8000 + number}. "
            + "We looked at it once more, and nothing speaks against it. " * 9,
        }
        for number in range(LONG_TALK)
    ]
    db.append_messages("talk", messages, create={"source": "cli"})
    db.set_session_title("talk", "Move of the services")


@pytest.fixture(name="home")
def _copy_home(months: Path, home_path: Path) -> Path:
    """A copy of the home for each task."""
    with connect(months / "state.db", mode="ro") as connection:
        connection.execute("VACUUM INTO ?", (str(home_path / "state.db"),))
    with SessionDB(home_path / "state.db") as db, SessionStore.open(home_path, db) as store:
        chat = SessionSource(platform="telegram", chat_id="42", chat_name=CHAT)
        key = store.get_or_create_session(chat).session_id
        db.append_message(key, "user", "See you at eight?", create={"source": "telegram"})
    return home_path


@pytest.fixture(name="client", params=["auto", "legacy"])
async def _open_client(request, home: Path) -> AsyncIterator[Client]:
    served = ServedStores(ServerOptions(home=str(home)))
    async with Client(server.create_server(served), mode=request.param, cache=None) as client:
        yield client
    served.close()


@pytest.fixture(name="given")
def _make_task_model(client: Client) -> Callable[..., Model]:
    """Give a task to a model that has read nothing. `steps` are the calls that it needs."""

    def given(task: str, *steps: str) -> Model:
        return Model(client, task, steps)

    return given
