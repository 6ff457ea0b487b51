"""Fuzzed requests: each is drawn from a seed, so that a failing one can be repeated."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.wire.conftest import MODERN

TOOLS = {
    "sessions_list": ("store", "cursor", "query", "since", "until", "limit", "order", "status"),
    "sessions_read": ("session", "cursor", "limit", "around", "before", "after", "detail"),
    "sessions_search": ("query", "roles", "limit", "session", "since", "sort", "cursor"),
    "sessions_stats": ("deep", "store"),
    "routes_list": ("limit", "cursor", "query", "state"),
    "events_wait": ("cursor", "session"),
    "sessions_edit": ("sessions", "title", "archived", "pinned", "reopen"),
    "sessions_finalize": ("sessions", "what", "reason", "plan"),
    "sessions_compress": ("session", "plan", "summary", "focus", "keep_last"),
    "sessions_prune": ("what", "sessions", "older_than_days", "plan"),
    "sessions_restore": ("batch", "plan", "sessions"),
    "no_such_tool": ("x",),
}
METHODS = (
    "ping",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
    "initialize",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "rpc.discover",
    "",
    "x" * 300,
    "tools/call\x00",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 50, 2**31, 2**63, -(2**64), 10**300, 1.5, -0.0, 1e308),
    *("", " ", "fill_0_00001", "fill", "the", "数据库", "\x00", "\x1b]52;c;ZXZpbA==\x07", "\u202e"),
    *("x" * 3_000, "'; DROP TABLE sessions; --", "../../etc/passwd", "%s%n{0}", "2026-01-01", "7d"),
    *("AND OR NOT", '"', "*" * 60, "(" * 60, "NEAR(a b, 9)", "a" + "*", "sk-" + "a1B2" * 12),
    *([], [[]], {}, {"a": {"b": []}}, ["fill_0_00001"], [None, 1, "x"], ["x"] * 200),
)
_BYTES = (b"\x00", b"\xff", b'"', b"{", b"]", b",", b"\\", b"\\ud800", b"9" * 400, b"\xc3", b"\n")


@dataclass(frozen=True, slots=True)
class Request:
    """A line and the expected number of answers."""

    line: bytes
    answers: int


def draw_request(seed: str, *, is_modern: bool) -> Request:
    """Return the request of a seed."""
    chance = random.Random(seed)
    request_id: Any = chance.choice([f"fuzz {seed}", chance.randrange(10**9), f"ü {seed}"])
    params = _draw_params(chance)
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": params.pop("method")}
    if is_modern and chance.random() < 0.95:
        params["_meta"] = MODERN
    if chance.random() < 0.97:
        message["params"] = params
    if chance.random() < 0.08:
        name = chance.choice(["jsonrpc", "id", "method", "params", "result", "error"])
        message[name] = chance.choice(VALUES)
    line = json.dumps(message, ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.1:
        line = _break_line(chance, line)
    return Request(line, _count_answers(line))


def _draw_params(chance: random.Random) -> dict[str, Any]:
    """Return random params with a method."""
    kind = chance.random()
    if kind < 0.7:
        name = chance.choice(list(TOOLS))
        names = chance.sample(TOOLS[name], chance.randrange(len(TOOLS[name]) + 1))
        arguments: Any = {item: chance.choice(VALUES) for item in names}
        if name == "events_wait":
            arguments["timeout_s"] = chance.choice([0, -1, "x", 10**300])
        elif chance.random() < 0.05:
            arguments = chance.choice(VALUES)
        return {"method": "tools/call", "name": name, "arguments": arguments}
    if kind < 0.8:
        uri = chance.choice(["sessions://stats", "session://", "route://", "file:///", ""])
        return {"method": "resources/read", "uri": uri + str(chance.choice(VALUES))[:500]}
    if kind < 0.85:
        name = chance.choice(["catch_up", "tidy_up", "compress_session", "x"])
        values = {"session": chance.choice(VALUES)}
        return {"method": "prompts/get", "name": name, "arguments": values}
    if kind < 0.9:
        argument = {
            "name": chance.choice(["session", "source", "x"]),
            "value": chance.choice(VALUES),
        }
        reference = {"type": "ref/prompt", "name": "catch_up"}
        return {"method": "completion/complete", "ref": reference, "argument": argument}
    return {
        "method": chance.choice(METHODS),
        chance.choice(["x", "cursor", "uri"]): chance.choice(VALUES),
    }


def _break_line(chance: random.Random, line: bytes) -> bytes:
    """Return a line with some bytes changed, still a single line."""
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(line))
        put = chance.choice(_BYTES)
        line = line[:at] + put + line[at + chance.randrange(3) :]
    return line[: chance.randrange(1, len(line) + 1)].replace(b"\n", b" ")


def _count_answers(line: bytes) -> int:
    """Return 0 for a notification, a response and a blank line, which get no answer."""
    if not line.strip():
        return 0
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return 1
    if not isinstance(message, dict) or ("id" in message and "method" in message):
        return 1
    if "method" not in message:
        return 0 if "result" in message or "error" in message else 1
    is_whole = isinstance(message["method"], str) and isinstance(message.get("params", {}), dict)
    is_notification = is_whole or (message.get("params", {}) is None)
    return (
        0
        if is_notification and message.get("jsonrpc") == "2.0" and "\\ud800" not in line.decode()
        else 1
    )
