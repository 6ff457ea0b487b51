"""Parse messages of clients strictly, answer refused messages, and remove secrets from errors.

The SDK drops a line that is not a message, and treats a request whose id has another type as a
notification. `docs/upstream-mcp-sdk.md` describes both.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
)
from mcp.types.jsonrpc import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.responses import Response

# The longest message, over stdio and over HTTP.
MOST_BYTES = DEFAULT_MAX_REQUEST_BODY_SIZE

_ID_KEY = b'"id"'


class InvalidMessage(Exception):
    """A refused message with its answer.

    A malformed response has no answer.
    """

    def __init__(self, answer: JSONRPCError | None) -> None:
        super().__init__(answer.error.message if answer else "a malformed response")
        self.answer = answer


def parse_message(data: bytes) -> JSONRPCMessage:
    """Return the message in `data`.

    Raises:
        InvalidMessage: it is not one valid message of JSON-RPC 2.0.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        raise InvalidMessage(_make_answer(data)) from error
    if isinstance(message, JSONRPCNotification) and _ID_KEY in data and "id" in json.loads(data):
        raise InvalidMessage(_make_invalid_error(None, "id must be a string or an integer"))
    return message


def make_length_error() -> JSONRPCError:
    """Return the answer to a message that is too long."""
    return _make_invalid_error(None, f"a message must have at most {MOST_BYTES:,} bytes")


def _make_answer(data: bytes) -> JSONRPCError | None:
    """Return the answer to invalid data, of which it repeats only the id."""
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        return _make_error(_find_id(data), PARSE_ERROR, "the message is not valid JSON in UTF-8")
    if isinstance(loaded, list):
        return _make_invalid_error(None, "batches are not supported; send one message at a time")
    if not isinstance(loaded, dict):
        return _make_invalid_error(None, "a message must be an object")
    if "method" not in loaded and ("result" in loaded or "error" in loaded):
        return None
    request_id = _parse_id(loaded.get("id"))
    if "id" in loaded and request_id is None:
        return _make_invalid_error(None, "id must be a string or an integer")
    if isinstance(loaded.get("method"), str) and isinstance(loaded.get("params", {}), dict):
        if loaded.get("jsonrpc") != "2.0":
            return _make_invalid_error(request_id, 'jsonrpc must be "2.0"')
        return _make_invalid_error(
            request_id, "a string has a lone surrogate, or nesting exceeds 200 levels"
        )
    return _make_invalid_error(request_id, "method must be a string and params an object")


def _find_id(data: bytes) -> str | int | None:
    """Return the id of a request that is valid JSON except for its encoding."""
    try:
        loaded = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    request_id = _parse_id(loaded.get("id")) if isinstance(loaded, dict) else None
    return None if isinstance(request_id, str) and "\ufffd" in request_id else request_id


def _parse_id(value: Any) -> str | int | None:
    """Return a valid JSON-RPC id, which is text or an integer, or None."""
    if isinstance(value, str):
        return value if not any("\ud800" <= sign <= "\udfff" for sign in value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _make_invalid_error(request_id: str | int | None, message: str) -> JSONRPCError:
    return _make_error(request_id, INVALID_REQUEST, message)


def _make_error(request_id: str | int | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


App = Callable[[Any, Any, Any], Any]

_BAD_REQUEST = 400
_MALFORMED_ERROR = JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=ErrorData(code=INVALID_REQUEST, message="the response is malformed"),
)


class CheckedBodies:
    """Middleware that refuses invalid and overlong messages in request bodies."""

    def __init__(self, app: App, paths: Collection[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Forward a request, or send a JSON-RPC error if its body is invalid."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        if not is_post or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        body, received = await _read_body(receive)
        if body is not None:
            try:
                parse_message(body)
            except InvalidMessage as refused:
                text = (refused.answer or _MALFORMED_ERROR).model_dump_json(exclude_unset=True)
                answer = Response(text, _BAD_REQUEST, media_type="application/json")
                await answer(scope, receive, send)
                return
        parts = iter(received)

        async def receive_again() -> Any:
            part = next(parts, None)
            return await receive() if part is None else part

        await self._app(scope, receive_again, send)


async def _read_body(receive: Any) -> tuple[bytes | None, list[Any]]:
    """Return the body and all received parts.

    The body is None if it is too long or incomplete.
    """
    parts: list[Any] = []
    length = 0
    while length <= MOST_BYTES:
        part = await receive()
        parts.append(part)
        if part["type"] != "http.request":
            return None, parts
        length += len(part.get("body", b""))
        if not part.get("more_body", False):
            body = b"".join(part.get("body", b"") for part in parts)
            return (body if length <= MOST_BYTES else None), parts
    return None, parts


Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_LOG = logging.getLogger(__name__)
_DEFECT_MESSAGE = "the request failed because of a defect of this server; see its log on stderr"


async def call_with_clean_errors(ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
    """Call the next handler and remove secrets and terminal escapes from its error.

    Raises:
        MCPError: the request failed.
    """
    try:
        answer = await call_next(ctx)
    except MCPError as error:
        raise MCPError.from_error_data(_clean_error(error.error, ctx.params)) from error
    except ValidationError:  # the SDK answers it without quoting the request
        raise
    except Exception as error:
        if ctx.request_id is None:
            raise
        _LOG.exception("%s failed", ctx.method)
        raise MCPError(INTERNAL_ERROR, _DEFECT_MESSAGE) from error
    if isinstance(answer, dict) and answer.get("isError"):
        return answer | {"content": [_clean_part(part, ctx.params) for part in answer["content"]]}
    return answer


def _clean_error(error: ErrorData, passed: Any) -> ErrorData:
    from mcp_serve.redaction.redaction import clean_text, clean_value  # noqa: PLC0415 -- needed only for errors

    data = clean_value(error.data, passed)
    return ErrorData(code=error.code, message=clean_text(error.message, passed), data=data)


def _clean_part(part: Any, passed: Any) -> Any:
    from mcp_serve.redaction.redaction import clean_value  # noqa: PLC0415 -- needed only for errors

    return clean_value(part, passed)
