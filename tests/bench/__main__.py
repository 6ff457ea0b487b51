"""`python -m tests.bench`: a table that compares the library with other programs on the same homes.

It needs a package index once, for the environments of the other programs, and disk space for the
homes. A slow result does not fail: the table marks the targets that were reached and missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from session_core import _sqlite3
from session_core.errors import Unsupported
from tests.bench import (
    build,
    formats,
    long_life_rows,
    loop_lag,
    maintenance_rows,
    peer_jobs,
    retention,
    rows,
    shapes,
    transcript_rows,
    wire,
    working_sessions,
)
from tests.bench.text import TextWriter

ROW_NAMES = (
    *("list", "cold", "read", "search", "tokens", "questions"),
    *(
        "append",
        "size",
        "routes",
        "loop",
        "retention",
        "long_life",
        "maintenance",
        "wire",
        "transcripts",
    ),
)
ROUTE_COUNTS = {
    False: {
        "ours": dict.fromkeys((100, 1000, 10_000, 100_000), 1000),
        # It writes all entries at each update, so it is asked for less.
        "hermes": {100: 100, 1000: 100, 5000: 20},
    },
    True: {"ours": dict.fromkeys((100, 1000), 50), "hermes": dict.fromkeys((100, 1000), 5)},
}
"""How many updates among how many routes."""
_READ_ROWS = ("list", "read", "search", "tokens", "questions")
_HOMELESS_ROWS = {
    *("append", "routes", "loop", "retention", "long_life", "maintenance", "wire", "transcripts"),
}
"""Rows that make homes of their own, or build them when they begin."""
_NEEDED_BYTES = {False: 5_000_000_000, True: 300_000_000}
_MAINTENANCE_BYTES = {False: 24_000_000_000, True: 200_000_000}
"""A home of each kind, and a copy of the larger one with its log and its trash."""

_WRITER_COUNT = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the homes, run the rows, print the table."""
    options = _parse_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = options.home or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        need, free = _estimate_needed_bytes(options), shutil.disk_usage(folder).free
        print(f"needs {need / 1e9:.1f} GB in {folder}, where {free / 1e9:.1f} GB are free")
        if free < need:
            print("too little room; free some, or name another folder with --home")
            return 1
        bench = BenchRun(
            folder, quick=options.quick, names=options.rows, driver_name=_choose_driver()
        )
        bench.run()
    return 0


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--rows", type=_parse_row_names, default=ROW_NAMES, help=f"some of {','.join(ROW_NAMES)}"
    )
    parser.add_argument("--home", type=Path, help="a folder in which the homes are kept")
    parser.add_argument("--quick", action="store_true", help="small homes, few runs")
    return parser.parse_args(arguments)


def _estimate_needed_bytes(options: argparse.Namespace) -> int:
    """Return the bytes that the rows take which are asked for."""
    others = _NEEDED_BYTES[options.quick] if set(options.rows) - {"maintenance", "long_life"} else 0
    return others + (_MAINTENANCE_BYTES[options.quick] if "maintenance" in options.rows else 0)


def _parse_row_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in ROW_NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no row {unknown[0]}; there are {', '.join(ROW_NAMES)}")
    return names


def _choose_driver() -> _sqlite3.SqliteChoice:
    try:
        return _sqlite3.choose_sqlite("bundled").name
    except Unsupported:
        return _sqlite3.choose_sqlite("standard").name


class BenchRun:
    """One run: its homes, the programs that run on them, and the table."""

    def __init__(
        self, folder: Path, *, quick: bool, names: Sequence[str], driver_name: _sqlite3.SqliteChoice
    ) -> None:
        self.folder = folder
        self.quick = quick
        self.names = names
        self.driver = driver_name
        self._began = time.perf_counter()

    def run(self) -> None:
        """Print the table, a row as soon as it is measured."""
        chosen = _sqlite3.describe_sqlite()
        print(
            f"{os.cpu_count()} cores (load {_format_load()}), Python {platform.python_version()}, "
            f"ours on {chosen.name} SQLite {chosen.version}, {date.today().isoformat()}, "  # noqa: DTZ011
            f"peers {peer_jobs.HERMES[1]}, {peer_jobs.OPENAI[1]}"
        )
        print(_format_line("what", "home", "ours", "peer", "better", "target", "reached", ""))
        missed = 0
        for row in self._measure_rows():
            print(_format_row(row), flush=True)
            missed += row.reached is False
        if self.quick:
            print("homes this small and runs this short say that it works, not how fast it is")
        print(f"{missed} targets missed; took {time.perf_counter() - self._began:.0f} s")

    def _measure_rows(self) -> Iterator[rows.BenchRow]:
        if set(self.names) - _HOMELESS_ROWS:
            for shape in shapes.HOME_SHAPES[self.quick]:
                yield from self._measure_shape(shape)
        if "append" in self.names:
            yield from self._measure_appends()
        if "routes" in self.names:
            yield from self._measure_routes()
        if "loop" in self.names:
            yield loop_lag.measure_loop_lag(self.folder, quick=self.quick)
        if "retention" in self.names:
            yield from self._measure_retention()
        if "long_life" in self.names:
            ratios = long_life_rows.RATIOS[: 1 if self.quick else None]
            yield from long_life_rows.measure_long_lives(ratios)
        yield from self._measure_large_homes()

    def _measure_large_homes(self) -> Iterator[rows.BenchRow]:
        if "maintenance" in self.names:
            yield from maintenance_rows.measure_maintenance(
                self.folder, quick=self.quick, driver_name=self.driver
            )
        if "wire" in self.names:
            yield from self._measure_wire()
        if "transcripts" in self.names:
            yield from transcript_rows.measure_transcripts(
                self.folder, quick=self.quick, driver=self.driver
            )

    def _measure_wire(self) -> Iterator[rows.BenchRow]:
        for shape in shapes.HOME_SHAPES[self.quick]:
            for kind in ("hermes", "own"):
                yield from wire.measure_wire_rows(
                    self.folder, self._build_home(shape, kind), quick=self.quick
                )

    def _measure_shape(self, shape: shapes.HomeShape) -> Iterator[rows.BenchRow]:
        hermes, own = (self._build_home(shape, kind) for kind in ("hermes", "own"))
        reading = [name for name in _READ_ROWS if name in self.names]
        theirs = self._run_read(hermes, "hermes", reading) if reading else {}
        for built in (hermes, own):
            if "cold" in self.names:
                yield self._measure_cold_start(built, hermes)
            if reading:
                yield from rows.make_read_rows(
                    built, self._run_read(built, "ours", reading), theirs
                )
        if "size" in self.names:
            yield rows.make_size_row(own, hermes)

    def _build_home(self, shape: shapes.HomeShape, kind: str) -> build.BuiltHome:
        built = build.build_home(self.folder, shape, kind, time.perf_counter)
        print(
            f"-- {built.name}: {built.sessions:,} sessions, {built.messages:,} messages, "
            f"{built.content_bytes / 1e6:,.0f} MB of content",
            file=sys.stderr,
            flush=True,
        )
        return built

    def _run_read(self, built: build.BuiltHome, who: str, names: list[str]) -> rows.Answer:
        return self._run_job(built, who, {"do": "read", "rows": names})

    def _measure_cold_start(self, built: build.BuiltHome, hermes: build.BuiltHome) -> rows.BenchRow:
        times = 2 if self.quick else 7
        ours = [self._run_job(built, "ours", {"do": "cold"}) for _ in range(times)]
        theirs = [self._run_job(hermes, "hermes", {"do": "cold"}) for _ in range(times)]
        return rows.make_cold_row(built, ours, theirs)

    def _run_job(self, built: build.BuiltHome, who: str, what: rows.Answer) -> rows.Answer:
        job = {
            "db": built.db,
            "driver": self.driver,
            "home": vars(built),
            "seconds": 0.05 if self.quick else 1.5,
        }
        run = peer_jobs.run_hermes if who == "hermes" else peer_jobs.run_ours
        return run(Path(built.db).parent, job | what)

    def _measure_appends(self) -> Iterator[rows.BenchRow]:
        writer = TextWriter(shapes.SEED)
        texts = self.folder / "texts.json"
        count = 200 if self.quick else 4000
        texts.write_text(json.dumps([writer.write_message("assistant") for _ in range(count)]))
        answers: dict[str, list[rows.Answer]] = {}
        for number in range(1 if self.quick else 5):
            order = list(dict.fromkeys((self.driver, "SQLiteSession", "standard", "hermes")))
            for who in order[number % 2 :] + order[: number % 2]:
                answers.setdefault(who, []).append(self._run_append(who, number, texts))
        yield from rows.make_append_rows(answers)

    def _run_append(self, who: str, number: int, texts: Path) -> rows.Answer:
        home = self.folder / f"append-{who}-{number}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        job = {
            "do": "append",
            "db": str(home / "state.db"),
            "driver": who,
            "texts": str(texts),
            "writers": _WRITER_COUNT,
        }
        run = {"SQLiteSession": peer_jobs.run_openai, "hermes": peer_jobs.run_hermes}
        answer = run.get(who, peer_jobs.run_ours)(home, job)
        shutil.rmtree(home, ignore_errors=True)
        return answer

    def _measure_routes(self) -> Iterator[rows.BenchRow]:
        answers = {
            (who, count): self._run_route(who, count, updates)
            for who, asked in ROUTE_COUNTS[self.quick].items()
            for count, updates in asked.items()
        }
        yield from rows.make_route_rows(answers)

    def _run_route(self, who: str, count: int, updates: int) -> rows.Answer:
        """Return the run in the middle of three, since each waits for its mirror but once."""
        home = self.folder / f"routes-{who}-{count}"
        job = {"do": "routes", "db": str(home / "state.db"), "driver": self.driver}
        run = peer_jobs.run_hermes if who == "hermes" else peer_jobs.run_ours
        answers = []
        for _ in range(1 if self.quick else 3):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            answers.append(run(home, job | {"count": count, "updates": updates}))
        shutil.rmtree(home, ignore_errors=True)
        return sorted(answers, key=lambda answer: float(answer["ms"]))[len(answers) // 2]

    def _measure_retention(self) -> Iterator[rows.BenchRow]:
        home = self.folder / "retention"
        home.mkdir(exist_ok=True)
        count = 2 if self.quick else 20
        for fixture in formats.FIXTURE_NAMES:
            chosen = list(working_sessions.make_sessions(count, fixture))
            job = {"do": "fallback", "conversations": [session.zone for session in chosen]}
            yield from retention.measure_retention(fixture, chosen, peer_jobs.run_hermes(home, job))
        chosen = list(working_sessions.make_sessions(count, "held out"))
        yield retention.measure_plan(home, chosen, 2000 if self.quick else 100_000)
        shutil.rmtree(home, ignore_errors=True)


def _format_load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def _format_row(row: rows.BenchRow) -> str:
    better = "" if row.better is None else f"{row.better:,.{1 if row.better >= 1 else 2}f} x"
    reached = {True: "yes", False: "NO", None: ""}[row.reached]
    return _format_line(
        row.what, row.home, row.ours, row.theirs, better, row.target, reached, row.note
    )


def _format_line(*cells: str) -> str:
    widths = (36, 13, -11, -11, -9, -9, -7, 0)
    padded = (
        cell.ljust(width) if width >= 0 else cell.rjust(-width)
        for cell, width in zip(cells, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


if __name__ == "__main__":
    sys.exit(main())
