"""The maintenance rows: a home of years is checked, pruned and restored, and compared with deletes.

A bare delete runs through the same triggers on another copy, in as many transactions as the prune,
with the same sync. A home of our own has no triggers, so it is compared with the delete of the
library, which keeps no trash. Copies are made by SQLite.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.state.sqlite.connection import make_file_uri
from tests.bench import peer_jobs, years
from tests.bench.rows import Answer, BenchRow

HEALTH_S, PLAN_S = 2.0, 2.0
MIN_PRUNE_RATIO = 0.8
HELD_P99_MS, HELD_MAX_MS = 50.0, 250.0
MAX_MEMORY_MB = 200.0

_NO_LIMIT_S = 36_000.0


def measure_maintenance(folder: Path, *, quick: bool, driver_name: str) -> Iterator[BenchRow]:
    """Yield the rows of a Hermes home and of one of our own."""
    for kind in ("hermes", "own"):
        built = years.build_home(folder, years.YEARS_SIZES[quick], kind)
        yield from MaintenanceBench(
            folder / "maintained", built, driver_name, quick=quick
        ).measure_rows()


class MaintenanceBench:
    """One home, of which a copy at a time is worked on."""

    def __init__(
        self, place: Path, built: years.BuiltYearsHome, driver_name: str, *, quick: bool
    ) -> None:
        self._place = place
        self._built = built
        self._job: Answer = {
            "db": str(place / "state.db"),
            "driver": driver_name,
            "now": years.NOW,
            "older_than_days": years.OLD_DAYS,
            "restore": True,
            "for_s": _NO_LIMIT_S,
        }
        self._beside_s = 1.0 if quick else 30.0

    def measure_rows(self) -> Iterator[BenchRow]:
        """Yield its rows."""
        built = self._built
        self._copy_home()
        ours = self._run_job("maintain")
        yield self._make_seconds_row(
            f"health of {built.sessions:,} sessions", ours["health_s"], HEALTH_S
        )
        yield self._make_seconds_row(f"plan to prune {built.old:,}", ours["plan_s"], PLAN_S)
        yield self._make_memory_row(ours)
        yield self._make_lock_row("lock held while pruning", ours["held"], judged=True)
        yield self._make_lock_row("lock held while restoring", ours["held_restoring"], judged=False)
        yield from self._measure_concurrent_prune()
        self._copy_home()
        plain = self._run_job(
            "bare" if built.kind == "hermes" else "primitive", steps=ours["steps"]
        )
        yield from self._compare_with_plain_delete(ours, plain)
        shutil.rmtree(self._place)

    def _compare_with_plain_delete(self, ours: Answer, plain: Answer) -> Iterator[BenchRow]:
        built = self._built
        held = plain["held"]
        judged = built.kind == "hermes"
        better = plain["seconds"] / ours["prune_s"]
        yield BenchRow(
            what=f"prune {plain['sessions']:,} sessions",
            home=built.name,
            ours=f"{ours['prune_s']:.1f} s",
            theirs=f"{plain['seconds']:.1f} s",
            better=better,
            target=f">= {MIN_PRUNE_RATIO:g} x" if judged else "",
            reached=better >= MIN_PRUNE_RATIO if judged else None,
            note=(
                f"{built.old_messages:,} messages, {ours['steps']:,} steps, "
                f"trash {ours['trash_mb']:.0f} MB; plain: lock p99 {held['p99']:.0f} ms"
            ),
        )
        yield BenchRow(
            what="restore them",
            home=built.name,
            ours=f"{ours['restore_s']:.1f} s",
            theirs=f"{plain['seconds']:.1f} s",
            better=plain["seconds"] / ours["restore_s"],
            target="",
            reached=None,
            note=f"{ours['rows']:,} rows; beside the plain delete",
        )

    def _measure_concurrent_prune(self) -> Iterator[BenchRow]:
        """Prune again while other processes write, or try to write."""
        stop = self._place / "stop"
        job = {"restore": False, "for_s": self._beside_s, "stop": str(stop)}
        onlooker = self._start_job("look_on", **job)
        hermes = self._built.kind == "hermes"
        # Hermes would bring a home of ours its two indexes first.
        start = peer_jobs.start_hermes if hermes else None
        writer = start(self._place, self._job | job | {"do": "keep_appending"}) if start else None
        try:
            self._run_job("maintain", **job)
        finally:
            stop.touch()
            seen = onlooker()
            said = writer() if writer else None
        yield self._make_lock_row("writing refused, seen from outside", seen["held"], judged=hermes)
        if said is None:
            return
        yield BenchRow(
            what="lost of what Hermes wrote meanwhile",
            home=self._built.name,
            ours=f"{said['lost']} of {said['appended']:,}",
            theirs="",
            better=None,
            target="0",
            reached=said["lost"] == 0,
            note=f"slowest append {said['slowest_ms']:.0f} ms",
        )

    def _make_seconds_row(self, what: str, taken: float, most: float) -> BenchRow:
        reached = taken <= most
        return BenchRow(
            what, self._built.name, f"{taken:.2f} s", "", None, f"<= {most:g} s", reached
        )

    def _make_memory_row(self, ours: Answer) -> BenchRow:
        peak = ours["peak_mb"]
        return BenchRow(
            what="memory of the process, at most",
            home=self._built.name,
            ours=f"{peak:.0f} MB",
            theirs="",
            better=None,
            target=f"<= {MAX_MEMORY_MB:g} MB",
            reached=peak <= MAX_MEMORY_MB,
            note=f"{ours['planned_mb']:.0f} MB after the plan",
        )

    def _make_lock_row(self, what: str, held: Answer, *, judged: bool) -> BenchRow:
        reached = held["p99"] <= HELD_P99_MS and held["max"] <= HELD_MAX_MS
        return BenchRow(
            what=what,
            home=self._built.name,
            ours=f"{held['p99']:.0f} ms",
            theirs="",
            better=None,
            target=f"<= {HELD_P99_MS:g} ms" if judged else "",
            reached=reached if judged else None,
            note=f"p50 {held['p50']:.0f}, longest {held['max']:.0f}, {held['count']:,} times",
        )

    def _run_job(self, what: str, **more: Any) -> Answer:
        return self._start_job(what, **more)()

    def _start_job(self, what: str, **more: Any) -> peer_jobs.AnswerWaiter:
        return peer_jobs.start_maintenance(self._place, self._job | more | {"do": what})

    def _copy_home(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        source = _sqlite3.connect(make_file_uri(Path(self._built.db), "mode=ro"), busy_timeout_s=1)
        target = _sqlite3.connect(
            make_file_uri(self._place / "state.db", "mode=rwc"), busy_timeout_s=1
        )
        target.execute("PRAGMA synchronous=OFF")
        source.backup(target)
        source.close()
        target.execute("PRAGMA journal_mode=WAL").fetchall()
        target.close()
