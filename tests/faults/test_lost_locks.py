"""Next to a program that has lost its locks, no call of ours unlinks its log or loses a commit."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.faults import state, template
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

BUNDLED = find_spec("pysqlite3") is not None

DROPPED = {
    "whole": (),
    "none on the database": ("state.db",),
    "none on the index": ("state.db-shm",),
    "none at all": ("state.db", "state.db-shm"),
}
DOES = ("reads", "reads alone", "writes", "fails to write")
ENDS = [
    *(("standard", how) for how in ("close", "return", "reopen", "SIGTERM", "SIGKILL")),
    # A process that is killed runs no SQLite at its end, so that the library makes no difference.
    *(("bundled", how) for how in ("close", "return") if BUNDLED),
]


@pytest.fixture
def hermes(tmp_path: Path) -> Path:
    home = tmp_path / "hermes"
    template.build_home(home, "hermes")
    return home


@pytest.mark.requirement("faults:locks")
@pytest.mark.parametrize(("library", "ends"), ENDS)
@pytest.mark.parametrize("does", DOES)
@pytest.mark.parametrize("locks", DROPPED)
def test_own_calls_keep_commits_of_holder(hermes, locks, does, ends, library):
    with ChildProcess("holder", hermes / "state.db") as holder:
        log, count = _start_holder(holder, hermes, DROPPED[locks])

        with ChildProcess("client", hermes, does, ends, library) as client:
            assert client.read_line() == "done"
            assert _end_client(client, ends) == 0

        expected = count + 2 if does == "writes" else count + 1
        assert (hermes / "state.db-wal").stat().st_ino == log
        assert int(holder.request("commit")) == expected
        assert _count_messages(hermes) == expected
    assert _count_messages(hermes) == expected
    assert state.find_damage(hermes) == []


@pytest.mark.parametrize("locks", DROPPED)
def test_exit_during_transaction_loses_no_commit(hermes, locks):
    with ChildProcess("holder", hermes / "state.db") as holder:
        log, count = _start_holder(holder, hermes, DROPPED[locks])

        with ChildProcess("client", hermes, "is stuck", "return", "standard") as client:
            assert client.read_line() == "done"
            assert _end_client(client, "return") == 0

        assert (hermes / "state.db-wal").stat().st_ino == log
        assert int(holder.request("commit")) == count + 1
        assert _count_messages(hermes) == count + 1
    assert state.find_damage(hermes) == []


def test_careless_writer_unlinks_log_of_holder(hermes):
    with ChildProcess("holder", hermes / "state.db") as holder:
        _start_holder(holder, hermes, DROPPED["none at all"])

        with ChildProcess("client", hermes, "careless", "close", "standard") as client:
            client.read_line()
            client.end()

        assert not (hermes / "state.db-wal").exists()


def _start_holder(holder: ChildProcess, home: Path, dropped: tuple[str, ...]) -> tuple[int, int]:
    assert holder.read_line() == "ready"
    for name in dropped:
        holder.request(f"drop {name}")
    return (home / "state.db-wal").stat().st_ino, int(holder.request("count"))


def _end_client(client: ChildProcess, how: str) -> int:
    """End a client, and return 0 if it ended in the requested way."""
    if not how.startswith("SIG"):
        client.write_line()
        return client.end()
    number = signal.Signals[how]
    return client.end(number) + number


def _count_messages(home: Path) -> int:
    with state.open_connection(home / "state.db") as reader:
        (count,) = reader.execute("SELECT count(*) FROM messages").fetchone()
    return count
