"""The Messages API of Anthropic, as much of it as Claude Code asks for."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from tests.transcripts.real_clients.script import Reply, Turn

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


def is_path(path: str) -> bool:
    return path.endswith(("/messages", "/count_tokens"))


def find_fixed_answer(path: str) -> dict[str, Any] | None:
    return {"input_tokens": 1200} if path.endswith("/count_tokens") else None


def is_streaming(path: str, request: dict[str, Any]) -> bool:
    return bool(request.get("stream"))


def has_tools(request: dict[str, Any]) -> bool:
    return bool(request.get("tools"))


def read_turns(request: dict[str, Any]) -> list[Turn]:
    return [_read_turn(message) for message in request.get("messages", [])]


def stream_reply(reply: Reply, request: dict[str, Any]) -> Iterator[tuple[str, object]]:
    message = format_reply(reply, request)
    start = message | {"content": [], "stop_reason": None}
    start["usage"] = message["usage"] | {"output_tokens": 1}
    yield "message_start", {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        yield from _stream_block(index, block)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def format_reply(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": reply.input_tokens,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 400,
        "output_tokens": 57,
    }
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "model"),
        "content": list(_list_blocks(reply)),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _read_turn(message: dict[str, Any]) -> Turn:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    results = sum(block.get("type") == "tool_result" for block in blocks)
    text = "" if results else _REMINDER.sub("", "\n".join(texts))
    return Turn(message["role"], text, results)


def _list_blocks(reply: Reply) -> Iterator[dict[str, Any]]:
    if reply.thought:
        yield {"type": "thinking", "thinking": reply.thought, "signature": "c2lnbmVk"}
    if reply.text:
        yield {"type": "text", "text": reply.text}
    for name, arguments in reply.calls:
        call_id = f"toolu_{uuid.uuid4().hex[:20]}"
        yield {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _stream_block(index: int, block: dict[str, Any]) -> Iterator[tuple[str, object]]:
    kind = block["type"]
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}.get(
        kind, {"input": {}}
    )
    deltas: dict[str, list[dict[str, Any]]] = {
        "text": [{"type": "text_delta", "text": block.get("text")}],
        "thinking": [
            {"type": "thinking_delta", "thinking": block.get("thinking")},
            {"type": "signature_delta", "signature": block.get("signature")},
        ],
        "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}],
    }
    started = {"type": "content_block_start", "index": index, "content_block": block | empty}
    yield "content_block_start", started
    for delta in deltas[kind]:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}
