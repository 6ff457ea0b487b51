"""The rows of transcripts: the library on two trees, and the server next to other programs."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from tests.bench import peer_jobs, transcript_peers, transcript_trees
from tests.bench.rows import BenchRow
from tests.bench.serving import StdioServer, ToolCall
from tests.bench.transcript_peers import TranscriptPeer
from tests.bench.transcript_trees import BuiltTree

DEJA_VARIABLE = "MCP_SESSIONS_DEJA"
"""Names the binary of deja, built from its public source."""

INDEX_RATIO, SIZE_RATIO = 0.4, 0.6
PEAK_MB, SLICE_S = 150, 0.5
LIST_MS = {"2,000 files": 60.0, "20,000 files": 150.0}
SWEEP_MS = {"2,000 files": 8.0, "20,000 files": 85.0}
WATCH_MS = 1.0
QUERIES = {
    "rare token": (transcript_trees.RARE_WORD, 3.0),
    "common word": (transcript_trees.COMMON_WORD, 10.0),
    "three words": (transcript_trees.THREE_WORDS, None),
    "phrase": (transcript_trees.PHRASE, 15.0),
    "prefix of three letters": (transcript_trees.PREFIX, 10.0),
    "CJK pair": (transcript_trees.CJK_PAIR, 5.0),
}
COLD_MS = 40.0

_LONG_FILE_BYTES = {False: 10_000_000_000, True: 20_000_000}
_LONG_LINE_BYTES = {False: 1_000_000_000, True: 20_000_000}
_STARTS = {False: 5, True: 1}
_CALLS = {False: 20, True: 2}
_WIRE_QUERIES = ("rare token", "common word", "three words")

Figures = dict[str, Any]


def measure_transcripts(
    folder: Path, *, quick: bool, driver: _sqlite3.SqliteChoice
) -> Iterator[BenchRow]:
    """Yield the rows of both trees, then those of one long file and of one long line."""
    trees = [transcript_trees.build_tree(folder, shape) for shape in transcript_trees.SHAPES[quick]]
    for tree in trees:
        yield from _measure_library(folder, tree, driver, starts=_STARTS[quick])
    yield from _measure_peers(folder, trees[0], times=_CALLS[quick])
    for shape, write, sizes in (
        ("file", transcript_trees.write_long_session, _LONG_FILE_BYTES),
        ("line", transcript_trees.write_long_line, _LONG_LINE_BYTES),
    ):
        yield from _measure_long(folder, driver, shape, write, sizes[quick])


def _measure_library(
    folder: Path, tree: BuiltTree, driver: str, *, starts: int
) -> Iterator[BenchRow]:
    """Yield the rows of the library on one tree. Each start builds an index."""
    state = folder / "transcript-state"
    built = []
    for _ in range(starts):
        shutil.rmtree(state, ignore_errors=True)
        built.append(_run(tree.home, state, driver, "index"))
    result = _run(tree.home, state, driver, "ask")
    shutil.rmtree(state)
    slices = _run(tree.home, state, driver, "slices")
    shutil.rmtree(state)
    first = _take_median(built, "first list")
    yield _make_time_row("first list without an index", tree, first, LIST_MS.get(tree.name))
    yield _make_time_row("whole index", tree, _take_median(built, "whole index"), None)
    yield _make_size_row(tree, built[0]["bytes"])
    for name in ("list", "page of 50"):
        yield _make_time_row(name, tree, result[name], None)
    for name, (_, limit) in QUERIES.items():
        yield _make_time_row(f"search: {name}", tree, result[name], limit)
    cold = "common word, sources cold"
    yield _make_time_row(f"search: {cold}", tree, result[cold], COLD_MS)
    yield _make_time_row(
        "nothing new, sweep", tree, result["nothing new, sweep"], SWEEP_MS.get(tree.name)
    )
    yield _make_time_row("nothing new, watch", tree, result["nothing new, watch"], WATCH_MS)
    yield from _make_bound_rows(tree.name, slices | {"peak MB": built[0]["peak MB"]})


def _measure_long(
    folder: Path, driver: str, shape: str, write: Callable[[Path, int], None], size: int
) -> Iterator[BenchRow]:
    """Yield the bounds of a session of one long file or one long line."""
    home, state = folder / "transcript-long", folder / "transcript-state"
    write(home / ".claude" / "projects" / "-src-project-0" / "long.jsonl", size)
    name = f"a {shape} of {size / 1e9:g} GB"
    yield from _make_bound_rows(name, _run(home, state, driver, "slices"))
    shutil.rmtree(home)
    shutil.rmtree(state)


def _measure_peers(folder: Path, tree: BuiltTree, *, times: int) -> Iterator[BenchRow]:
    """Yield the rows of the server, next to each program that is here."""
    binary = os.environ.get(DEJA_VARIABLE)
    peers = [transcript_peers.make_agentsview_peer()]
    if binary:
        peers.insert(0, transcript_peers.make_deja_peer(Path(binary)))
    ours = _measure_peer(folder, tree, transcript_peers.make_own_peer(), times=times)
    for peer in peers:
        theirs = _measure_peer(folder, tree, peer, times=times)
        limits = {"whole index": INDEX_RATIO} if peer.name == "deja" else {}
        for name in ours:
            if name in theirs:
                yield _make_peer_row(f"{peer.name}: {name}", tree, ours[name], theirs[name], limits)


def _measure_peer(folder: Path, tree: BuiltTree, peer: TranscriptPeer, *, times: int) -> Figures:
    """Return the milliseconds of a program for each name, and the bytes of its index."""
    home = folder / f"transcript-home-{peer.name}"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(tree.home / ".claude", home / ".claude", copy_function=shutil.copy2)
    try:
        figures = {"whole index": peer.index_home(home) * 1000}
        figures["index, MB"] = peer.measure_index_bytes(home) / 1e6
        with StdioServer(peer.make_program(home)) as server:
            calls = {name: peer.search(QUERIES[name][0]) for name in _WIRE_QUERIES}
            if peer.list_newest is not None:
                calls["list"] = peer.list_newest
            for name, call in calls.items():
                figures[name] = _time_call(server, call, times)
    finally:
        peer.stop_daemon(home)
        shutil.rmtree(home)
    return figures


def _time_call(server: StdioServer, call: ToolCall, times: int) -> float:
    server.call_tool(call)
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        server.call_tool(call)
        spans.append(time.perf_counter() - began)
    return statistics.median(spans) * 1000


def _run(home: Path, state: Path, driver: str, what: str) -> Figures:
    job = {
        "do": what,
        "home": str(home),
        "state": str(state),
        "driver": driver,
        "queries": {name: query for name, (query, _) in QUERIES.items()},
    }
    return peer_jobs.run_transcripts(home, job)


def _take_median(runs: Sequence[Figures], name: str) -> Figures:
    return {unit: statistics.median(run[name][unit] for run in runs) for unit in ("wall", "cpu")}


def _make_time_row(what: str, tree: BuiltTree, spans: Figures, limit: float | None) -> BenchRow:
    return BenchRow(
        what=f"transcripts: {what}",
        home=tree.name,
        ours=f"{spans['wall']:,.1f} ms",
        theirs="",
        better=None,
        target="" if limit is None else f"<= {limit:g} ms",
        reached=None if limit is None else spans["wall"] <= limit,
        note=f"{spans['cpu']:,.1f} ms of processor time",
    )


def _make_size_row(tree: BuiltTree, size: int) -> BenchRow:
    ratio = size / tree.text_bytes
    return BenchRow(
        what="transcripts: size of the index",
        home=tree.name,
        ours=f"{size / 1e6:,.1f} MB",
        theirs="",
        better=None,
        target=f"<= {SIZE_RATIO:g} x",
        reached=ratio <= SIZE_RATIO,
        note=f"{ratio:.2f} x the {tree.text_bytes / 1e6:,.1f} MB of text",
    )


def _make_bound_rows(name: str, figures: Figures) -> Iterator[BenchRow]:
    bounds = {
        "memory while indexing": ("peak MB", "MB", PEAK_MB),
        "longest slice that holds the index": ("longest s", "s", SLICE_S),
    }
    for what, (key, unit, most) in bounds.items():
        yield BenchRow(
            what=f"transcripts: {what}",
            home=name,
            ours=f"{figures[key]:.3g} {unit}",
            theirs="",
            better=None,
            target=f"<= {most:g} {unit}",
            reached=figures[key] <= most,
            note=f"{figures['longest cpu s']:.3g} s of processor time" if unit == "s" else "",
        )


def _make_peer_row(
    what: str, tree: BuiltTree, mine: float, theirs: float, limits: dict[str, float]
) -> BenchRow:
    unit = "MB" if what.endswith("MB") else "ms"
    limit = next((most for name, most in limits.items() if what.endswith(name)), None)
    return BenchRow(
        what=f"wire, {what}",
        home=tree.name,
        ours=f"{mine:,.1f} {unit}",
        theirs=f"{theirs:,.1f} {unit}",
        better=theirs / mine,
        target="" if limit is None else f"<= {limit:g} x",
        reached=None if limit is None else mine / theirs <= limit,
    )
