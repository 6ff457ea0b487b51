"""The time until a waiting client is notified of a commit of another process.

The other process uses the library of the home, and keeps its database open as an agent does. Both
use the same clock.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import peer_jobs, serving
from tests.bench.build import BuiltHome
from tests.bench.rows import Answer, BenchRow
from tests.bench.serving import StdioServer, ToolCall

MAX_DELAY_MS = 300.0
_TIMEOUT_S = {False: 20.0, True: 2.0}
"""So long is waited for what nobody tells."""

EventReader = Callable[[StdioServer, Any], tuple[list[str], Any]]
"""What was heard behind a cursor, and the next cursor; waits for a second at most."""


def measure_event_delay(home: Path, built: BuiltHome, *, quick: bool) -> BenchRow:
    """Return the row with our delay, and on a Hermes home the delay of Hermes."""
    count = 2 if quick else 10
    mine = _measure_delays(
        serving.make_own_program(home), _read_own_events, home, built, count, quick=quick
    )
    peers = (
        _measure_delays(
            serving.make_hermes_program(home), _read_hermes_event, home, built, 2, quick=quick
        )
        if built.kind == "hermes"
        else None
    )
    slowest = max(mine) if len(mine) == count else float("inf")
    return BenchRow(
        what="wire: a commit until it is heard",
        home=built.name,
        ours=_format_median(mine, quick=quick),
        theirs="" if peers is None else _format_median(peers, quick=quick),
        better=statistics.median(peers) / statistics.median(mine) if peers and mine else None,
        target=f"<= {MAX_DELAY_MS:g} ms",
        reached=slowest <= MAX_DELAY_MS,
        note=f"{len(mine)} of {count} heard, the slowest after {slowest:.0f} ms",
    )


def _format_median(taken: list[float], *, quick: bool) -> str:
    return f"{statistics.median(taken):.0f} ms" if taken else f"> {_TIMEOUT_S[quick]:.0f} s"


def _measure_delays(
    program: serving.ServerProgram,
    look: EventReader,
    home: Path,
    built: BuiltHome,
    count: int,
    *,
    quick: bool,
) -> list[float]:
    """Return how long each message took that was heard, in ms."""
    stop = home / "stop"
    stop.unlink(missing_ok=True)
    with StdioServer(program) as server:
        cursor = _skip_past_events(server, look)
        answer = _start_speaker(home, built, {"count": count, "stop": str(stop)})
        heard: dict[str, float] = {}
        until = time.monotonic() + count + _TIMEOUT_S[quick]
        while len(heard) < count and time.monotonic() < until:
            texts, cursor = look(server, cursor)
            now = time.time()
            heard |= {text: now for text in texts if text.startswith("said at once")}
        stop.touch()
    said = answer()["said"]
    return [(heard[text] - at) * 1000 for text, at in said.items() if text in heard]


def _skip_past_events(server: StdioServer, look: EventReader) -> Any:
    """Return the cursor after all events of the past."""
    texts, cursor = look(server, None)
    while texts:
        texts, cursor = look(server, cursor)
    return cursor


def _start_speaker(home: Path, built: BuiltHome, job: Answer) -> peer_jobs.AnswerWaiter:
    start = peer_jobs.start_hermes if built.kind == "hermes" else peer_jobs.start_ours
    about = {"do": "speak", "db": str(home / "state.db"), "driver": "standard"}
    return start(home, about | {"session": built.ordinary[0]} | job)


def _read_own_events(server: StdioServer, cursor: Any) -> tuple[list[str], Any]:
    asked = {"timeout_s": 1.0} | ({"cursor": cursor} if cursor else {})
    answer = json.loads(server.call_tool(ToolCall("events_wait", asked)))
    return [str(event.get("text")) for event in answer["events"]], answer["cursor"]


def _read_hermes_event(server: StdioServer, cursor: Any) -> tuple[list[str], Any]:
    asked = {"after_cursor": cursor or 0, "timeout_ms": 1000}
    event = json.loads(server.call_tool(ToolCall("events_wait", asked)))["event"]
    return ([], cursor) if event is None else ([str(event["content"])], event["cursor"])
