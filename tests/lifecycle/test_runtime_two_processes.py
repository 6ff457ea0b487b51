"""Two processes with a runtime on one home: neither replies from outdated memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from session_core import SessionDB, SessionStore
from tests.cli.fork_server import get_fork_server
from tests.lifecycle.runtimes import of

TURNS = 20


class Member:
    """A child process with a runtime."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [get_fork_server().write_module_command("tests.lifecycle.member"), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        """Send a command."""
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def answer(self) -> str:
        """Return the reply of the process."""
        stdout: IO[str] | None = self.process.stdout
        assert stdout is not None
        return stdout.readline().strip()

    def ask(self, line: str) -> str:
        """Send a command and return the reply."""
        self.tell(line)
        return self.answer()


@pytest.fixture
def members(home_path: Path) -> Iterator[list[Member]]:
    members = [Member(home_path) for _ in range(2)]
    assert [member.answer() for member in members] == ["up", "up"]
    yield members
    for member in members:
        member.process.communicate(timeout=60)
        assert member.process.returncode == 0


@pytest.mark.requirement("runtime:processes")
def test_agent_knows_messages_of_other_process(members: list[Member]) -> None:
    first, second = members
    replies = [member.ask("say") for member in (first, first, second, first, second, second)]
    assert replies == ["2", "4", "6", "8", "10", "12"]


@pytest.mark.requirement("runtime:processes")
def test_reset_by_other_process_is_noticed(members: list[Member]) -> None:
    first, second = members
    first.ask("say")
    assert "Session reset" in second.ask("reset")
    assert [first.ask("say"), second.ask("say")] == ["2", "4"]


@pytest.mark.requirement("runtime:processes")
def test_concurrent_processes_lose_no_messages(members: list[Member], home_path: Path) -> None:
    for member in members:
        member.tell(f"storm {TURNS}")
    assert [member.answer() for member in members] == ["done", "done"]
    with SessionDB(home_path / "state.db") as db, SessionStore(home_path, db=db) as store:
        ids = [line.id for line in db.list_sessions(limit=200).items]
        assert sum(db.message_count(session_id) for session_id in ids) == 2 * 2 * TURNS
        routed = {store.peek_session_id(of(number)) for number in range(2)}
        rows: list[Any] = [db.get_session(session_id) for session_id in ids]
        assert {row["id"] for row in rows if row["ended_at"] is None} <= routed


def test_session_starts_in_single_process(members: list[Member], home_path: Path) -> None:
    for member in members:
        member.tell(f"meet {TURNS}")
    started = [session_id for member in members for session_id in member.answer().split()]
    with SessionDB(home_path / "state.db") as db:
        assert sorted(started) == sorted(line.id for line in db.list_sessions(limit=200).items)
