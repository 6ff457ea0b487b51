"""The clients of the other SDKs play one course over each transport, and see the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from tests.clients.conftest import WAYS, open_connection
from tests.node import MODULES, find_node, install_modules
from tests.peers import peer_python

HERE = Path(__file__).parent
Lines = Callable[[dict[str, Any]], list[str]]

CANCELLING = ("typescript 1", "typescript 2", "typescript 2 in the newer era")
"""Those that can take a request back; the Python SDK 1.x cannot."""

TOOLS = [
    "sessions_list",
    "sessions_read",
    "sessions_search",
    "sessions_stats",
    "routes_list",
    "events_wait",
    "sessions_edit",
    "sessions_finalize",
    "sessions_compress",
    "sessions_prune",
    "sessions_restore",
]


@pytest.fixture(scope="session", autouse=True)
def clients() -> dict[str, Lines]:
    """How each client is started. Made before any test hides the user's folder."""
    python = peer_python("mcp1.30.0")
    found = install_modules(*MODULES["sdks"])

    def typescript(**of: Any) -> Lines:
        script = HERE / "typescript.mjs"
        return lambda asked: [str(find_node()), str(script), str(found), json.dumps(asked | of)]

    return {
        "typescript 2": typescript(sdk=2, era="older"),
        "typescript 2 in the newer era": typescript(sdk=2, era="newer"),
        "typescript 1": typescript(sdk=1, era="older"),
        "python 1": lambda asked: [str(python), str(HERE / "python_one.py"), json.dumps(asked)],
    }


def play(line: list[str], home: Path) -> dict[str, Any]:
    """Play the course, write while a client waits for it, and return its output."""
    with subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            for text in process.stdout:
                data = json.loads(text)
                if data["step"] == "done":
                    return dict(data["seen"])
                with SessionDB(home / "state.db") as db:
                    db.append_message(data["session"], "user", "is anybody there?")
            raise AssertionError(process.stderr.read())
        finally:
            process.kill()


SEEN = {
    "server": "mcp-sessions",
    "instructions": True,
    "tools": TOOLS,
    "prompts": ["catch_up", "continue_here", "tidy_up", "compress_session"],
    "templates": 3,
    "resources": 14,
    "sessions": 2,
    "halves": True,
    "resource": "application/json",
    "prompt": 1,
    "errors": {"wrong": True, "unknown": -32602},
    "told": True,
    "pruned": {
        "declined": "declined",
        "planned": 2,
        "applied": ["applied", 2],
        "restored": 2,
        "questions": 2,
        "progress": 2,
    },
}


@pytest.mark.requirement("server:sdks")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", [*CANCELLING, "python 1"])
def test_sdk_client_completes_course(clients, client, way, home):
    with open_connection(home, way) as connection:
        seen = play(clients[client](connection), home)
    assert seen == SEEN | ({"cancelled": True} if client in CANCELLING else {})
