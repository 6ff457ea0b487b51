"""Messages of clients: parsed strictly, so that each one that is refused gets an answer.

The SDK drops a line that is not a message, and takes a request with an id of another type for a
notification. `docs/upstream-mcp-sdk.md` describes both.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification
from mcp.types.jsonrpc import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

MOST_BYTES = DEFAULT_MAX_REQUEST_BODY_SIZE
"""The longest message, over stdio as over HTTP."""

_ID = b'"id"'


class InvalidMessage(Exception):
    """A message that is refused, with the answer; a malformed response has none."""

    def __init__(self, answer: JSONRPCError | None) -> None:
        super().__init__(answer.error.message if answer else "a malformed response")
        self.answer = answer


def parse_message(data: bytes) -> JSONRPCMessage:
    """Return the message in `data`.

    Raises:
        InvalidMessage: it is not one message of JSON-RPC 2.0.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        raise InvalidMessage(_answer(data)) from error
    if isinstance(message, JSONRPCNotification) and _ID in data and "id" in json.loads(data):
        raise InvalidMessage(_invalid(None, "an id must be a text or a whole number"))
    return message


def refuse_length() -> JSONRPCError:
    """Return the answer to a message that is too long to be read."""
    return _invalid(None, f"a message has at most {MOST_BYTES:,} bytes")


def _answer(data: bytes) -> JSONRPCError | None:
    """Return the answer to invalid data; nothing of the data but its id is repeated."""
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        return _error(_find_id(data), PARSE_ERROR, "the message is not valid JSON in UTF-8")
    if isinstance(loaded, list):
        return _invalid(None, "batches are not supported; send one message at a time")
    if not isinstance(loaded, dict):
        return _invalid(None, "a message must be an object")
    if "method" not in loaded and ("result" in loaded or "error" in loaded):
        return None
    request_id = _as_id(loaded.get("id"))
    if "id" in loaded and request_id is None:
        return _invalid(None, "an id must be a text or a whole number")
    if isinstance(loaded.get("method"), str) and isinstance(loaded.get("params", {}), dict):
        if loaded.get("jsonrpc") != "2.0":
            return _invalid(request_id, 'jsonrpc must be "2.0"')
        return _invalid(request_id, "half a character in a text, or nested more than 200 levels")
    return _invalid(request_id, "method must be a text, and params an object")


def _find_id(data: bytes) -> str | int | None:
    """Return the id of a request that is JSON but for its encoding."""
    try:
        loaded = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    request_id = _as_id(loaded.get("id")) if isinstance(loaded, dict) else None
    return None if isinstance(request_id, str) and "\ufffd" in request_id else request_id


def _as_id(value: Any) -> str | int | None:
    """Return an id that can be sent back, None if there is none."""
    if isinstance(value, str):
        return value if not any("\ud800" <= sign <= "\udfff" for sign in value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _invalid(request_id: str | int | None, message: str) -> JSONRPCError:
    return _error(request_id, INVALID_REQUEST, message)


def _error(request_id: str | int | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))
