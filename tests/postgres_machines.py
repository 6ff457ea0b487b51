"""Machines of a test: namespaces with an address, a host name and processes of their own.

The first is the machine of the server. The others reach it over a network of their own, which can
be cut. Nothing needs root, and all of it ends with the process that holds the namespaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from tests import postgres_server

if TYPE_CHECKING:
    from typing_extensions import Self

NETWORK = "10.77.0.0/16"
_BUILD = r"""
ip link set lo up
for number in $(seq "$1"); do
    setpriv --pdeathsig KILL unshare --net --uts --pid --fork --mount --mount-proc --kill-child \
        sh -c "hostname machine-$number; echo ready; exec sleep infinity" > "$2/$number" &
    outer=$!
    until [ -s "$2/$number" ]; do sleep 0.01; done
    machine=$(cat "/proc/$outer/task/$outer/children")
    machine=${machine% }
    ip link add "link$number" type veth peer name eth0 netns "$machine"
    ip address add "10.77.$number.1/24" dev "link$number"
    ip link set "link$number" up
    nsenter --target "$machine" --net sh -ec "
        ip link set lo up
        ip address add 10.77.$number.2/24 dev eth0
        ip link set eth0 up"
    echo "$machine"
done
while read -r number; do
    ip link set "link$number" down
    echo cut
done
"""


class Machines:
    """A machine for a server, and machines of programs, numbered from 1."""

    def __init__(self, count: int) -> None:
        self._user = postgres_server.get_server_user()
        self._folder = postgres_server.make_folder(self._user)
        self._count = count
        self._pids: list[int] = []

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(
            [
                *("unshare", "--user", "--map-current-user", "--keep-caps", "--net"),
                *("setpriv", "--pdeathsig", "KILL", "sh", "-ec", _BUILD, "sh"),
                *(str(self._count), str(self._folder)),
            ],
            user=self._user,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        self._pids = [int(self._read_line()) for _ in range(self._count)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in range(1, self._count + 1):
            self.kill(number)
        self._holder.kill()
        self._holder.communicate()
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    @property
    def before_server(self) -> Sequence[str]:
        """The command before a program that runs on the machine of the server."""
        return (
            *_enter(self._holder.pid, "--user", "--net", "--preserve-credentials"),
            *("setpriv", "--pdeathsig", "QUIT"),
        )

    def get_command(self, number: int) -> Sequence[str]:
        """Return the command before a program that runs on a machine."""
        spaces = ("--net", "--uts", "--pid", "--mount")
        if os.geteuid() != 0:
            spaces += ("--user", "--preserve-credentials")
        return (*_enter(self._pids[number - 1], *spaces), f"--wd={os.getcwd()}")  # noqa: PTH109 -- the folder of the test run

    def get_host(self, number: int) -> str:
        """Return the address of the server for a machine."""
        return f"10.77.{number}.1"

    def kill(self, number: int) -> None:
        """Kill all processes of a machine at once."""
        if self._pids[number - 1]:
            os.kill(self._pids[number - 1], signal.SIGKILL)
            self._pids[number - 1] = 0

    def cut(self, number: int) -> None:
        """Cut the network of a machine, which from then on answers nothing."""
        assert self._holder.stdin is not None
        self._holder.stdin.write(f"{number}\n")
        self._holder.stdin.flush()
        assert self._read_line() == "cut"

    def _read_line(self) -> str:
        assert self._holder.stdout is not None
        return self._holder.stdout.readline().strip()


def _enter(pid: int, *spaces: str) -> Sequence[str]:
    return ("nsenter", "--target", str(pid), *spaces)
