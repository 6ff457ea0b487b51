"""Where a mutation is made to fail: which of its calls, and how."""

from __future__ import annotations

import errno
import random
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

WRITING_CALLS = ("write", "pwrite64", "ftruncate", "fallocate", "mkdir")
"""The calls that need room."""

CHANGING_CALLS = (
    *WRITING_CALLS,
    *("fsync", "fdatasync", "openat", "rename", "renameat", "renameat2", "unlink"),
)
"""The calls that change a folder or a file, or make a change durable."""

DRAWN_COUNT = 2
"""How many points are drawn by chance, besides the first of every kind, and the ends."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a run, at a place in it: the `nth` of its kind in its thread, on a file."""

    place: int
    syscall: str
    nth: int
    file: str
    seen: tuple[tuple[str, int], ...]
    """How many calls of each kind there had been with this one."""

    def __str__(self) -> str:
        return f"{self.syscall} {self.nth} on {self.file}"


KILL = 0
"""In the place of an error: the process is killed before the call."""


class Injection(NamedTuple):
    """Lets the `nth` call of a kind fail in each thread, or that and all later ones."""

    syscall: str
    nth: int
    lasts: bool
    error: int


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A way for a call to fail, once or from then on."""

    name: str
    error: int
    fails: tuple[str, ...]
    lasts: bool = False

    def list_injections(self, at: TracedCall) -> tuple[Injection, ...]:
        """Return the calls that fail if it begins at this one."""
        if not self.lasts:
            return (Injection(at.syscall, at.nth, lasts=False, error=self.error),)
        seen = dict(at.seen)
        seen[at.syscall] -= 1
        return tuple(
            Injection(call, seen.get(call, 0) + 1, lasts=True, error=self.error)
            for call in self.fails
        )


FAULTS = {
    fault.name: fault
    for fault in (
        InjectedFault("kill", KILL, CHANGING_CALLS),
        InjectedFault("error once", errno.EIO, CHANGING_CALLS),
        InjectedFault("error for ever", errno.EIO, CHANGING_CALLS, lasts=True),
        InjectedFault("disk full", errno.ENOSPC, WRITING_CALLS, lasts=True),
    )
}


def choose_points(
    calls: list[TracedCall], fault: InjectedFault, seed: str, *, every: bool = False
) -> list[TracedCall]:
    """Return the points to try: all, or each kind once, both ends, and some drawn by the seed."""
    able = [call for call in calls if call.syscall in fault.fails]
    if every or not able:
        return able
    firsts = {(call.syscall, call.file): call for call in reversed(able)}
    chosen = {*firsts.values(), able[0], able[-1]}
    rest = [call for call in able if call not in chosen]
    chosen.update(random.Random(seed).sample(rest, min(DRAWN_COUNT, len(rest))))
    return [call for call in able if call in chosen]


@cache
def find_commit_seed() -> str:
    """Return the tested commit as the seed of random choices, or 0 without a repository."""
    result = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607 -- whichever git there is
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.strip() if result.returncode == 0 else "0"
