"""Kill one of two writers at a random moment, again and again. Nothing acknowledged is lost.

`kill_writers.py EXTRA HOME KILLS SEED` runs in the environment of an SDK. The process forks the
writers, so that the SDK is imported once.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import select
import signal
import sys
import time
from importlib import import_module
from typing import Any

from session_core import open_home
from tests.adapters.writers import ADAPTERS, Read, Write, make_texts

IMPORTS = {
    "openai": ("agents", "session_core.adapters.openai"),
    "claude": ("claude_agent_sdk", "session_core.adapters.claude"),
    "pydantic-ai": ("pydantic_ai.conversation", "session_core.adapters.pydantic_ai"),
    "adk": ("google.adk.runners", "session_core.adapters.adk"),
}
KILLS_OF_SESSION = 10
MAX_DELAY_S = 0.03
WAIT_S = 60.0
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Writer:
    """A process that writes to a session and acknowledges each step by a byte."""

    def __init__(self, write: Write, home: str, session: str, name: str) -> None:
        self.name = name
        self.acknowledged = 0
        self._pipe, end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            die_with_parent()
            try:
                asyncio.run(write(home, session, name, lambda: os.write(end, b".")))
            finally:
                os._exit(1)
        os.close(end)

    def wait_for_step(self) -> None:
        """Wait until a further step is acknowledged."""
        readable, _, _ = select.select([self._pipe], [], [], WAIT_S)
        assert readable, f"{self.name} makes no steps"
        self._count(os.read(self._pipe, 65_536))

    def kill(self) -> None:
        """Kill the process, and count its acknowledgements until then."""
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        assert os.WIFSIGNALED(status), f"{self.name} failed"
        while steps := os.read(self._pipe, 65_536):
            self._count(steps)
        os.close(self._pipe)

    def _count(self, steps: bytes) -> None:
        assert steps, f"{self.name} failed"
        self.acknowledged += len(steps)


def kill_in_session(
    write: Write, home: str, session: str, kills: int, dice: random.Random
) -> dict[str, int]:
    """Keep two writers on a session, kill them in turn, and return acknowledged steps of each."""
    names = (f"w{number}" for number in range(kills + 2))
    writers = [Writer(write, home, session, next(names)) for _ in range(2)]
    ended = []
    for number in range(kills + 2):
        writer = writers.pop(dice.randrange(len(writers)))
        writer.wait_for_step()
        time.sleep(dice.random() * MAX_DELAY_S)
        writer.kill()
        ended.append(writer)
        if number < kills:
            writers.append(Writer(write, home, session, next(names)))
    return {writer.name: writer.acknowledged for writer in ended}


def check_session(read: Read, home: str, session: str, acknowledged: dict[str, int]) -> int:
    """Check that each step is stored once, whole and in order, and return how many more are stored.

    A step that was not acknowledged may be stored, because its process died after the commit.
    """
    texts = run_in_fork(read, home, session)
    unacknowledged = 0
    for name, count in acknowledged.items():
        own = [text for text in texts if text.split()[0] == name]
        steps = len(own) // 2
        assert steps in (count, count + 1), (session, name, count, steps)
        assert own == [text for number in range(steps) for text in make_texts(name, number)]
        unacknowledged += steps - count
    assert len(texts) == sum(text.split()[0] in acknowledged for text in texts)
    return unacknowledged


def run_in_fork(read: Read, home: str, session: str) -> list[str]:
    """Read a session in a process of its own. An open home must not be forked."""
    source, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(end, "w") as pipe:
                json.dump(asyncio.run(read(home, session)), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(end)
    with os.fdopen(source) as pipe:
        texts = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    result: list[str] = json.loads(texts)
    return result


def main(extra: str, home: str, kills: int, seed: int) -> None:
    """Print the killed writers, and the acknowledged and stored texts."""
    write, read = ADAPTERS[extra]
    for module in IMPORTS[extra]:
        import_module(module)
    dice = random.Random(seed)
    totals: dict[str, Any] = {"kills": 0, "acknowledged": 0, "unacknowledged": 0}
    while totals["kills"] < kills:
        session = f"s{totals['kills']}"
        # The last two writers are killed too.
        count = min(KILLS_OF_SESSION, kills - totals["kills"]) - 2
        acknowledged = kill_in_session(write, home, session, max(count, 0), dice)
        totals["kills"] += len(acknowledged)
        totals["acknowledged"] += sum(acknowledged.values())
        totals["unacknowledged"] += check_session(read, home, session, acknowledged)
    with open_home(home) as opened:
        totals["integrity"] = opened.db.admin.check_integrity()
    print(json.dumps(totals))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
