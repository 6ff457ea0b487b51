"""The same calls through the client of the SDK, which reads and validates the answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.bench.serving import EMPTY_CALL, ServerProgram, ToolCall

CallsByName = Mapping[str, tuple[Any, Sequence[ToolCall]]]


def measure_call_times(
    program: ServerProgram, bare: ServerProgram, calls: CallsByName, runs: int
) -> dict[str, float]:
    """Return the median milliseconds of each call, without the time of an empty call."""
    (floor,) = anyio.run(_measure_medians, bare, {"": (None, [EMPTY_CALL])}, runs).values()
    result = anyio.run(_measure_medians, program, calls, runs)
    return {name: max(0.0, taken - floor) for name, taken in result.items()}


async def _measure_medians(
    program: ServerProgram, calls: CallsByName, runs: int
) -> dict[str, float]:
    first, *rest = program.command
    stdio_server_parameters = StdioServerParameters(command=first, args=rest, env=program.env)
    async with Client(stdio_client(stdio_server_parameters), cache=None) as client:
        return {
            name: await _measure_median(client, each, runs) for name, (_, each) in calls.items()
        }


async def _measure_median(client: Client, calls: Sequence[ToolCall], runs: int) -> float:
    taken = []
    for number in range(runs + 1):
        call = calls[number % len(calls)]
        began = time.perf_counter()
        answer = await client.call_tool(call.tool, call.arguments)
        taken.append((time.perf_counter() - began) * 1000)
        if answer.is_error:
            raise RuntimeError(f"{call.tool}: {answer.content}")
    return statistics.median(taken[1:])
