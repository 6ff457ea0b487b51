"""Facts about processes: dead, reused and unknown ones.

Holders of a database, running gateways, and valid leases, with real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import processes
from session_core.types import Holder
from tests.homes import connect, make_hermes_database


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, with an argument of its own."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "an argument", ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"  # its arguments can be read only now
        yield process


def test_process_is_alive_until_it_ends(child: subprocess.Popen[bytes]):
    start = processes.get_start_time(child.pid)
    assert processes.is_alive(child.pid, start)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert not processes.is_alive(child.pid, start)
    child.wait()
    assert not processes.is_alive(child.pid)


def test_reused_pid_is_other_process(child: subprocess.Popen[bytes]):
    start = processes.get_start_time(child.pid)
    assert start is not None
    assert processes.is_alive(child.pid, str(start))
    assert not processes.is_alive(child.pid, start - 1000)
    assert not processes.is_alive(child.pid, 5)


@pytest.mark.parametrize("started_at", [None, "unknown", True, [5]])
def test_pid_decides_without_known_start(started_at: Any):
    assert processes.is_alive(os.getpid(), started_at)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**70])
def test_impossible_pid_is_dead(pid: int):
    assert not processes.is_alive(pid)
    assert processes.get_argv(pid) == ()


def test_name_and_arguments_are_those_of_process(child: subprocess.Popen[bytes]):
    assert processes.get_argv(child.pid)[-1:] == ("an argument",)
    assert processes.get_process_name(child.pid) == Path(sys.executable).name[:15]
    assert processes.get_process_name(0) == "an unknown process"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5.0),
        ("5.5", 5.5),
        (True, None),
        ("five", None),
        (None, None),
        (10**400, None),
        ([], None),
    ],
)
def test_number_is_read_from_text(value: Any, number: float | None):
    assert processes.parse_number(value) == number


def test_missing_tool_has_no_output(tmp_path: Path):
    assert processes.run_tool([str(tmp_path / "nowhere")]) is None
    assert processes.read_lines(tmp_path / "nowhere") == []


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_HOLD = """
import sys
from session_core import _sqlite3 as driver
connection = driver.connect(sys.argv[1], busy_timeout_s=1)
connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
print("open", flush=True)
sys.stdin.read()
connection.close()
"""
_SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"


@contextmanager
def start_process(*arguments: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that prints a line when it is ready and ends with its input."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline()
        yield child
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(10)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "it's a #home?" / "state.db"
    make_hermes_database(path)
    return path


def hold_database(path: Path, mode: str = "ro") -> Any:
    return start_process("-c", _HOLD, f"{path.as_uri()}?mode={mode}")


def read_start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_closed_database_has_no_holders(database: Path) -> None:
    assert processes.list_holders(database) == []
    assert processes.list_holders(database.parent / "not there") == []


@LINUX
@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_holders_report_pid_and_name_of_process(database: Path, mode: str) -> None:
    with hold_database(database, mode) as child:
        assert processes.list_holders(database) == [
            Holder(child.pid, processes.get_process_name(child.pid))
        ]
        assert processes.get_process_name(child.pid)
    assert processes.list_holders(database) == []


@LINUX
def test_holders_omit_own_process(database: Path) -> None:
    with connect(database) as connection, hold_database(database) as child:
        connection.execute("SELECT count(*) FROM sessions").fetchone()
        assert [holder.pid for holder in processes.list_holders(database)] == [child.pid]


@LINUX
def test_holders_include_rollback_journal_database(database: Path) -> None:
    with connect(database) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    with hold_database(database) as child:
        assert [holder.pid for holder in processes.list_holders(database)] == [child.pid]


@LINUX
def test_holders_follow_symlink(database: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(database)
    with hold_database(database) as child:
        assert [holder.pid for holder in processes.list_holders(link)] == [child.pid]


@LINUX
def test_holders_ignore_different_database_of_same_name(database: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "state.db"
    make_hermes_database(other)
    with hold_database(other):
        assert processes.list_holders(database) == []


@LINUX
def test_listing_holders_keeps_own_locks(database: Path) -> None:
    with connect(database) as connection:
        connection.execute("BEGIN IMMEDIATE")
        before = _list_own_locks()
        processes.list_holders(database)
        processes._find_holders_by_probe(database)
        assert _list_own_locks() == before
        assert before


@LINUX
def test_holders_fall_back_to_lock_probe(database: Path) -> None:
    with hold_database(database) as child:
        assert processes._find_holders_by_probe(database) == {child.pid}
        with connect(database) as connection:
            connection.execute("SELECT count(*) FROM sessions").fetchone()
            assert processes._find_holders_by_probe(database) <= {0, child.pid, os.getpid()}
    assert processes._find_holders_by_probe(database) == set()


def test_process_is_alive_until_exit() -> None:
    with start_process("-c", _SLEEP) as child:
        assert processes.is_alive(child.pid)
    assert not processes.is_alive(child.pid)
    assert not processes.is_alive(0)
    assert not processes.is_alive(-1)
    assert not processes.is_alive(2**40)


@LINUX
def test_zombie_process_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(child.pid)
    child.wait()


@LINUX
def test_reused_pid_is_detected_by_start_time() -> None:
    pid = os.getpid()
    started = read_start_ticks(pid)
    epoch = processes._get_boot_time() + started / os.sysconf("SC_CLK_TCK")
    assert processes.is_alive(pid, started)
    assert processes.is_alive(pid, str(started))
    assert processes.is_alive(pid, epoch)
    assert processes.is_alive(pid, None)
    assert processes.is_alive(pid, "nonsense")
    assert not processes.is_alive(pid, started + 1)
    assert not processes.is_alive(pid, epoch - 60)
    assert not processes.is_alive(pid, float("nan"))


@pytest.fixture
def gateway_script(tmp_path: Path) -> Path:
    """Return a program with the arguments of a gateway."""
    path = tmp_path / "gateway" / "run.py"
    path.parent.mkdir()
    path.write_text(_SLEEP)
    return path


@LINUX
@pytest.mark.parametrize("name", ["gateway.pid", "gateway.lock", "gateway_state.json"])
def test_live_gateway_is_found(tmp_path: Path, gateway_script: Path, name: str) -> None:
    assert processes.find_gateway(tmp_path) is None
    with start_process(str(gateway_script)) as child:
        record = {
            "pid": child.pid,
            "kind": "hermes-gateway",
            "start_time": read_start_ticks(child.pid),
        }
        write_json(tmp_path / name, record)
        gateway = processes.find_gateway(tmp_path)
        assert gateway is not None
        assert (gateway.pid, gateway.argv[1]) == (child.pid, str(gateway_script))
    assert processes.find_gateway(tmp_path) is None


@LINUX
def test_gateway_is_found_by_plain_pid_file(tmp_path: Path, gateway_script: Path) -> None:
    with start_process(str(gateway_script)) as child:
        (tmp_path / "gateway.pid").write_text(f"{child.pid}\n")
        gateway = processes.find_gateway(tmp_path)
        assert gateway is not None
        assert gateway.pid == child.pid


@LINUX
def test_reused_gateway_pid_is_ignored(tmp_path: Path, gateway_script: Path) -> None:
    argv = ["hermes", "gateway", "run"]
    with start_process("-c", _SLEEP) as child:
        record = {"pid": child.pid, "kind": "hermes-gateway", "argv": argv}
        write_json(tmp_path / "gateway.pid", record)
        assert processes.find_gateway(tmp_path) is None
    with start_process(str(gateway_script)) as child:
        record |= {"pid": child.pid, "start_time": read_start_ticks(child.pid) - 5}
        write_json(tmp_path / "gateway.pid", record)
        assert processes.find_gateway(tmp_path) is None


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("hermes gateway", True),
        ("hermes gateway run", True),
        ("/usr/bin/hermes -p gateway gateway run --verbose", True),
        ("hermes --profile=gateway gateway restart", True),
        ("python -m hermes_cli.main gateway run", True),
        ("python /opt/h/hermes_cli/main.py gateway", True),
        ("/opt/bin/hermes-gateway", True),
        (r"C:\h\Scripts\hermes-gateway.exe", True),
        ("python gateway/run.py", True),
        ("hermes gateway status", False),
        ("hermes gateway stop", False),
        ("hermes -p gateway chat", False),
        ("python -m tui_gateway", False),
        ("nginx gateway run", False),
        ("", False),
    ],
)
def test_gateway_is_recognized_by_arguments(command: str, runs: bool) -> None:
    assert processes._is_gateway_command(command.split()) is runs


def make_lease(pid: Any, started: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "lease_id": "l",
        "session_id": "s",
        "surface": "cli",
        "pid": pid,
        "process_start_time": started,
        **fields,
    }


@LINUX
def test_leases_of_dead_processes_are_ignored(tmp_path: Path) -> None:
    assert processes.list_leases(tmp_path) == []
    pid = os.getpid()
    epoch = processes._get_boot_time() + read_start_ticks(pid) / os.sysconf("SC_CLK_TCK")
    with start_process("-c", _SLEEP) as child:
        ended = child.pid
    entries = [
        make_lease(pid, epoch),
        make_lease(pid, epoch - 1000, session_id="given again"),
        make_lease(ended, session_id="ended"),
        make_lease(pid, session_id="no start"),
    ]
    write_json(tmp_path / "runtime" / "active_sessions.json", {"entries": entries})
    assert processes.list_leases(tmp_path) == [
        processes.Lease("s", pid, "l", "cli"),
        processes.Lease("no start", pid, "l", "cli"),
    ]


BROKEN = [
    b"",
    b"{",
    b"\xff\xfe\x00",
    b"null",
    b"true",
    b"[]",
    b"[1, null, {}]",
    b'"text"',
    b"-5",
    b"1e999",
    b"9" * 400,
    b"[" * 100_000,
    b'{"pid": "x", "entries": 5}',
    b'{"pid": null, "entries": {"a": 1}}',
    b'{"pid": [], "entries": [{"session_id": "s"}, {"pid": 1e400, "session_id": "s"}]}',
    b'{"pid": true, "entries": [{"session_id": "s", "pid": {}}, 7]}',
]


@pytest.mark.parametrize("content", BROKEN)
def test_broken_presence_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runtime").mkdir()
    for name in ("gateway.pid", "gateway.lock", "runtime/active_sessions.json"):
        (tmp_path / name).write_bytes(content)
    assert processes.find_gateway(tmp_path) is None
    assert processes.list_leases(tmp_path) == []


def test_folder_as_presence_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "gateway.pid").mkdir()
    (tmp_path / "runtime" / "active_sessions.json").mkdir(parents=True)
    assert processes.find_gateway(tmp_path) is None
    assert processes.list_leases(tmp_path) == []


def _list_own_locks() -> list[str]:
    own = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sorted(" ".join(fields[1:]) for fields in own if str(os.getpid()) in fields)
