"""Runs a job on the transcripts of a home folder: index them, or query the index.

Times are in milliseconds: `wall` is the wait of a caller, `cpu` the processor time.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.transcripts import TranscriptStore

_SLICE_S = 2.0
_WARM_TIMES = 15

Figures = dict[str, Any]


def measure(call: Callable[[], object], times: int = _WARM_TIMES) -> Figures:
    """Return the median times of a call, after a first one."""
    call()
    spans = [measure_once(call) for _ in range(times)]
    return {name: statistics.median(span[name] for span in spans) for name in ("wall", "cpu")}


def measure_once(call: Callable[[], object]) -> Figures:
    """Return the times of one call."""
    began, processor = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - began, time.process_time() - processor
    return {"wall": wall * 1000, "cpu": cpu * 1000}


def index_tree(job: Figures) -> Figures:
    """List before there is an index, then build it whole."""
    state, figures = Path(job["state"]), {}
    opened: list[TranscriptStore] = []

    def open_and_list() -> None:
        opened.append(TranscriptStore(state, environ={"HOME": job["home"]}))
        opened[0].list_sessions(limit=20)

    figures["first list"] = measure_once(open_and_list)
    figures["whole index"] = measure_once(lambda: _index_all(opened[0]))
    opened[0].close()
    figures["bytes"] = sum(path.stat().st_size for path in state.glob("index*"))
    figures["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def _index_all(store: TranscriptStore) -> None:
    while store.index_pending(_SLICE_S):
        continue


def measure_slices(job: Figures) -> Figures:
    """Index in the smallest slices and return the longest, which other calls wait for."""
    slices = []
    with TranscriptStore(Path(job["state"]), environ={"HOME": job["home"]}) as store:
        is_left = True
        while is_left:
            began, processor = time.perf_counter(), time.process_time()
            is_left = store.index_pending(0)
            slices.append((time.perf_counter() - began, time.process_time() - processor))
    return {
        "longest s": max(wall for wall, _ in slices),
        "longest cpu s": max(cpu for _, cpu in slices),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def ask_index(job: Figures) -> Figures:
    """Time the calls of a reader over a finished index."""
    environ = {"HOME": job["home"]}
    with TranscriptStore(Path(job["state"]), environ=environ) as store:
        _index_all(store)
        figures = {"nothing new, sweep": measure(lambda: store.get_session("unknown"))}
        # A server watches; a command sweeps once and ends.
        store.start_watch()
        figures["nothing new, watch"] = measure(lambda: store.get_session("unknown"))
        figures["list"] = measure(lambda: store.list_sessions(limit=20))
        session = store.list_sessions(limit=5).items[-1].id
        figures["page of 50"] = measure(lambda: store.read_window(session, limit=50))
        for name, query in job["queries"].items():
            figures[name] = measure(lambda query=query: store.search(query, limit=10))
        _drop_cache(Path(job["home"]) / ".claude")
        common = job["queries"]["common word"]
        figures["common word, sources cold"] = measure_once(lambda: store.search(common, limit=10))
    return figures


def _drop_cache(folder: Path) -> None:
    """Ask the system to forget the pages of all files below a folder."""
    for path in folder.rglob("*.jsonl"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


_JOBS = {"index": index_tree, "slices": measure_slices, "ask": ask_index}


def main(asked: str, answered: str) -> None:
    """Read the job, run it, write its figures."""
    job = json.loads(Path(asked).read_text(encoding="utf-8"))
    _sqlite3.choose_sqlite(job["driver"])
    Path(answered).write_text(json.dumps(_JOBS[job["do"]](job)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
