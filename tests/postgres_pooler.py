"""pgbouncer in transaction mode before the server of the tests, for `POSTGRES_POOLER=PROGRAM`.

It listens on a socket in a folder of its own and dies with its parent. Nothing that a program sets
for a session, prepares or listens for lasts longer than a transaction.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_START_S = 30.0
_STOP_S = 10.0
_SETTINGS = """
[databases]
* = host={server}
[pgbouncer]
pool_mode = transaction
unix_socket_dir = {folder}
listen_addr =
listen_port = 5432
auth_type = trust
auth_file = {folder}/users
max_client_conn = 500
default_pool_size = 100
"""


@dataclass
class PostgresPooler:
    """A running pgbouncer."""

    folder: Path
    process: subprocess.Popen[bytes]

    def stop(self, pid: int | None = None) -> None:
        """Stop it at once, unless in a fork of the process `pid`."""
        if pid not in (None, os.getpid()):
            return
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_STOP_S)


def start_pooler(
    program: str,
    server: Path,
    roles: Collection[str],
    *,
    user: str | None,
    prepare: Callable[[], None],
) -> PostgresPooler:
    """Start a program before the server whose socket is in a folder. The caller stops it."""
    folder = server / "pooler"
    folder.mkdir()
    (folder / "users").write_text("".join(f'"{role}" ""\n' for role in roles))
    settings = folder / "settings"
    settings.write_text(_SETTINGS.format(server=server, folder=folder))
    if user is not None:
        shutil.chown(folder, user)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(settings)],
            user=user,
            stdout=log,
            stderr=log,
            cwd=folder,
            preexec_fn=prepare,  # noqa: PLW1509 -- no thread of a test holds a lock yet
        )
    until = time.monotonic() + _START_S
    while not (folder / ".s.PGSQL.5432").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the pooler does not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.01)
    return PostgresPooler(folder, process)
