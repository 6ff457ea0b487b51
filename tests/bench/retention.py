"""The share of planted facts that a summary of a working session keeps verbatim.

The library gets a fifth of the room of the compressed messages. Plain truncation gets the same
room: the beginning, the end, or half of each, and the best result counts. The deterministic
fallback of Hermes gets the same messages and any room. A fact is kept if its text occurs in the
summary, character by character. The formats in `retention_formats.txt` were written before the
summariser; the held-out sessions have other seeds and other words in the same formats. The formats
in `retention_formats_2.txt` were written later, independently of the summariser and of the first
file.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_core import Compressor, Ledger, SessionDB, StateFolder
from session_core.compression import ranges
from session_core.compression.extractive import summarize
from tests.bench.rows import Answer, BenchRow
from tests.bench.talk import TalkMessage, count_characters, list_texts
from tests.bench.working_sessions import FACT_KINDS, HEAD, SUMMARY_RATIO, TAIL, WorkingSession

MIN_KEPT_SHARE = 0.95
MAX_PLAN_S = 2.0
_BATCH_ROWS = 1000
COMPRESSION_LIMITS = ranges.CompressionLimits(protect_first=HEAD - 1, keep_last=TAIL)
"""Those of the sessions; the system prompt is kept in any case."""


@dataclass(frozen=True)
class RetentionResult:
    """The result of a way to summarise: facts by kind, share of characters, and time."""

    kinds: Counter[str]
    ratio: float
    ms: float

    def compute_share(self, of: Counter[str], kind: str | None = None) -> float:
        """Return the share of all facts, or of one kind."""
        if kind is None:
            return self.kinds.total() / of.total()
        return self.kinds[kind] / of[kind]


def measure_retention(
    name: str, chosen: Sequence[WorkingSession], theirs: Answer
) -> Iterator[BenchRow]:
    """Yield the share of kept facts of these sessions, in total, by kind, with ratio and time."""
    there = Counter(fact.kind for session in chosen for fact in session.facts)
    ours = _summarize_sessions(chosen)
    hermes = _measure_kept(chosen, theirs["summaries"], theirs["ms"])
    cut_by, cut = max(_measure_random_cuts(chosen).items(), key=lambda item: item[1].kinds.total())
    yield BenchRow(
        what=f"facts kept of {there.total():,}",
        home=name,
        ours=_format_percent(ours.compute_share(there)),
        theirs=_format_percent(hermes.compute_share(there)),
        better=None,
        target=f">= {MIN_KEPT_SHARE:.0%}",
        reached=ours.compute_share(there) >= MIN_KEPT_SHARE,
        note=f"plain truncation {_format_percent(cut.compute_share(there))} (keeps {cut_by}); "
        f"{len(chosen)} sessions",
    )
    for kind in FACT_KINDS:
        yield _make_kind_row(name, kind, there, (ours, hermes, cut))
    yield _make_ratio_row(name, ours, hermes)
    yield BenchRow(
        what="summarise a session",
        home=name,
        ours=f"{ours.ms:,.1f} ms",
        theirs=f"{hermes.ms:,.1f} ms",
        better=hermes.ms / ours.ms,
        target="",
        reached=None,
        note=f"of {statistics.median(map(_count_zone, chosen)):,.0f} characters",
    )


def _count_zone(session: Any) -> int:
    return count_characters(session.zone)


def measure_plan(home: Path, chosen: Sequence[WorkingSession], count: int) -> BenchRow:
    """Return the row of planning one conversation of so many messages: read, chosen, recorded."""
    messages = repeat_sessions(chosen, count)
    folder = StateFolder(home / "state.db", root=home.with_name(f"{home.name}-state"))
    with SessionDB(home / "state.db") as db, Ledger(folder) as ledger:
        for start in range(0, len(messages), _BATCH_ROWS):
            page = messages[start : start + _BATCH_ROWS]
            db.append_messages("long", page, create={"source": "cli"})
        began = time.perf_counter()
        brief = Compressor(db, ledger).plan("long").brief
        taken = time.perf_counter() - began
    return BenchRow(
        what=f"plan {count:,} messages",
        home="own",
        ours=f"{taken:.2f} s",
        theirs="",
        better=None,
        target=f"< {MAX_PLAN_S:g} s",
        reached=taken < MAX_PLAN_S,
        note=f"{brief.messages:,} of them to compress, {brief.tokens:,} tokens",
    )


def repeat_sessions(chosen: Sequence[WorkingSession], count: int) -> list[TalkMessage]:
    """Return the sessions one after the other, again and again, each call with an id of its own."""
    messages = chosen[0].messages[:1]
    for round_ in range(count):
        for session in chosen:
            messages += (_rename_calls(message, round_) for message in session.messages[1:])
            if len(messages) >= count:
                return messages[:count]
    return messages


def _rename_calls(message: TalkMessage, round_: int) -> TalkMessage:
    changed: dict[str, Any] = {}
    if "tool_call_id" in message:
        changed["tool_call_id"] = f"{message['tool_call_id']}_{round_}"
    if "tool_calls" in message:
        calls = message["tool_calls"]
        changed["tool_calls"] = [call | {"id": f"{call['id']}_{round_}"} for call in calls]
    return message | changed


def _summarize_sessions(chosen: Sequence[WorkingSession]) -> RetentionResult:
    summaries, taken = [], []
    for session in chosen:
        found = ranges.choose_range(session.messages, COMPRESSION_LIMITS)
        if _make_span(found) != (session.start, session.end):
            raise RuntimeError(f"session {session.number} is not compressed where its facts lie")
        began = time.perf_counter()
        summaries.append(summarize.summarize(session.zone, session.budget))
        taken.append((time.perf_counter() - began) * 1000)
    return _measure_kept(chosen, summaries, statistics.median(taken))


def _make_span(found: ranges.MessageRange | ranges.Refusal) -> tuple[int, int] | None:
    return (found.start, found.end) if isinstance(found, ranges.MessageRange) else None


def _measure_random_cuts(chosen: Sequence[WorkingSession]) -> dict[str, RetentionResult]:
    found: dict[str, list[str]] = {"the beginning": [], "the end": [], "both ends": []}
    for session in chosen:
        text, room = render_transcript(session.zone), session.budget
        found["the beginning"].append(text[:room])
        found["the end"].append(text[-room:])
        found["both ends"].append(text[: room // 2] + text[-(room - room // 2) :])
    return {name: _measure_kept(chosen, summaries, 0.0) for name, summaries in found.items()}


def render_transcript(messages: Sequence[TalkMessage]) -> str:
    """Return all texts, calls and answers as one text."""
    return "\n".join(text for message in messages for text in list_texts(message))


def _measure_kept(
    chosen: Sequence[WorkingSession], summaries: Sequence[str], ms: float
) -> RetentionResult:
    kinds = Counter(
        fact.kind
        for session, summary in zip(chosen, summaries, strict=True)
        for fact in session.facts
        if fact.text in summary
    )
    ratios = [
        count_characters(session.zone) / max(1, len(summary))
        for session, summary in zip(chosen, summaries, strict=True)
    ]
    return RetentionResult(kinds, min(ratios), ms)


def _make_kind_row(
    name: str,
    kind: str,
    there: Counter[str],
    kept: tuple[RetentionResult, RetentionResult, RetentionResult],
) -> BenchRow:
    ours, hermes, cut = (_format_percent(item.compute_share(there, kind)) for item in kept)
    return BenchRow(
        what=f"  {kind}, of {there[kind]:,}",
        home=name,
        ours=ours,
        theirs=hermes,
        better=None,
        target="",
        reached=None,
        note=f"plain truncation {cut}",
    )


def _make_ratio_row(name: str, ours: RetentionResult, hermes: RetentionResult) -> BenchRow:
    return BenchRow(
        what="characters before by after, least",
        home=name,
        ours=f"{ours.ratio:.2f}",
        theirs=f"{hermes.ratio:.2f}",
        better=None,
        target=f">= {SUMMARY_RATIO}",
        reached=ours.ratio >= SUMMARY_RATIO,
        note="plain truncation has the same room as ours",
    )


def _format_percent(share: float) -> str:
    return f"{share * 100:.1f} %"
