"""The Responses API of OpenAI, as much of it as Codex asks for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from tests.transcripts.real_clients.script import Reply, Turn


def is_path(path: str) -> bool:
    return path.endswith(("/responses", "/responses/compact"))


def find_fixed_answer(path: str) -> dict[str, Any] | None:
    return None


def is_streaming(path: str, request: dict[str, Any]) -> bool:
    return bool(request.get("stream"))


def has_tools(request: dict[str, Any]) -> bool:
    return bool(request.get("tools"))


def read_turns(request: dict[str, Any]) -> list[Turn]:
    asked = request.get("input", [])
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return [_read_turn(item) for item in items]


def stream_reply(reply: Reply, request: dict[str, Any]) -> Iterator[tuple[str, object]]:
    response = format_reply(reply, request)
    created = response | {"output": [], "status": "in_progress", "usage": None}
    yield _name({"type": "response.created", "response": created})
    for index, item in enumerate(response["output"]):
        yield _name({"type": "response.output_item.added", "output_index": index, "item": item})
        yield _name({"type": "response.output_item.done", "output_index": index, "item": item})
    yield _name({"type": "response.completed", "response": response})


def format_reply(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": reply.input_tokens // 3},
        "output_tokens": 57,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": reply.input_tokens + 57,
    }
    return {
        "id": f"resp_{uuid.uuid4().hex[:20]}",
        "object": "response",
        "status": "completed",
        "model": request.get("model", "model"),
        "output": list(_list_items(reply)),
        "usage": usage,
    }


def _name(event: dict[str, Any]) -> tuple[str, object]:
    return event["type"], event


def _read_turn(item: dict[str, Any]) -> Turn:
    if item.get("type") in ("function_call_output", "custom_tool_call_output"):
        return Turn("tool", result_count=1)
    content = item.get("content") or []
    if isinstance(content, str):
        return Turn(item.get("role", ""), content)
    texts = [part.get("text") or "" for part in content if isinstance(part, dict)]
    text = "\n".join(text for text in texts if not text.lstrip().startswith("<"))
    return Turn(item.get("role", ""), text)


def _list_items(reply: Reply) -> Iterator[dict[str, Any]]:
    mark = uuid.uuid4().hex[:20]
    if reply.thought:
        summary = [{"type": "summary_text", "text": reply.thought}]
        yield {"type": "reasoning", "id": f"rs_{mark}", "summary": summary, "content": None}
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        yield {
            "type": "message",
            "id": f"msg_{mark}",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    for name, arguments in reply.calls:
        yield _format_call(name, arguments)


def _format_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    mark = uuid.uuid4().hex[:20]
    item = {"id": f"fc_{mark}", "call_id": f"call_{mark}", "name": name, "status": "completed"}
    if set(arguments) == {"input"}:
        return item | {"type": "custom_tool_call", "input": arguments["input"]}
    namespace, _, bare = name.rpartition(".")
    named = {"name": bare, "namespace": namespace} if namespace else {}
    return item | {"type": "function_call", "arguments": json.dumps(arguments)} | named
