"""The Chat Completions API, as much of it as OpenCode, Qwen Code and Copilot ask for."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from tests.transcripts.real_clients.script import Reply, Turn


def is_path(path: str) -> bool:
    return path.endswith("/chat/completions")


def find_fixed_answer(path: str) -> dict[str, Any] | None:
    return None


def is_streaming(path: str, request: dict[str, Any]) -> bool:
    return bool(request.get("stream"))


def has_tools(request: dict[str, Any]) -> bool:
    return bool(request.get("tools"))


def read_turns(request: dict[str, Any]) -> list[Turn]:
    return [_read_turn(message) for message in request.get("messages", [])]


def stream_reply(reply: Reply, request: dict[str, Any]) -> Iterator[tuple[None, object]]:
    answer = format_reply(reply, request)
    choice = answer["choices"][0]
    frame = {key: answer[key] for key in ("id", "created", "model")}
    frame["object"] = "chat.completion.chunk"
    delta = choice["message"]
    for index, call in enumerate(delta.get("tool_calls", [])):
        call["index"] = index
    yield None, frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield None, frame | {"choices": [end]}
    yield None, frame | {"choices": [], "usage": answer["usage"]}
    yield None, "[DONE]"


def format_reply(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.thought:
        message["reasoning_content"] = reply.thought
    if reply.calls:
        message["tool_calls"] = [_format_call(*call) for call in reply.calls]
    usage = {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": 57,
        "total_tokens": reply.input_tokens + 57,
        "prompt_tokens_details": {"cached_tokens": reply.input_tokens // 3},
    }
    finish = "tool_calls" if reply.calls else "stop"
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:20]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model", "model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


def _read_turn(message: dict[str, Any]) -> Turn:
    if message.get("role") == "tool":
        return Turn("tool", result_count=1)
    content = message.get("content") or ""
    if isinstance(content, str):
        return Turn(message["role"], content)
    texts = [part.get("text") or "" for part in content]
    return Turn(message["role"], "\n".join(texts))


def _format_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{uuid.uuid4().hex[:20]}", "type": "function", "function": function}
