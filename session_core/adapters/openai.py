"""`OpenAISession`: the `Session` of the OpenAI Agents SDK over a home."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from session_core.adapters.shared import (
    HomeAdapter,
    HomeArgument,
    check_session_id,
    decode_payloads,
    join_texts,
)
from session_core.errors import InvalidInput, NotFound
from session_core.types import MessageRow

SOURCE = "openai-agents"

_CALL_TYPES = ("function_call", "custom_tool_call", "mcp_call")
_CALL_DISTANCES = (16, 200)
"""How many stored items before a result are searched for its call, at first and at most."""

_ROLES = {"developer": "system"}


class OpenAISession(HomeAdapter):
    """The items of one conversation: `Runner.run(agent, text, session=OpenAISession(id, home))`.

    `home` is a folder, a file that ends in `.db`, or an opened home (`open_home`). Items are
    returned exactly as they were added. `pop_item` hides the newest item, and `clear_session` moves
    the conversation to the trash; both can be undone. `session_settings` may have a `limit`, which
    counts if `get_items` is called without one.

    Raises:
        InvalidInput: the id or the path is empty, or the id has more than 500 characters.
    """

    client = SOURCE

    def __init__(
        self, session_id: str, home: HomeArgument, *, session_settings: Any = None
    ) -> None:
        self.session_id = check_session_id(session_id)
        super().__init__(home)
        self.session_settings = session_settings
        self._is_checked = False

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items in their order, only the latest `limit` if it is given.

        Raises:
            InvalidInput: `limit` is not an integer.
        """
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise InvalidInput(f"limit must be an integer or None, got {limit!r:.40}")
        return await self.run_in_thread(partial(self._read_items, limit))

    async def add_items(self, items: Sequence[Any]) -> None:
        """Store items in one transaction.

        The first items create the session.

        Raises:
            InvalidInput: an item is not a mapping, or has a number that JSON lacks, such as NaN.
            TypeError: an item has a value that JSON lacks.
        """
        if isinstance(items, (Mapping, str, bytes)):
            raise InvalidInput(f"items must be a list of mappings, got {type(items).__name__}")
        if items:
            await self.run_in_thread(partial(self._append_items, list(items)))

    async def pop_item(self) -> Any | None:
        """Hide the newest item and return it, or return None if there is none."""
        return await self.run_in_thread(self._pop_item)

    async def clear_session(self) -> None:
        """Move the conversation to the trash.

        The next items begin a new conversation with this id.
        """
        await self.run_in_thread(partial(self.delete_session, self.session_id))

    def _require_own_source(self) -> None:
        """Refuse a session of another program, once for each object."""
        if not self._is_checked:
            self.find_own_session(self.session_id)
            self._is_checked = True

    def _append_items(self, items: list[Any]) -> None:
        self._require_own_source()
        messages = [_build_checked_message(index, item) for index, item in enumerate(items)]
        self._add_tool_names(messages)
        self.home.db.sdk.append_to_tip(self.session_id, messages, create={"source": SOURCE})

    def _add_tool_names(self, messages: list[dict[str, Any]]) -> None:
        """Add the names of tools to their results, which have only the id of the call."""
        names = _read_call_names(
            call for message in messages for call in message.get("tool_calls", ())
        )
        call_ids = {message["tool_call_id"] for message in messages if "tool_call_id" in message}
        if missing := call_ids - names.keys():
            names |= self._find_stored_names(missing)
        for message in messages:
            if (name := names.get(message.get("tool_call_id"))) is not None:
                message["tool_name"] = name

    def _find_stored_names(self, call_ids: set[str]) -> dict[str, str]:
        """Return the names of the tools of stored calls."""
        names: dict[str, str] = {}
        for distance in _CALL_DISTANCES:
            rows = self.home.db.sdk.read_tip_payloads(self.session_id, distance)
            payloads = [payload for _, payload in rows if payload and "_call" in payload]
            items = decode_payloads(payloads)
            names = _read_call_names(_build_call(item) for item in items if _is_call(item))
            if call_ids <= names.keys():
                break
        return {call_id: names[call_id] for call_id in call_ids if call_id in names}

    def _read_items(self, limit: int | None) -> list[Any]:
        if limit == 0:
            return []
        self._require_own_source()
        if limit is None or limit < 0:
            return self._decode_rows(self.home.db.sdk.read_tip_payloads(self.session_id))
        rows = self.home.db.sdk.read_tip_payloads(self.session_id, limit)
        items = self._decode_rows(rows)
        # A row without an item does not count, so that all rows are read if there is one.
        if len(items) < len(rows) == limit:
            items = self._decode_rows(self.home.db.sdk.read_tip_payloads(self.session_id))
        return items[-limit:]

    def _decode_rows(self, rows: Sequence[tuple[int, str | None]]) -> list[Any]:
        """Return the items of rows, of which a row of another program has no payload."""
        payloads = [payload for _, payload in rows if payload is not None]
        if len(payloads) < len(rows):
            foreign_ids = [message_id for message_id, payload in rows if payload is None]
            foreign = self.home.db.find_messages(foreign_ids)
            payloads = [
                json.dumps(_build_text_item(foreign.get(message_id)))
                if payload is None
                else payload
                for message_id, payload in rows
            ]
        return [item for item in decode_payloads(payloads) if item is not None]

    def _pop_item(self) -> Any | None:
        self._require_own_source()
        while True:
            # The continuation that a compression has made of the session, or the session.
            tip = self.home.db.get_compression_tip(self.session_id)
            try:
                row = self.home.db.sdk.pop_message(tip)
            except NotFound:
                return None
            if row is None:
                return None
            items = self._decode_rows([(row["id"], row.get("payload_json"))])
            if items:
                return items[0]


def _build_checked_message(index: int, item: Any) -> dict[str, Any]:
    """Return the message of an item that was passed, and name its index in errors."""
    if not isinstance(item, Mapping):
        raise InvalidInput(f"items[{index}] must be a mapping, got {item!r:.40}")
    try:
        return build_message(item)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else InvalidInput
        raise kind(f"items[{index}] cannot be stored as JSON: {error}") from error


def build_message(item: Any) -> dict[str, Any]:
    """Return the message of an item, with its payload, text and calls."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "payload_json": json.dumps(item, allow_nan=False),
    }
    if not isinstance(item, Mapping):
        return message
    kind = item.get("type")
    if _is_call(item):
        message["tool_calls"] = [_build_call(item)]
    elif isinstance(kind, str) and kind.endswith("_output"):
        call_id = item.get("call_id")
        message |= {"role": "tool", "content": join_texts(item.get("output"))}
        message |= {"tool_call_id": call_id} if isinstance(call_id, str) else {}
    elif kind == "reasoning":
        message["reasoning"] = join_texts(item.get("summary")) or None
    else:
        role = item.get("role")
        if isinstance(role, str) and role:
            message["role"] = _ROLES.get(role, role)
        message["content"] = join_texts(item.get("content")) or None
    return message


def _build_call(item: Mapping[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments", item.get("input"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": str(item.get("name") or item.get("type")), "arguments": text}
    return {"id": item.get("call_id") or item.get("id"), "type": "function", "function": function}


def _is_call(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") in _CALL_TYPES


def _read_call_names(calls: Iterable[Mapping[str, Any]]) -> dict[Any, str]:
    """Return the names of tools by the ids of their calls."""
    return {call["id"]: call["function"]["name"] for call in calls if isinstance(call["id"], str)}


def _build_text_item(row: MessageRow | None) -> Any | None:
    """Return an item with the text of a row without a payload, or None if it has no text."""
    if row is None or row["role"] == "tool":
        return None
    text = join_texts(row.get("content"))
    return {"role": row["role"], "content": text} if text else None
