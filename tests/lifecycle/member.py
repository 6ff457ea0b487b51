"""A child process with a runtime on a home.

It runs one command for each input line and prints one line in return.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from session_core import SessionDB, SessionRuntime, SessionStore
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import of
from tests.routing.chats import chat


class Memory:
    """An agent that replies with the number of messages that it knows."""

    def __init__(self, run: AgentTurn) -> None:
        self.known = len(run.history())

    def __call__(self, run: AgentTurn, message: Any) -> str:
        """Store the message and the reply."""
        run.append("user", message)
        run.append("assistant", "noted")
        self.known += 2
        return str(self.known)


def do(runtime: SessionRuntime, verb: str, number: int, started: list[str]) -> str:
    """Run a command on the shared chat, once or repeatedly."""
    if verb == "meet":
        for chat_id in range(number):
            runtime.handle(chat(chat_id), "hello")
        runtime.hooks.drain()
        return " ".join(started)
    if verb == "say":
        return runtime.handle(chat(), "hello").text
    if verb == "reset":
        return runtime.reset(of(42))
    for turn in range(number):
        runtime.handle(chat(turn % 2), "hello")
        if turn % 7 == 0:
            runtime.reset(of(turn % 2))
    return "done"


def main(home: str) -> None:
    """Run the command of each input line."""
    with SessionDB(Path(home) / "state.db") as db, SessionStore(Path(home), db=db) as store:
        runtime = SessionRuntime(store, Memory)
        started: list[str] = []
        runtime.hooks.add(
            "on_session_start", lambda **arguments: started.append(arguments["session_id"])
        )
        print("up", flush=True)
        for line in sys.stdin:
            verb, _, number = line.strip().partition(" ")
            print(do(runtime, verb, int(number or 0), started), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
