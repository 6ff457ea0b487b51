"""Statements of a person in tool output, distinguished from lines of a program."""

from __future__ import annotations

import pytest

from session_core.compression.extractive import passages, scoring
from session_core.compression.extractive.passages import Passage
from session_core.compression.extractive.summarize import summarize

ROWS = [f"valve-{number:02} open  {number * 37 % 100}.5 bar  ok" for number in range(12)]
PROSE = [
    "The pumps of this house were built by a firm that is no longer there.",
    "Each of them has a plate on which the year stands.",
    "It was painted over when the hall was renewed.",
    "Nobody knows what the small wheel at the side is for.",
    "In the winter the water in the pipes can freeze.",
    "Then it is enough to wait until noon.",
]
SETTLED = "The old boiler in the yard is for the school."


def result(lines: list[str]) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": "c1", "content": "\n".join(lines)}


def get_chance(line: str, beside: list[str]) -> float:
    middle = len(beside) // 2
    read = passages.read_passages([result([*beside[:middle], line, *beside[middle:]])])
    (found,) = [scoring.compute_chances(read)[id(it)] for it in read.passages if it.text == line]
    return found


@pytest.mark.parametrize(
    "settled",
    [
        SETTLED,
        "Der Schlüssel für den Keller ist bei Lena.",
        "Le local est pour les enfants.",
        "物置の鍵は田中さんが持っています。",
    ],
)
def test_sentence_among_rows_outscores_heading(settled: str) -> None:
    assert get_chance(settled, ROWS) > 2 * get_chance("Boilers, yards, schools, cellars", ROWS)


def test_sentence_scores_higher_among_rows() -> None:
    assert get_chance(SETTLED, ROWS) > 1.2 * get_chance(SETTLED, PROSE)


def test_whole_sentence_outscores_fragment() -> None:
    assert get_chance(SETTLED, ROWS) > get_chance(SETTLED[4:-1], ROWS)


def test_task_outscores_decision() -> None:
    assert get_chance("waiting for the smith", ROWS) > get_chance("decided by the smith", ROWS)


def test_sentence_wins_over_shorter_heading() -> None:
    lines = [*ROWS[:4], "Boilers and yards", *ROWS[4:8], SETTLED, *ROWS[8:]]
    assert SETTLED in summarize([result(lines)], len(SETTLED) + 10)


def test_named_line_keeps_odds_of_name() -> None:
    read = passages.read_passages([result(["wrote /srv/hall/pump.csv for the school."])])
    assert list(scoring.adjust_statement_odds(read.passages, [0.7])) == [0.7]


def test_decision_about_name_is_statement() -> None:
    lines = ["We decided to keep /srv/hall/pump.csv for the school.", "valve-07 open"]
    settled, _ = passages.read_passages([result(lines)]).passages
    row = Passage("valve-07 open", [], "result", 0)
    assert next(scoring.adjust_statement_odds([settled, row], [0.7, 0.7])) > 0.7


LISTING = [
    f"{number:3}|    deck_{number % 5} = roof_{number}(beam_{number})" for number in range(12)
]


def test_file_line_scores_below_constant_or_task() -> None:
    plain = get_chance("40|    return deck.roof_level", LISTING)
    assert get_chance("40|ROOF_LEVEL_MAX = 40", LISTING) > 1.3 * plain
    assert get_chance("40|    # TODO(lena): paint the deck", LISTING) > 1.3 * plain


def test_summary_omits_log_line_prefix() -> None:
    lines = [
        *(f"2026-05-02 10:00:0{n},1 INFO roof.deck beat {n}" for n in range(9)),
        "May 02 10:00:09 house-1 roofd[77]: gave up on lib/roof/deck.rs:14",
        "roof-1  | gave up on lib/roof/beam.rs:9",
    ]
    summary = summarize([result(lines)], 400)
    assert "gave up on lib/roof/deck.rs:14" in summary
    assert "gave up on lib/roof/beam.rs:9" in summary
    assert "roofd[77]" not in summary
    assert "roof-1" not in summary


def test_table_keeps_first_column() -> None:
    assert "roof-7 | lib/roof/deck.rs" in summarize([result(["roof-7 | lib/roof/deck.rs"])], 200)
