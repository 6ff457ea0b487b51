"""The calls of the command over transcripts of other agents change and lock no file of theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.strace import find_strace
from tests.transcripts.appender import open_appender
from tests.transcripts.conftest import read_everything
from tests.transcripts.test_agents import DATABASES, make_home

pytestmark = pytest.mark.faults

VERBS = (
    ("list", "--json"),
    ("search", "--json", "roses"),
    ("show", "--json", "ses_1"),
    ("stats", "--json"),
    ("doctor", "--json"),
)

_CALL_PATTERN = re.compile(r"^\d+\s+(\w+)\((.*)$")
_FILE_PATTERN = re.compile(r"(?:^|, )(?:\d+|AT_FDCWD)<(/[^>]*)>")
_NAME_PATTERN = re.compile(r'"(/[^"]*)"')
_DATA_CALLS = frozenset({"write", "pwrite64", "writev", "sendto", "sendmsg", "recvfrom"})
_OPENING = frozenset({"open", "openat", "openat2"})
_WRITE_FLAGS = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
_READING = frozenset(
    {
        *("read", "pread64", "readv", "preadv", "lseek", "close", "fstat", "stat", "lstat"),
        *("newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"),
        *("getdents64", "mmap", "fadvise64", "readahead", "dup", "dup2", "dup3", "ioctl"),
        *("inotify_add_watch", "statfs", "fstatfs", "getxattr", "lgetxattr", "fgetxattr"),
        *("chdir", "getcwd", "poll", "epoll_ctl", "execve"),
    }
)


def is_change(call: str, arguments: str, path: str) -> bool:
    """Return True if a call may change or lock a file of an agent."""
    if path.endswith(("-shm", "-wal")):
        return False  # SQLite keeps these for each reader
    if call in _OPENING:
        return _WRITE_FLAGS.search(arguments) is not None
    if call == "fcntl":  # the system refuses SQLite such a lock on a file that is only read
        return "F_WRLCK" in arguments and arguments.endswith(" = 0")
    return call not in _READING


def list_changes(log: Path, folder: Path) -> list[str]:
    """Return the calls of a trace that change or lock something below a folder."""
    changes = []
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL_PATTERN.match(line)
        if match is None:
            continue
        paths = [path for path in list_paths(match[1], match[2]) if is_below(path, folder)]
        changes += [line for path in paths if is_change(match[1], match[2], path)]
    return changes


def list_paths(call: str, arguments: str) -> list[str]:
    """Return the files of a call: open ones, and those that it names."""
    names = [] if call in _DATA_CALLS else _NAME_PATTERN.findall(arguments)
    folders = call in _OPENING or call.endswith("at")
    return names if folders and names else [*_FILE_PATTERN.findall(arguments), *names]


def is_below(path: str, folder: Path) -> bool:
    """Return True for a path below the folder of an agent."""
    relative = os.path.relpath(path, folder)
    return not relative.startswith(("..", ".local/state"))


def is_theirs(path: str) -> bool:
    """Return True for a file of an agent that no reader changes."""
    return not path.endswith(("-shm", ".local/state", ".local"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with a store of each agent."""
    return make_home(tmp_path / "person")


@pytest.mark.requirement("transcripts:unlocked")
def test_no_verb_changes_stores_of_agents(home: Path, tmp_path: Path):
    database = home / DATABASES["opencode/version2.sql"]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = str(Path(sys.executable).with_name("mcp-sessions"))
    with open_appender("opencode", database) as append:  # the agent has its database open
        append(1, "a message of the agent")
        state = home / ".local" / "state"
        state.mkdir()
        before = {p: v for p, v in read_everything(home).items() if is_theirs(p)}
        changes: dict[tuple[str, ...], list[str]] = {}
        for number, verb in enumerate(VERBS):
            log = tmp_path / f"{number}.log"
            traced = [find_strace(), "-f", "-y", "-s", "256", "-o", str(log), command, *verb]
            result = subprocess.run(traced, env=env, capture_output=True, text=True, check=False)
            assert result.returncode in (0, 1), result.stderr
            assert "claude-code" in result.stdout or "roses" in result.stdout
            changes[verb] = list_changes(log, home)
        after = read_everything(home)

    assert changes == {verb: [] for verb in VERBS}
    theirs = {
        path: found for path, found in after.items() if is_theirs(path) and str(state) not in path
    }
    assert {path: theirs.pop(path) for path in before} == before
    assert theirs == {}
