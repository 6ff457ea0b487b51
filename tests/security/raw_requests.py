"""Raw HTTP requests that no client library would send."""

from __future__ import annotations

import json
import socket
from typing import NamedTuple

from tests.wire.conftest import TOKEN

RIGHT = f"Authorization: Bearer {TOKEN}"
JSON = ("Content-Type: application/json", "Accept: application/json, text/event-stream")

HANDSHAKE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    }
)


class RawResponse(NamedTuple):
    """The answer of a server. Status 0 means that it closed the connection."""

    status: int
    text: str


def send_request(port: int, line: str, *headers: str, body: str = "") -> RawResponse:
    """Send a raw request line and headers, and return the answer."""
    sized = [f"Content-Length: {len(body.encode())}"] if body else []
    head = "\r\n".join([line, *headers, *sized, "Connection: close", "", ""])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(head.encode("latin-1") + body.encode())
            text = b"".join(iter(lambda: connection.recv(65_536), b"")).decode("utf-8", "replace")
        except (ConnectionResetError, BrokenPipeError):
            text = ""  # it was closed before all of this was read
    first = text.partition("\r\n")[0].split(" ")
    return RawResponse(int(first[1]) if len(first) > 1 else 0, text)
