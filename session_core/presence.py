"""Who else is there: which processes have a database open, and whether a gateway lives.

A database file is never opened here: closing it would drop the locks that this process holds on it.
What says that somebody lives is checked against the process itself; that nothing says so proves
nothing. Broken files are read as if they were not there.

A live gateway holds the routes of its home in memory, and would overwrite a change of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_core import processes
from session_core._atomic import read_file
from session_core.errors import Denied
from session_core.processes import PROC_FOLDER, is_alive
from session_core.types import Holder

__all__ = [
    "Gateway",
    "Lease",
    "find_gateway",
    "get_sidecar_path",
    "is_alive",
    "list_holders",
    "list_leases",
]

_SUFFIXES = ("", "-wal", "-shm")
_GATEWAY_FILES = ("gateway.pid", "gateway.lock", "gateway_state.json")
_LEASES_PATH = Path("runtime", "active_sessions.json")

# Tells who blocks the lock that every connection keeps, without taking it (Windows cannot tell:
# there a file that may not be had alone is held by somebody).
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


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that lives, and the arguments it was started with."""

    pid: int
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """A session that a living process says it has open."""

    session_id: str
    pid: int
    lease_id: str = ""
    surface: str = ""


def list_holders(path: Path) -> list[Holder]:
    """Return the other processes that have `path` or its log open, as far as this system tells.

    A process that is known to be there but not which one it is has the pid 0.
    """
    pids = _find_holders_by_proc(path)
    if pids is None:
        pids = _find_holders_by_lsof(path)
    if pids is None:
        pids = _find_holders_by_probe(path)
    pids.discard(os.getpid())
    if len(pids) > 1:
        pids.discard(0)
    return [Holder(pid, processes.get_process_name(pid)) for pid in sorted(pids)]


def get_sidecar_path(path: Path, suffix: str = "") -> Path:
    """Return what SQLite keeps under a suffix: beside the database itself, not beside a link."""
    return Path(os.path.realpath(path) + suffix)


def find_gateway(home: Path) -> Gateway | None:
    """Return the gateway of a Hermes home if it lives.

    Its record must name a living process that started when the record says and whose arguments
    are those of a gateway, so that a pid that was given to somebody else is not taken for it.
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
        argv = processes.get_argv(pid) or _parse_argv(record)
        if _is_gateway_command(argv):
            return Gateway(pid, argv)
    return None


def list_leases(home: Path) -> list[Lease]:
    """Return the leases of a Hermes home whose process lives; none proves nothing.

    A lease without the start of its process counts as long as there is a process with its pid.
    """
    found = _read_json(home / _LEASES_PATH)
    entries = found.get("entries") if isinstance(found, dict) else found
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
    # A lock of an open file names no process: it is one of those that have it open, or one whose
    # files may not be seen.
    if -1 in locking and not all_seen and pids <= {os.getpid()}:
        pids.add(0)
    return pids


def _iter_lock_owners(path: Path) -> Iterator[int]:
    """Yield who has a lock, -1 for a lock that belongs to an open file and not to a process."""
    wanted = set(_iter_file_ids(path))
    known_devices = _list_mount_devices()
    anywhere = {inode for device, inode in wanted if device not in known_devices}
    for line in processes.read_lines(PROC_FOLDER / "locks"):
        fields = [field for field in line.split() if field != "->"]
        try:
            device, _, inode = fields[5].rpartition(":")
            owner, key = int(fields[4]), (device, int(inode))
        except (IndexError, ValueError):
            continue
        if key in wanted or key[1] in anywhere:
            yield owner


def _find_file_owners(path: Path) -> tuple[set[int], bool]:
    """Return who has a file open, and whether the files of all processes could be seen."""
    files = (get_sidecar_path(path, suffix).name for suffix in _SUFFIXES)
    names = {name + gone for name in files for gone in ("", " (deleted)")}
    wanted = {(found.st_dev, found.st_ino) for found in _iter_file_stats(path)}
    owners: set[int] = set()
    all_seen = True
    for pid in _iter_pids():
        try:
            if _list_open_files(pid, names) & wanted:
                owners.add(pid)
        except PermissionError:
            all_seen = False
        except OSError:
            continue
    return owners, all_seen


def _list_open_files(pid: int, names: set[str]) -> set[tuple[int, int]]:
    found = set()
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                # The name first: what is behind a link may be a mount that does not answer.
                if os.path.basename(os.readlink(entry.path)) in names:  # noqa: PTH115, PTH119 -- hot
                    file = os.stat(entry.path)  # noqa: PTH116 -- hot
                    found.add((file.st_dev, file.st_ino))
    return found


def _iter_file_stats(path: Path) -> Iterator[os.stat_result]:
    for suffix in _SUFFIXES:
        with suppress(OSError):
            yield get_sidecar_path(path, suffix).stat()


def _iter_file_ids(path: Path) -> Iterator[tuple[str, int]]:
    for found in _iter_file_stats(path):
        yield f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}", found.st_ino


def _list_mount_devices() -> set[str]:
    """Return the devices of the mounts; some systems show another one for a file (btrfs)."""
    found = set()
    for line in processes.read_lines(PROC_FOLDER / "self" / "mountinfo"):
        with suppress(IndexError, ValueError):
            major, _, minor = line.split()[2].partition(":")
            found.add(f"{int(major):02x}:{int(minor):02x}")
    return found


def _iter_pids() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(PROC_FOLDER):  # noqa: PTH208 -- names alone
            if name.isdecimal():
                yield int(name)


def _find_holders_by_lsof(path: Path) -> set[int] | None:
    """Ask the tool that macOS and the BSDs have; None where it is not there."""
    if sys.platform == "win32":
        return None
    files = [get_sidecar_path(path, suffix) for suffix in _SUFFIXES]
    names = [str(file) for file in files if file.exists()]
    answer = processes.run_tool(["lsof", "-w", "-t", "--", *names]) if names else ""
    return None if answer is None else _parse_ints(answer)


def _find_holders_by_probe(path: Path) -> set[int]:
    """Ask a child who blocks a lock; if only we do, somebody else may be behind us."""
    pids = _parse_ints(
        processes.run_tool([sys.executable, "-I", "-c", _PROBE_SCRIPT, str(get_sidecar_path(path))])
        or ""
    )
    return {0} if pids == {os.getpid()} else pids


def _parse_ints(text: str) -> set[int]:
    return {int(word) for word in text.split() if word.isdecimal()}


def _parse_argv(record: dict[str, Any]) -> tuple[str, ...]:
    argv = record.get("argv")
    if record.get("kind") != "hermes-gateway" or not isinstance(argv, list):
        return ()
    return tuple(str(part) for part in argv)


def _is_gateway_command(argv: Iterable[str]) -> bool:
    """Whether a command line is that of a gateway at work, not of one of its other verbs."""
    words = [word.strip("\"'").replace("\\", "/").lower() for word in argv]
    names = {word.rpartition("/")[2].removesuffix(".exe") for word in words}
    if "hermes-gateway" in names or "gateway.run" in words:
        return True
    if any(f"/{word}".endswith("/gateway/run.py") for word in words):
        return True
    module = any(word.endswith(("hermes_cli.main", "hermes_cli/main.py")) for word in words)
    if not module and "hermes" not in names:
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
    number = processes.parse_number(value)
    return int(number) if number is not None and 0 < number < 2**31 else None


def list_route_homes(sessions_dir: Path, database: Path | None) -> list[Path]:
    """Return the homes whose gateway may hold these routes, the one of the database last.

    The folder of the routes need not be in the home.
    """
    folders = [sessions_dir.parent] if database is None else [sessions_dir.parent, database]
    return list({folder.resolve(): folder for folder in folders}.values())


def refuse_if_gateway_runs(homes: Iterable[Path]) -> None:
    """Refuse a change of routes that a live gateway would overwrite.

    Raises:
        Denied: one lives, and is not this process.
    """
    for home in homes:
        live = find_gateway(home)
        if live is not None and live.pid != os.getpid():
            raise Denied(
                f"a gateway (pid {live.pid}) holds the routes of {home} in memory and would "
                "overwrite the change; stop it, then try again"
            )
