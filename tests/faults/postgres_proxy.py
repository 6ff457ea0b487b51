"""A proxy before a PostgreSQL server that acts at a chosen byte of the conversation.

It counts the bytes of both directions together. At the chosen byte it forwards the bytes before it,
and then cuts the connection or calls a function that kills a process.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

SOCKET_NAME = ".s.PGSQL.5432"
_CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """Listens on a socket in a folder of its own. `arm` chooses a byte."""

    def __init__(self, target: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proxy_"))
        self._target = target
        self._lock = threading.Lock()
        self._passed = 0
        self._at: int | None = None
        self._act: Callable[[], None] | None = None
        self.boundaries: list[int] = []
        """The byte after each piece that has passed since `arm`."""
        self._is_acting = False
        self._has_acted = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET_NAME))
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:  # more may be added by the first, which ends first
            for end in list(self._sockets):
                _shut_down(end)
            thread.join()
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def arm(self, at: int | None, act: Callable[[], None] | None = None) -> None:
        """Count bytes from zero. At byte `at`, call `act` and cut the connection."""
        with self._lock:
            self._passed, self._at, self._act = 0, at, act
            self.boundaries = []
            self._is_acting = False
            self._has_acted.clear()

    def finish(self) -> bool:
        """Stop waiting for the byte. Return True if it was met, after the function has returned."""
        with self._lock:
            self._at = None
            if not self._is_acting:
                return False
        return self._has_acted.wait()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self._target / SOCKET_NAME))
            self._sockets += (client, server)
            answers = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            answers.start()
            self._pump(client, server)
            answers.join()
            self._sockets.remove(client)
            self._sockets.remove(server)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                allowed, acts = self._count(len(data))
                sink.sendall(data[:allowed])
                if acts:
                    self._run_act()
                    break
        _shut_down(source)
        _shut_down(sink)

    def _run_act(self) -> None:
        try:
            if self._act is not None:
                self._act()
        finally:
            self._has_acted.set()

    def _count(self, size: int) -> tuple[int, bool]:
        """Return how many bytes may pass, and whether the chosen one is among them."""
        with self._lock:
            before, self._passed = self._passed, self._passed + size
            self.boundaries.append(self._passed)
            if self._at is None or not before <= self._at < self._passed:
                return size, False
            allowed, self._at, self._is_acting = self._at - before, None, True
            return allowed, True


def _shut_down(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
