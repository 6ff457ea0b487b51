"""Adds a header to each request to a server. Everything else passes byte for byte.

A connection carries one request, so that only heads are parsed.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_HEAD = 64_000


@contextmanager
def add_header_proxy(header: str, port: int) -> Iterator[int]:
    """Listen in front of a local port and print the new port."""
    with _Proxy(header, port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy.server_address[1]
        finally:
            proxy.shutdown()
            thread.join()


class _Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, header: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _ForwardHandler)
        self.added = f"{header}\r\nConnection: close".encode()
        self.before = ("127.0.0.1", port)


class _ForwardHandler(socketserver.BaseRequestHandler):
    server: _Proxy

    def handle(self) -> None:
        head, body = _read_head(self.request)
        if not head:
            return
        line, _, others = re.sub(rb"(?im)^connection:.*\r\n", b"", head).partition(b"\r\n")
        with socket.create_connection(self.server.before) as following:
            following.sendall(b"\r\n".join((line, self.server.added, others)) + body)
            forth = threading.Thread(
                target=_forward_bytes, args=(self.request, following), daemon=True
            )
            forth.start()
            _forward_bytes(following, self.request)


def _read_head(source: socket.socket) -> tuple[bytes, bytes]:
    """Read until the end of the head, and return it with any bytes of the body."""
    read = b""
    while b"\r\n\r\n" not in read and len(read) < _LONGEST_HEAD:
        part = source.recv(_LONGEST_HEAD)
        if not part:
            return b"", b""
        read += part
    head, _, body = read.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", body


def _forward_bytes(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side ends, then end reading from the other."""
    try:
        while part := source.recv(_LONGEST_HEAD):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # the other side is gone already
        pass
