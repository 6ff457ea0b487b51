"""A small disk that only one PostgreSQL server of a test has.

It is a file system in memory in a namespace of the kernel, so no root is needed, and nothing is
left of it after the process that holds the namespace.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tests import postgres_server

if TYPE_CHECKING:
    from typing_extensions import Self

_MOUNT = """
mount -t tmpfs -o size="$1" none "$2"
head -c "$3" /dev/zero > "$2/ballast"
mkdir "$2/data"
echo ready
exec sleep infinity
"""


class SmallDisk:
    """A disk of some bytes, of which a part is taken until `make_room`."""

    def __init__(self, size: str, ballast: str) -> None:
        self._user = postgres_server.get_server_user()
        self.folder = postgres_server.make_folder(self._user)
        self._sizes = size, ballast

    def __enter__(self) -> Self:
        size, ballast = self._sizes
        self._holder = subprocess.Popen(
            [
                *("unshare", "--user", "--map-current-user", "--keep-caps", "--mount"),
                *("setpriv", "--pdeathsig", "KILL", "sh", "-ec", _MOUNT, "sh"),
                *(size, str(self.folder), ballast),
            ],
            user=self._user,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._holder.kill()
        self._holder.communicate()
        self.folder.rmdir()

    @property
    def before(self) -> Sequence[str]:
        """The command before one that sees the disk."""
        target = str(self._holder.pid)
        enter = ("nsenter", "--target", target, "--user", "--mount", "--preserve-credentials")
        return (*enter, "setpriv", "--pdeathsig", "QUIT")

    @property
    def data(self) -> Path:
        """A folder on the disk."""
        return self.folder / "data"

    def make_room(self) -> None:
        """Delete the file that takes a part of the disk."""
        ballast = self.folder / "ballast"
        Path(f"/proc/{self._holder.pid}/root{ballast}").unlink()

    def count_free_bytes(self) -> int:
        """Return the bytes that are free."""
        stat = os.statvfs(f"/proc/{self._holder.pid}/root{self.folder}")
        return stat.f_bavail * stat.f_frsize
