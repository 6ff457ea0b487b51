"""A message that another process writes is in the very next answer, for each format."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from session_core.transcripts.transcript_store import TranscriptStore
from tests.cli.fork_server import get_fork_server
from tests.transcripts.conftest import index_all
from tests.transcripts.test_agents import DATABASES, FILES, make_home

PLACES = {
    "claude-code": FILES["claude_code/session.jsonl"],
    "codex": FILES["codex/paginated.jsonl"],
    "gemini": FILES["gemini/session.jsonl"],
    "antigravity": FILES["antigravity/transcript.jsonl"],
    "qwen": FILES["qwen/session.jsonl"],
    "copilot": FILES["copilot/events.jsonl"],
    "openclaw-lines": FILES["openclaw/session.jsonl"],
    "openclaw": DATABASES["openclaw/agent.sql"],
    "opencode": DATABASES["opencode/version2.sql"],
}

_COUNTS = [20, pytest.param(100, marks=pytest.mark.slow)]


@contextmanager
def start_appender(name: str, path: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Start the process that appends, and return its input and its output."""
    program = get_fork_server().write_module_command("tests.transcripts.appender")
    command = [program, name, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.stdin, process.stdout


@pytest.mark.requirement("transcripts:fresh")
@pytest.mark.parametrize("is_watched", [False, True], ids=["sweep", "watch"])
@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("name", PLACES)
def test_written_message_is_in_next_answer(
    tmp_path: Path, name: str, count: int, *, is_watched: bool
):
    home = make_home(tmp_path / "person")
    environ = {"HOME": str(home)}
    with (
        TranscriptStore(tmp_path / "state", environ=environ) as store,
        start_appender(name, home / PLACES[name]) as (asked, answered),
    ):
        index_all(store)
        if is_watched:
            assert store.start_watch()
        missed = []
        for number in range(count):
            text = f"token{number}x of the appender"
            asked.write(f"{text}\n")
            asked.flush()
            assert answered.readline() == "written\n"
            hits = store.search(f"token{number}x", per="message").hits
            if [hit.role for hit in hits] != ["user"]:
                missed.append(number)

    assert missed == []
