"""Other processes: alive or dead, gateways and leases of a home, holders of a database file.

Records on disk are checked against the process itself, and broken files count as missing. A missing
record proves nothing. Database files are never opened here: closing one would drop the locks of
this process on it.

A live gateway keeps the routes of its home in memory and would overwrite changes of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from session_core._atomic import read_file
from session_core.errors import Denied
from session_core.types import Gateway, Holder, Lease

PROC_FOLDER = Path("/proc")

_CHILD_TIMEOUT_S = 10
# The C locale has dates that can be parsed, and a fixed path finds no planted tool.
_CHILD_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
_START_TOLERANCE_S = 1.5
"""Some systems report whole seconds, and the clock may be adjusted while a process runs."""

# The exit code that Windows reports of a running process.
_STILL_ACTIVE_CODE = 259


def is_alive(pid: int, started_at: Any = None) -> bool:
    """Return True if a process is alive and has started at `started_at`.

    `started_at` is in epoch seconds, or as Hermes stores it: in ticks since the boot on Linux, in
    hundredths of epoch seconds elsewhere. If the start is unknown, the pid alone decides.
    """
    if pid <= 0 or not _has_process(pid):
        return False
    recorded = parse_number(started_at)
    if recorded is None:
        return True
    starts = _list_start_times(pid)
    return not starts or any(abs(recorded - start) <= within for start, within in starts)


def get_start_time(pid: int) -> float | None:
    """Return the start of a process as `is_alive` accepts it, or None if it is unknown."""
    return next((start for start, _ in _list_start_times(pid)), None)


@cache
def identify_host() -> str:
    """Return a name that distinguishes machines and containers, which number their processes."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 -- the link is text, not a path
    return f"{platform.node()} {space}".replace(":", "").replace("=", "").strip()


def get_process_name(pid: int) -> str:
    """Return the name of a process, empty if it is unknown."""
    if pid == 0:
        return "an unknown process"
    name = "".join(read_lines(PROC_FOLDER / str(pid) / "comm")).strip()
    if not name and sys.platform not in ("linux", "win32"):
        name = os.path.basename((run_tool(["ps", "-o", "comm=", "-p", str(pid)]) or "").strip())  # noqa: PTH119
    return name


def get_argv(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process, empty if they cannot be read."""
    with suppress(OSError):
        raw = (PROC_FOLDER / str(pid) / "cmdline").read_bytes()
        return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0") if part)
    if sys.platform in ("linux", "win32"):
        return ()
    return tuple((run_tool(["ps", "-o", "args=", "-p", str(pid)]) or "").split())


def run_tool(command: list[str]) -> str | None:
    """Run a system tool and return its output, or None if it cannot be run."""
    try:
        process = subprocess.run(  # noqa: S603 -- a fixed command, and a path that is an argument
            command,
            capture_output=True,
            text=True,
            timeout=_CHILD_TIMEOUT_S,
            check=False,
            env=None if sys.platform == "win32" else _CHILD_ENVIRONMENT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def read_lines(path: Path) -> list[str]:
    """Return the lines of a small system file, empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def parse_number(value: Any) -> float | None:
    """Return a number that was stored as a number or as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _has_process(pid: int) -> bool:
    if sys.platform == "win32":
        return _has_windows_process(pid)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    # A zombie has a pid but holds no files and locks.
    return _read_stat_fields(pid)[:1] not in (["Z"], ["X"])


def _has_windows_process(pid: int) -> bool:
    if sys.platform != "win32":
        return False
    import _winapi  # noqa: PLC0415 -- exists on Windows only

    try:
        process = _winapi.OpenProcess(0x1000, False, pid)  # noqa: FBT003 -- OpenProcess takes positional arguments only
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        return _winapi.GetExitCodeProcess(process) == _STILL_ACTIVE_CODE
    finally:
        _winapi.CloseHandle(process)


def _list_start_times(pid: int) -> list[tuple[float, float]]:
    """Return the start of a process in each form that may be recorded, with tolerances."""
    fields = _read_stat_fields(pid)
    if fields:
        ticks = int(fields[19])
        epoch = _get_boot_time() + ticks / os.sysconf("SC_CLK_TCK")
        return [(ticks, 0), (epoch, _START_TOLERANCE_S), (epoch * 100, _START_TOLERANCE_S * 100)]
    if sys.platform == "win32":
        return []
    # Systems without /proc report whole seconds of local time.
    answer = run_tool(["ps", "-o", "lstart=", "-p", str(pid)])
    with suppress(ValueError):
        epoch = time.mktime(time.strptime((answer or "").strip(), "%a %b %d %H:%M:%S %Y"))
        return [(epoch, _START_TOLERANCE_S), (epoch * 100, _START_TOLERANCE_S * 100)]
    return []


def _read_stat_fields(pid: int) -> list[str]:
    """Return the Linux stat fields after the process name, with the start in ticks at index 19."""
    text = "".join(read_lines(PROC_FOLDER / str(pid) / "stat"))
    # The name of a process may contain blanks and parentheses.
    return text.rpartition(")")[2].split()


def _get_boot_time() -> float:
    for line in read_lines(PROC_FOLDER / "stat"):
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


_SUFFIXES = ("", "-wal", "-shm")
_GATEWAY_FILES = ("gateway.pid", "gateway.lock", "gateway_state.json")
_LEASES_PATH = Path("runtime", "active_sessions.json")

# Prints the pid of the process that blocks the lock of every connection, without taking the lock.
# Windows reports no pid: a file that cannot be opened exclusively counts as held.
_PROBE_SCRIPT = r"""
import os, struct, sys
def who(path, start, length):
    if os.name == "nt":
        import _winapi
        try:
            _winapi.CloseHandle(_winapi.CreateFile(path, 0x80000000, 0, 0, 3, 0, 0))
        except OSError as error:
            return 0 if error.winerror == 32 else None
        return None
    import fcntl
    shape = "@hhqqi" if sys.platform.startswith("linux") else "@qqihh"
    lock, zero = (fcntl.F_WRLCK, 0), (start, length)
    flock = (*lock, *zero, 0) if shape[1] == "h" else (*zero, 0, *lock)
    file = os.open(path, os.O_RDWR)
    try:
        flock = struct.pack(shape, *flock) + bytes(16)
        answer = fcntl.fcntl(file, fcntl.F_GETLK, flock)
    finally:
        os.close(file)
    answer = struct.unpack_from(shape, answer)
    kind, pid = (answer[0], answer[4]) if shape[1] == "h" else (answer[3], answer[2])
    return None if kind == fcntl.F_UNLCK else max(pid, 0)
for suffix, start, length in (("", 0x40000000, 512), ("-shm", 120, 9)):
    try:
        pid = who(sys.argv[1] + suffix, start, length)
    except OSError:
        continue
    if pid is not None:
        print(pid)
"""


def list_holders(path: Path) -> list[Holder]:
    """Return the known other processes that have `path` or its log open.

    A process that is known to exist but cannot be identified has the pid 0.
    """
    pids = _find_holders_by_proc(path)
    if pids is None:
        pids = _find_holders_by_lsof(path)
    if pids is None:
        pids = _find_holders_by_probe(path)
    pids.discard(os.getpid())
    # An unknown holder may be one of the known holders.
    if len(pids) > 1:
        pids.discard(0)
    return [Holder(pid, get_process_name(pid)) for pid in sorted(pids)]


def get_sidecar_path(path: Path, suffix: str = "") -> Path:
    """Return the path of SQLite's file with a suffix, next to the database and not to a link."""
    # A link to one of the folders leads to the same files, so it need not be resolved.
    file = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114 -- called often, and os.path avoids a Path
    return Path(f"{file}{suffix}")


def find_gateway(home: Path) -> Gateway | None:
    """Return the gateway of a Hermes home if it is alive.

    Its record must name a live process with the recorded start time and the arguments of a gateway,
    so that a reused pid does not match.
    """
    for name in _GATEWAY_FILES:
        record = _read_json(home / name)
        if isinstance(record, int) and not isinstance(record, bool):
            record = {"pid": record}
        if not isinstance(record, dict):
            continue
        pid = _parse_pid(record.get("pid"))
        if pid is None or not is_alive(pid, record.get("start_time")):
            continue
        argv = get_argv(pid) or _parse_gateway_argv(record)
        if _is_gateway_command(argv):
            return Gateway(pid, argv)
    return None


def list_leases(home: Path) -> list[Lease]:
    """Return the leases of a Hermes home with a live process.

    A missing lease proves nothing.

    A lease without a process start time counts while any process has its pid.
    """
    document = _read_json(home / _LEASES_PATH)
    entries = document.get("entries") if isinstance(document, dict) else document
    return [
        Lease(
            str(entry["session_id"]),
            pid,
            str(entry.get("lease_id") or ""),
            str(entry.get("surface") or ""),
        )
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("session_id")
        if (pid := _parse_pid(entry.get("pid"))) is not None
        and is_alive(pid, entry.get("process_start_time"))
    ]


def _find_holders_by_proc(path: Path) -> set[int] | None:
    if not (PROC_FOLDER / "locks").exists():
        return None
    locking = set(_iter_lock_owners(path))
    opening, all_seen = _find_file_owners(path)
    pids = (locking | opening) - {-1}
    # A lock of an open file names no process: its holder is one of the processes that have the
    # file open, or one whose files are not visible.
    if -1 in locking and not all_seen and pids <= {os.getpid()}:
        pids.add(0)
    return pids


def _iter_lock_owners(path: Path) -> Iterator[int]:
    """Yield the pids of lock holders, -1 for a lock of an open file description."""
    file_ids = set(_iter_file_ids(path))
    known_devices = _list_mount_devices()
    inodes_without_device = {inode for device, inode in file_ids if device not in known_devices}
    for line in read_lines(PROC_FOLDER / "locks"):
        fields = [field for field in line.split() if field != "->"]
        try:
            device, _, inode = fields[5].rpartition(":")
            owner, key = int(fields[4]), (device, int(inode))
        except (IndexError, ValueError):
            continue
        if key in file_ids or key[1] in inodes_without_device:
            yield owner


def _find_file_owners(path: Path) -> tuple[set[int], bool]:
    """Return the pids that have a file open, and whether all processes were visible."""
    files = (get_sidecar_path(path, suffix).name for suffix in _SUFFIXES)
    names = {name + gone for name in files for gone in ("", " (deleted)")}
    file_ids = {(status.st_dev, status.st_ino) for status in _iter_file_stats(path)}
    owners: set[int] = set()
    all_seen = True
    for pid in _iter_pids():
        try:
            if _list_open_files(pid, names) & file_ids:
                owners.add(pid)
        except PermissionError:
            all_seen = False
        except OSError:
            continue
    return owners, all_seen


def _list_open_files(pid: int, names: set[str]) -> set[tuple[int, int]]:
    file_ids = set()
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                # The name first: the target of a link may be on a mount that does not respond.
                if os.readlink(entry.path).rpartition("/")[2] in names:  # noqa: PTH115 -- called for each open file
                    file = os.stat(entry.path)  # noqa: PTH116 -- called for each open file
                    file_ids.add((file.st_dev, file.st_ino))
            except FileNotFoundError:
                continue
    return file_ids


def _iter_file_stats(path: Path) -> Iterator[os.stat_result]:
    for suffix in _SUFFIXES:
        with suppress(OSError):
            yield get_sidecar_path(path, suffix).stat()


def _iter_file_ids(path: Path) -> Iterator[tuple[str, int]]:
    for status in _iter_file_stats(path):
        yield f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino


def _list_mount_devices() -> set[str]:
    """Return the devices of all mounts.

    Some file systems, such as btrfs, report another device for a file.
    """
    devices = set()
    for line in read_lines(PROC_FOLDER / "self" / "mountinfo"):
        with suppress(IndexError, ValueError):
            major, _, minor = line.split()[2].partition(":")
            devices.add(f"{int(major):02x}:{int(minor):02x}")
    return devices


def _iter_pids() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(PROC_FOLDER):  # noqa: PTH208 -- only names are needed
            if name.isdecimal():
                yield int(name)


def _find_holders_by_lsof(path: Path) -> set[int] | None:
    """Return the holders by `lsof`, or None if it is not installed."""
    if sys.platform == "win32":
        return None
    files = [get_sidecar_path(path, suffix) for suffix in _SUFFIXES]
    names = [str(file) for file in files if file.exists()]
    answer = run_tool(["lsof", "-w", "-t", "--", *names]) if names else ""
    return None if answer is None else _parse_ints(answer)


def _find_holders_by_probe(path: Path) -> set[int]:
    """Return the process that blocks a lock.

    If it is this process, another process may hold the lock too.
    """
    pids = _parse_ints(
        run_tool([sys.executable, "-I", "-c", _PROBE_SCRIPT, str(get_sidecar_path(path))]) or ""
    )
    return {0} if pids == {os.getpid()} else pids


def _parse_ints(text: str) -> set[int]:
    return {int(word) for word in text.split() if word.isdecimal()}


def _parse_gateway_argv(record: dict[str, Any]) -> tuple[str, ...]:
    argv = record.get("argv")
    if record.get("kind") != "hermes-gateway" or not isinstance(argv, list):
        return ()
    return tuple(str(part) for part in argv)


def _is_gateway_command(argv: Iterable[str]) -> bool:
    """Return True for the command line of a running gateway, not of another gateway command."""
    words = [word.strip("\"'").replace("\\", "/").lower() for word in argv]
    names = {word.rpartition("/")[2].removesuffix(".exe") for word in words}
    if "hermes-gateway" in names or "gateway.run" in words:
        return True
    if any(f"/{word}".endswith("/gateway/run.py") for word in words):
        return True
    is_module = any(word.endswith(("hermes_cli.main", "hermes_cli/main.py")) for word in words)
    if not is_module and "hermes" not in names:
        return False
    rest = _drop_profile_option(words)
    if "gateway" not in rest:
        return False
    verb = rest[rest.index("gateway") + 1 :][:1]
    return verb in ([], ["run"], ["restart"])


def _drop_profile_option(words: list[str]) -> list[str]:
    rest: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith(("--profile=", "-p=")):
            skip = False
        elif word in ("--profile", "-p"):
            skip = True
        else:
            rest.append(word)
    return rest


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_file(path))
    except (OSError, ValueError, RecursionError):
        return None


def _parse_pid(value: Any) -> int | None:
    number = parse_number(value)
    return int(number) if number is not None and 0 < number < 2**31 else None


def list_candidate_homes(sessions_dir: Path | None, database: Path | None) -> list[Path]:
    """Return the folders that may be the home of these routes, the folder of the database last.

    The routes may be in a folder outside the home, or in no folder.
    """
    routes = None if sessions_dir is None else sessions_dir.parent
    folders = [folder for folder in (routes, database) if folder is not None]
    return list({folder.resolve(): folder for folder in folders}.values())


def refuse_if_gateway_runs(homes: Iterable[Path]) -> None:
    """Refuse a change of routes that a live gateway would overwrite.

    Raises:
        Denied: another process is a live gateway of one of the homes.
    """
    for home in homes:
        live = find_gateway(home)
        if live is not None and live.pid != os.getpid():
            raise Denied(
                f"a gateway (pid {live.pid}) holds the routes of {home} in memory and would "
                "overwrite the change; stop it, then try again"
            )
