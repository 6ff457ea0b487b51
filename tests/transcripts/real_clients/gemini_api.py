"""The Gemini API, as much of it as Gemini CLI asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.transcripts.real_clients.script import Reply, Turn


def is_path(path: str) -> bool:
    return path.endswith((":streamGenerateContent", ":generateContent", ":countTokens"))


def find_fixed_answer(path: str) -> dict[str, Any] | None:
    return {"totalTokens": 1200} if path.endswith(":countTokens") else None


def is_streaming(path: str, request: dict[str, Any]) -> bool:
    return path.endswith(":streamGenerateContent")


def has_tools(request: dict[str, Any]) -> bool:
    return bool(request.get("tools"))


def read_turns(request: dict[str, Any]) -> list[Turn]:
    return [_read_turn(content) for content in request.get("contents", [])]


def stream_reply(reply: Reply, request: dict[str, Any]) -> Iterator[tuple[None, object]]:
    yield None, format_reply(reply, request)


def format_reply(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if reply.thought:
        parts.append({"text": f"**Plan** {reply.thought}", "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    parts += [{"functionCall": {"name": name, "args": args}} for name, args in reply.calls]
    usage = {
        "promptTokenCount": reply.input_tokens,
        "cachedContentTokenCount": reply.input_tokens // 3,
        "candidatesTokenCount": 50,
        "thoughtsTokenCount": 7,
        "totalTokenCount": reply.input_tokens + 57,
    }
    content = {"role": "model", "parts": parts}
    candidate = {"index": 0, "content": content, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "model"}


def _read_turn(content: dict[str, Any]) -> Turn:
    parts = content.get("parts") or []
    results = sum("functionResponse" in part for part in parts)
    text = "" if results else "\n".join(part.get("text") or "" for part in parts)
    return Turn(content.get("role", "user"), text, results)
