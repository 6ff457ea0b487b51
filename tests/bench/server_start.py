"""The time that a server takes to its first answer, its memory, and the size of its tool list.

It is compared with a bare server of the SDK, started in turns, and with the server of Hermes.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import serving
from tests.bench.rows import Answer, BenchRow
from tests.bench.serving import EMPTY_CALL, StdioServer, ToolCall

START, LISTED, MEMORY = 1.0, 1.10, 1.2
FIRST_CALL_MS, PREPARED_CALL_MS = 90, 40
_PREPARED_AFTER_S = 0.5
TOKENS, CHARACTERS = 3000, 22_000
_CHARACTERS_PER_TOKEN = 4


def measure_start(home: Path, *, quick: bool) -> Iterator[BenchRow]:
    """Yield the time to the first answer, and the memory after the first call."""
    programs = {
        "ours": serving.make_own_program,
        "bare": serving.make_bare_program,
        "hermes": serving.make_hermes_program,
    }
    began: dict[str, list[Answer]] = {who: [] for who in programs}
    for turn in range(2 if quick else 15):
        order = list(programs)
        for who in order[turn % 3 :] + order[: turn % 3]:
            began[who].append(_measure_start(programs[who](home), _FIRST_CALLS[who]))
    usual = compute_medians(began)
    yield make_bare_comparison_row("start to the first answer", "ms", START, usual)
    yield make_bare_comparison_row("start to the tool list", "listed", LISTED, usual)
    yield _make_first_call_row("first call after the tool list", "first", FIRST_CALL_MS, usual)
    yield _make_first_call_row("first call 0.5 s later", "prepared", PREPARED_CALL_MS, usual)
    yield make_bare_comparison_row("memory after the first call", "mb", MEMORY, usual)


_FIRST_CALLS = {
    "ours": ToolCall("sessions_list", {}),
    "bare": EMPTY_CALL,
    "hermes": ToolCall("conversations_list", {"limit": 20}),
}


def _measure_start(program: serving.ServerProgram, first: ToolCall) -> Answer:
    """Start a server twice: with a call right after the tool list, and with one some time later."""
    answer: Answer = {}
    for name, pause_s in (("first", 0.0), ("prepared", _PREPARED_AFTER_S)):
        began = time.perf_counter()
        with StdioServer(program) as server:
            server.send_request("tools/list")
            answer |= {"ms": server.answered_ms, "listed": _measure_ms_since(began)}
            time.sleep(pause_s)
            called = time.perf_counter()
            server.call_tool(first)
            answer |= {name: _measure_ms_since(called), "mb": server.measure_resident_mb()}
    return answer


def _measure_ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def compute_medians(began: dict[str, list[Answer]]) -> dict[str, Answer]:
    """Return the medians of the measured values over all starts of each server."""
    return {
        who: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        for who, turns in began.items()
    }


def make_bare_comparison_row(
    what: str, name: str, most: float | None, usual: dict[str, Answer]
) -> BenchRow:
    """Return the row of one measure, judged by that of the bare server."""
    unit = "MB" if name == "mb" else "ms"
    mine, bare = (usual[who][name] for who in ("ours", "bare"))
    peers = usual["hermes"][name] if "hermes" in usual else None
    by = mine / bare
    return BenchRow(
        what=what,
        home="even hermes",
        ours=f"{mine:.0f} {unit}",
        theirs="" if peers is None else f"{peers:.0f} {unit}",
        better=None if peers is None else peers / mine,
        target="" if most is None else f"<= {most:g} x",
        reached=None if most is None else by <= most,
        note=f"{by:.3f} x a bare server of the SDK, {mine:.1f} by {bare:.1f} {unit}",
    )


def _make_first_call_row(what: str, name: str, most: float, usual: dict[str, Answer]) -> BenchRow:
    """Return the row of a first call. The start of the bare server shows how busy the host is."""
    mine, peers, bare = usual["ours"][name], usual["hermes"][name], usual["bare"]["ms"]
    return BenchRow(
        what=what,
        home="even hermes",
        ours=f"{mine:.0f} ms",
        theirs=f"{peers:.0f} ms",
        better=peers / mine,
        target=f"<= {most:g} ms",
        reached=mine <= most,
        note=f"{mine / bare:.3f} x the start of a bare server of the SDK, {bare:.0f} ms",
    )


def measure_tool_list(home: Path) -> Iterator[BenchRow]:
    """Yield how long the list of tools is, as a model reads it and as a client does."""
    with StdioServer(serving.make_own_program(home)) as server:
        ours = server.send_request("tools/list")["tools"]
    with StdioServer(serving.make_hermes_program(home)) as server:
        theirs = server.send_request("tools/list")["tools"]
    keys = ("name", "description", "inputSchema")
    tokens = [_measure_length(tools, keys) // _CHARACTERS_PER_TOKEN for tools in (ours, theirs)]
    whole = [_measure_length(tools, (*keys, "outputSchema")) for tools in (ours, theirs)]
    counts = f"{len(ours)} tools, of the peer {len(theirs)}"
    yield _make_length_row(
        "list of tools, tokens", tokens, TOKENS, f"{counts}; 4 characters a token"
    )
    yield _make_length_row("with output schemas, characters", whole, CHARACTERS, counts)


def _measure_length(tools: list[Answer], keys: tuple[str, ...]) -> int:
    listed = [{key: tool[key] for key in keys if key in tool} for tool in tools]
    return len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False))


def _make_length_row(what: str, lengths: list[int], most: int, note: str) -> BenchRow:
    mine, peers = lengths
    return BenchRow(
        what=what,
        home="",
        ours=f"{mine:,}",
        theirs=f"{peers:,}",
        better=peers / mine,
        target=f"<= {most:,}",
        reached=mine <= most,
        note=note,
    )
