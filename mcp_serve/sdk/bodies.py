"""Bodies of requests over HTTP: a message that is refused over stdio is refused here as well."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCError
from starlette.responses import Response

from mcp_serve.sdk.messages import MOST_BYTES, InvalidMessage, parse_message

App = Callable[[Any, Any, Any], Any]

_BAD_REQUEST = 400
_MALFORMED = JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=ErrorData(code=INVALID_REQUEST, message="the response is malformed"),
)


class CheckedBodies:
    """Lets an app read no message but valid ones; it refuses longer ones itself."""

    def __init__(self, app: App, paths: Collection[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer what is wrong with its message."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        if not is_post or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        body, received = await _read(receive)
        if body is not None:
            try:
                parse_message(body)
            except InvalidMessage as refused:
                text = (refused.answer or _MALFORMED).model_dump_json(exclude_unset=True)
                answer = Response(text, _BAD_REQUEST, media_type="application/json")
                await answer(scope, receive, send)
                return
        parts = iter(received)

        async def receive_again() -> Any:
            part = next(parts, None)
            return await receive() if part is None else part

        await self._app(scope, receive_again, send)


async def _read(receive: Any) -> tuple[bytes | None, list[Any]]:
    """Return a body, None if it is too long or its client has left, and all that was received."""
    parts: list[Any] = []
    length = 0
    while length <= MOST_BYTES:
        part = await receive()
        parts.append(part)
        if part["type"] != "http.request":
            return None, parts
        length += len(part.get("body", b""))
        if not part.get("more_body", False):
            whole = b"".join(each.get("body", b"") for each in parts)
            return (whole if length <= MOST_BYTES else None), parts
    return None, parts
