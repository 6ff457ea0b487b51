"""The share of facts that summaries keep over a long life, each compressed with the last summary.

The room is a share of the compressed text, the last summary included. The library and the baselines
get the same messages and the same room, each with its own earlier summary. `alone` is a summary of
the newest part without an earlier summary, in the same room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from session_core.compression import retention, summary_message
from session_core.compression.extractive import statements, summarize
from tests.bench.long_life import facts
from tests.bench.long_life.baselines import BASELINES
from tests.bench.long_life.facts import LongLife, PlantedFact
from tests.bench.long_life.lives import list_long_lives
from tests.bench.rows import BenchRow

RATIOS = (0.2, 0.1, 0.05, 0.025)
GENERATIONS = (1, 2, 3, 6)
MIN_NEW_SHARE = 0.9
"""How much of what new facts keep alone they keep next to an earlier summary."""
MAX_REPORT_ERROR = 0.05
_SPACING = 3
"""Ids between two parts: those of the summary and its note."""

Message = dict[str, Any]
Summarizer = Callable[[Sequence[Message], int], str]


@dataclass
class Count:
    """How many there are, and how many of them are kept."""

    total: int = 0
    kept: int = 0

    def add(self, kept: bool) -> None:
        """Count one more."""
        self.total += 1
        self.kept += kept

    @property
    def share(self) -> float:
        """Return the share that is kept."""
        return self.kept / self.total if self.total else 1.0


@dataclass
class GenerationCounts:
    """The facts that the summaries of one generation keep, in all lives."""

    valid: Count = field(default_factory=Count)
    new: Count = field(default_factory=Count)
    alone: Count = field(default_factory=Count)
    open_tasks: Count = field(default_factory=Count)
    outdated: Count = field(default_factory=Count)
    report: Count = field(default_factory=Count)
    must_survive: Count = field(default_factory=Count)
    baselines: dict[str, Count] = field(default_factory=dict)


def measure_long_lives(
    ratios: Sequence[float] = RATIOS, lives: Sequence[LongLife] | None = None
) -> Iterator[BenchRow]:
    """Yield the rows of each share of room, generation by generation."""
    for ratio in ratios:
        counts = {number: GenerationCounts() for number in GENERATIONS}
        for life in lives or list_long_lives():
            _measure_life(life, ratio, counts)
        for number, count in counts.items():
            if count.valid.total:
                yield from _make_rows(ratio, number, count)


def _measure_life(life: LongLife, ratio: float, counts: dict[int, GenerationCounts]) -> None:
    before: dict[str, str] = {}
    for number, messages in enumerate(number_messages(life), 1):
        zone = _prepend(before.get("ours"), messages)
        room = _measure_room(zone, ratio)
        found = statements.read_statements(zone)
        chosen = summarize.choose_items(found, room)
        before["ours"] = summarize.write_summary(found, chosen, room)
        for name, baseline in BASELINES.items():
            theirs = _prepend(before.get(name), messages)
            before[name] = baseline(theirs, _measure_room(theirs, ratio))
        if number not in counts:
            continue
        count = counts[number]
        report = retention.measure_retention(zone, before["ours"])
        count.report.total += report.found
        count.report.kept += report.kept
        alone = summarize.summarize(messages, room)
        _count_facts(life, number, before, alone, count)
        essential = "\n".join(summarize.list_essential_texts(chosen))
        for fact in _list_current_facts(life, number):
            count.must_survive.add(facts.is_kept(fact, essential))


def number_messages(life: LongLife) -> Iterator[list[Message]]:
    """Yield the parts of a life, each message with an id."""
    first = 1
    for part in life.parts:
        yield [message | {"id": first + at} for at, message in enumerate(part.messages)]
        first += len(part.messages) + _SPACING


def _prepend(summary: str | None, messages: Sequence[Message]) -> list[Message]:
    if summary is None:
        return list(messages)
    (first,) = summary_message.build_messages(summary, None, "assistant")
    return [first | {"id": messages[0]["id"] - 1}, *messages]


def _measure_room(messages: Sequence[Message], ratio: float) -> int:
    return int(ratio * sum(len(facts.get_message_text(message)) for message in messages))


def _list_current_facts(life: LongLife, number: int) -> list[PlantedFact]:
    """Return the facts that hold at the end of a part, without tasks that are done."""
    return [
        fact
        for fact in facts.list_valid_facts(life, number)
        if not fact.task_states or fact.task_states[number - 1] == "open"
    ]


def _count_facts(
    life: LongLife, number: int, written: dict[str, str], alone: str, count: GenerationCounts
) -> None:
    summary = written["ours"]
    for fact in _list_current_facts(life, number):
        kept = facts.is_kept(fact, summary)
        count.valid.add(kept)
        if fact.part_number == number:
            count.new.add(kept)
            count.alone.add(facts.is_kept(fact, alone))
        for name in BASELINES:
            baseline = count.baselines.setdefault(name, Count())
            baseline.add(facts.is_kept(fact, written[name]))
    for fact in facts.list_open_tasks(life, number):
        count.open_tasks.add(facts.is_kept(fact, summary))
    for part in life.parts[:number]:
        for fact in part.facts:
            if fact.stale_needles:
                count.outdated.add(facts.is_stale(fact, summary))


def _make_rows(ratio: float, number: int, count: GenerationCounts) -> Iterator[BenchRow]:
    place = f"{ratio:.1%}, gen. {number}"
    best, peer = max(count.baselines.items(), key=lambda item: item[1].kept)
    others = ", ".join(f"{name} {other.share:.1%}" for name, other in count.baselines.items())
    yield _make_row(
        f"of {count.valid.total} facts that hold",
        place,
        count.valid,
        f"> {best}",
        reached=count.valid.share > peer.share,
        note=others,
        peer=peer,
    )
    yield _make_row(
        f"  of {count.new.total} new ones",
        place,
        count.new,
        f">= {MIN_NEW_SHARE:.0%} of alone",
        reached=count.new.share >= MIN_NEW_SHARE * count.alone.share,
        note=f"alone {count.alone.share:.1%}",
    )
    tasks, outdated = count.open_tasks, count.outdated
    yield _make_row(
        f"  of {tasks.total} open tasks", place, tasks, "100 %", reached=tasks.share == 1
    )
    yield _make_row(
        f"  of {outdated.total} outdated, as current",
        place,
        outdated,
        "0 %",
        reached=not outdated.kept,
        note=f"{outdated.kept} of them",
    )
    for name, report in (("reported", count.report), ("must survive", count.must_survive)):
        error = abs(report.share - count.valid.share)
        target = f"± {MAX_REPORT_ERROR:.0%}"
        yield _make_row(f"  {name}", place, report, target, reached=error <= MAX_REPORT_ERROR)


def _make_row(
    what: str,
    place: str,
    ours: Count,
    target: str,
    *,
    reached: bool,
    note: str = "",
    peer: Count | None = None,
) -> BenchRow:
    return BenchRow(
        what=what,
        home=place,
        ours=f"{ours.share:.1%}",
        theirs=f"{peer.share:.1%}" if peer else "",
        better=ours.share / peer.share if peer and peer.share else None,
        target=target,
        reached=reached,
        note=note,
    )
