"""The rows of the table: the measured value, the compared program, and the target."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.build import BuiltHome

Answer = dict[str, Any]

LIST_MS, COLD_MS = 2.0, 30.0
READ_MS, READ_LONG_MS = 1.0, 10.0
RARE_MS, HALF_MS = 1.5, 10.0
MIN_HIT_SHARE = 0.9
ALONE, TOGETHER = 1.3, 2.0
MAX_SIZE_RATIO = 3.0
MAX_ROUTE_RATIO = 3.0


@dataclass(frozen=True)
class BenchRow:
    """One line of the table. `better` is the ratio to the other program."""

    what: str
    home: str
    ours: str
    theirs: str
    better: float | None
    target: str
    reached: bool | None
    note: str = ""


def make_read_rows(built: BuiltHome, ours: Answer, theirs: Answer) -> Iterator[BenchRow]:
    """Yield the rows of everything that was read from one home."""
    for name in ours:
        if name == "about":
            continue
        if name in ("tokens", "cjk", "questions"):
            yield _make_found_row(name, built, ours[name], theirs[name])
        yield _make_time_row(name, built, ours[name], theirs[name])


def _make_time_row(name: str, built: BuiltHome, ours: Answer, theirs: Answer) -> BenchRow:
    limit = _find_limit_ms(name)
    # A peer that found nothing was quick at that; there is nothing to compare.
    found = len(theirs.get("missed", ())) < theirs.get("of", 1)
    return BenchRow(
        what=_format_title(name, ours),
        home=built.name,
        ours=_format_ms(ours["ms"]),
        theirs=_format_ms(theirs["ms"]) if found else "",
        better=theirs["ms"] / ours["ms"] if found else None,
        target="" if limit is None else f"<= {limit:g} ms",
        reached=None if limit is None else ours["ms"] <= limit,
        note=_format_time_note(ours, theirs),
    )


def _format_time_note(ours: Answer, theirs: Answer) -> str:
    if "hits" in ours:
        return f"p95 {_format_ms(ours['p95'])}; hits {ours['hits']}, peer {theirs['hits']}"
    same = "" if "ids" not in ours else _format_agreement(ours["ids"], theirs["ids"])
    return f"p95 {_format_ms(ours['p95'])}{same}"


def _format_agreement(ours: list[Any], theirs: list[Any]) -> str:
    return f"; {len(set(ours) & set(theirs))} of {len(ours)} the same as the peer's"


def _find_limit_ms(name: str) -> float | None:
    if name.startswith("read"):
        return READ_MS if int(name.rsplit(maxsplit=1)[-1]) <= 1000 else READ_LONG_MS
    return {"list": LIST_MS, "search rare": RARE_MS, "search half": HALF_MS}.get(name)


def _format_title(name: str, ours: Answer) -> str:
    if name.startswith("read"):
        _, which, count = name.split()
        page = {"first": "page 1", "newest": "newest page"}.get(which, f"page {ours['page']}")
        return f"read {page} of {int(count):,} messages"
    return {
        "list": "list newest 20, warm",
        "search rare": "search a rare word",
        "search half": "search a word in half of all",
        "tokens": "search an exact token, time",
        "cjk": "search two CJK characters, time",
        "questions": "ask a plain question, time",
    }[name]


def _make_found_row(name: str, built: BuiltHome, ours: Answer, theirs: Answer) -> BenchRow:
    what, share = {
        "tokens": ("planted exact tokens found", 1.0),
        "cjk": ("planted CJK pairs found", 1.0),
        "questions": ("plain questions, hit@5", MIN_HIT_SHARE),
    }[name]
    mine, peers = (len(answer["missed"]) for answer in (ours, theirs))
    found, of = ours["of"] - mine, ours["of"]
    first = f"; {ours['first']} of them first" if "first" in ours else ""
    if "missed_any" in theirs:
        any_word = theirs["of"] - len(theirs["missed_any"])
        first += f"; plain bm25 over any of the words, asked of the peer: {any_word}/{theirs['of']}"
    missed = "; missed: " + " | ".join(ours["missed"][:4]) if mine else ""
    return BenchRow(
        what=what,
        home=built.name,
        ours=f"{found}/{of}",
        theirs=f"{of - peers}/{of}",
        better=None,
        target=f">= {share:.0%}",
        reached=found >= share * of,
        note=f"{first}{missed}"[2:],
    )


def make_cold_row(built: BuiltHome, ours: list[Answer], theirs: list[Answer]) -> BenchRow:
    """Return the row of the first list in a new process, with the import in the note."""
    mine, peers = _compute_cold_ms(ours), _compute_cold_ms(theirs)
    parts = [
        f"{name} {_format_ms(statistics.median(answer[name] for answer in ours))}"
        f" (peer {_format_ms(statistics.median(answer[name] for answer in theirs))})"
        for name in ("import", "open", "call")
    ]
    return BenchRow(
        what="list newest 20, cold: open + call",
        home=built.name,
        ours=_format_ms(mine),
        theirs=_format_ms(peers),
        better=peers / mine,
        target=f"<= {COLD_MS:g} ms",
        reached=mine <= COLD_MS,
        note=", ".join(parts),
    )


def _compute_cold_ms(answers: list[Answer]) -> float:
    return statistics.median(answer["open"] + answer["call"] for answer in answers)


def make_append_rows(answers: dict[str, list[Answer]]) -> Iterator[BenchRow]:
    """Yield the appends with each of our drivers compared with each peer: medians of the rounds."""
    for driver in ("bundled", "standard"):
        if driver not in answers:
            continue
        for peer in ("SQLiteSession", "hermes"):
            for name, least in (("alone", ALONE), ("together", TOGETHER)):
                yield _make_append_row(driver, peer, name, least, answers)


def _make_append_row(
    driver: str, peer: str, name: str, least: float, answers: dict[str, list[Answer]]
) -> BenchRow:
    mine, peers = (statistics.median(a[name] for a in answers[who]) for who in (driver, peer))
    pairs = zip(answers[driver], answers[peer], strict=True)
    better = statistics.median(one[name] / other[name] for one, other in pairs)
    judged = peer == "SQLiteSession"
    single = "single" if name == "alone" else "8 writers"
    return BenchRow(
        what=f"append, {single} ({driver})",
        home="own",
        ours=f"{mine:,.0f}/s",
        theirs=f"{peers:,.0f}/s",
        better=better,
        target=f">= {least:g} x" if judged else "",
        reached=better >= least if judged else None,
        note=f"{answers[driver][0]['about']} beside {peer}, {answers[peer][0]['about']}",
    )


def make_size_row(own: BuiltHome, hermes: BuiltHome) -> BenchRow:
    """Return the row of database bytes by bytes of content."""
    mine, peers = (_measure_size(built) / built.content_bytes for built in (own, hermes))
    return BenchRow(
        what="database size by content",
        home=own.name,
        ours=f"{mine:.2f}",
        theirs=f"{peers:.2f}",
        better=peers / mine,
        target=f"<= {MAX_SIZE_RATIO:g}",
        reached=mine <= MAX_SIZE_RATIO,
        note=f"{_measure_size(own) / 1e6:,.0f} MB for {own.content_bytes / 1e6:,.0f} MB of "
        f"content in {own.messages:,} messages; stored in {own.built_s:.0f} s",
    )


def _measure_size(built: BuiltHome) -> int:
    return sum(path.stat().st_size for path in Path(built.db).parent.glob("state.db*"))


def make_route_rows(answers: dict[tuple[str, int], Answer]) -> Iterator[BenchRow]:
    """Yield a changed route among few and many, then how much slower it is among the most."""
    ours, theirs = (
        {count: answer for (name, count), answer in answers.items() if name == who}
        for who in ("ours", "hermes")
    )
    for count, mine in ours.items():
        peer = theirs.get(count)
        yield BenchRow(
            what=f"change a route of {count:,}, both copies",
            home="own",
            ours=_format_ms(mine["ms"]),
            theirs="" if peer is None else _format_ms(peer["ms"]),
            better=None if peer is None else peer["ms"] / mine["ms"],
            target="",
            reached=None,
            note=f"median {_format_ms(mine['median'])}, slowest {_format_ms(mine['slowest'])}",
        )
    mine, peers = (
        {count: answer["ms"] for count, answer in some.items()} for some in (ours, theirs)
    )
    few, many, most = min(mine), max(mine), max(peers)
    grown = mine[many] / mine[few]
    yield BenchRow(
        what=f"change a route, {many:,} by {few:,}",
        home="own",
        ours=f"{grown:.2f}",
        theirs=f"{peers[most] / peers[min(peers)]:.2f}",
        better=None,
        target=f"<= {MAX_ROUTE_RATIO:g}",
        reached=grown <= MAX_ROUTE_RATIO,
        note=f"the peer's is {most:,} by {min(peers):,}",
    )


def _format_ms(value: float) -> str:
    return f"{value:.3f} ms" if value < 1 else f"{value:.{2 if value < 100 else 0}f} ms"
