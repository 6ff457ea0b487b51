"""A model endpoint on loopback that follows the prompt, in the protocols of four vendors.

A prompt has one directive on each line: `!tool NAME {json}` is a tool call, `!say TEXT` the end of
the turn, `!think TEXT` reasoning before it. A prompt without directives, for example the request
for a summary or a title that a client makes by itself, is answered by one fixed sentence.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.transcripts.real_clients import anthropic_api, chat_api, gemini_api, responses_api
from tests.transcripts.real_clients.script import choose_reply

_APIS = (anthropic_api, responses_api, chat_api, gemini_api)


@dataclass(frozen=True)
class ModelEndpoint:
    """Where the endpoint listens, and the requests that it got."""

    url: str
    requests: list[tuple[str, dict[str, Any]]]


@contextmanager
def run_model_endpoint() -> Iterator[ModelEndpoint]:
    """Serve models on a free port of loopback until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    requests: list[tuple[str, dict[str, Any]]] = []
    server.requests = requests  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ModelEndpoint(f"http://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer lists of models."""
        self._send_json({"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        """Answer a request for a model by the API that its path names."""
        request = self._read_body()
        path = self.path.partition("?")[0]
        self.server.requests.append((path, request))  # type: ignore[attr-defined]
        api = next((api for api in _APIS if api.is_path(path)), None)
        if api is None:
            self._send_json({})
        elif (fixed := api.find_fixed_answer(path)) is not None:
            self._send_json(fixed)
        else:
            reply = choose_reply(api.read_turns(request), has_tools=api.has_tools(request))
            self._send_reply(api, reply, request, path)

    def _send_reply(self, api: Any, reply: Any, request: dict[str, Any], path: str) -> None:
        if api.is_streaming(path, request):
            self._send_events(api.stream_reply(reply, request))
        else:
            self._send_json(api.format_reply(reply, request))

    def _read_body(self) -> dict[str, Any]:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            return {}
        return request if isinstance(request, dict) else {}

    def _send_json(self, answer: object) -> None:
        self._send("application/json", json.dumps(answer).encode())

    def _send_events(self, events: Iterator[tuple[str | None, object]]) -> None:
        lines = []
        for name, data in events:
            lines.append(f"event: {name}\n" if name else "")
            lines.append(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
        self._send("text/event-stream", "".join(lines).encode())

    def _send(self, content_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""
