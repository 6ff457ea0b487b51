"""Corrections in seven languages: replaced statements, and statements that still hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core.compression.extractive import statements, values
from session_core.compression.extractive.statements import Statement
from session_core.compression.extractive.summarize import summarize

Message = dict[str, Any]

_PAIRS = Path(__file__).with_name("corrections.txt").read_text(encoding="utf-8").splitlines()[1:]
_BETWEEN = (
    "I looked at the listing twice.",
    "Wir haben Brot gekauft.",
    "Le chat dort.",
    "El perro come.",
    "Погода хорошая.",
    "天気がいい。",
    "天气很好。",
)


def talk(*texts: str) -> list[Message]:
    """Return messages of the user and the assistant in turn, with ids."""
    return [
        {"role": ("user", "assistant")[at % 2], "content": text, "id": at + 1}
        for at, text in enumerate(texts)
    ]


def read(*texts: str) -> dict[str, Statement]:
    """Return the statements of a talk by their texts."""
    return {it.text: it for it in statements.read_statements(talk(*texts)).statements}


@pytest.mark.parametrize("pair", _PAIRS)
def test_correction_replaces_only_its_subject(pair: str) -> None:
    _, sign, texts = pair.split(" ", 2)
    earlier, later = texts.split(" | ")
    found = read(earlier, "Noted, I write it down.", *_BETWEEN, later)
    states = {statement.state for text, statement in found.items() if text in earlier}
    assert ("superseded" in states) == (sign == "+")


def test_denied_value_is_found_in_another_language() -> None:
    found = read(
        "看门狗现在是8秒。", "Fine.", "And the watchdog, it is 16 seconds now, 8 was too tight."
    )
    assert found["看门狗现在是8秒。"].state == "superseded"


def test_rejected_proposal_is_superseded() -> None:
    found = read(
        "The rollback comes next.",
        "Write the rollback for the zone, going insecure for a day is the fallback.",
        "Hm, no going insecure.",
    )
    (proposal,) = (it for text, it in found.items() if text.startswith("Write the rollback"))
    assert proposal.state == "superseded"


def test_statement_with_other_values_stays_marked() -> None:
    summary = summarize(
        talk(
            "The first batch of 200 boards ships on 20 November to Ningxia.",
            "Noted.",
            "The first batch changes, it is not 200 boards, it is 320 boards.",
        ),
        2000,
    )
    lines = summary.splitlines()
    old = next(line for line in lines if "200 boards ships" in line)
    assert old.startswith("  previously: ")
    assert "320 boards" in lines[lines.index(old) - 1]


def test_marked_statement_stays_marked() -> None:
    first = "The first batch of 200 boards ships on 20 November to Ningxia."
    last = "The first batch changes, it is not 200 boards, it is 320 boards."
    summary = summarize(talk(first, "Noted.", last), 2000)
    again = summarize(
        [{"role": "assistant", "content": f"[CONTEXT SUMMARY]:\n{summary}", "id": 4}], 2000
    )
    assert f"  previously: {first}" in again


@pytest.mark.parametrize(
    "texts",
    [
        ("90 seconds", "ninety seconds", "90 s", "90 Sekunden", "90 секунд", "90秒", "1.5 min"),
        (
            "on 14 February",
            "am 14. Februar",
            "le 14 février",
            "14 февраля",
            "2月14日",
            "2026-02-14",
        ),
        ("on Tuesday", "dienstags", "le mardi", "el martes", "火曜", "周二", "вторник"),
        ("at 3 pm", "um 15 Uhr", "à 15 h", "15:00", "15時"),
        ("2,100 euros", "2 100 euros", "2.100 €", "€2100", "2100 евро"),
    ],
)
def test_value_is_equal_in_all_languages(texts: tuple[str, ...]) -> None:
    found = {(it.kind, it.amount) for text in texts for it in values.read_values(text.lower())}
    assert len(found) == 1


def test_refused_question_denies_its_values() -> None:
    old = "Der Einlass ist um 8:00 und um 10:00 Uhr."
    found = read(
        old,
        *_BETWEEN[:6],
        "The ushers ask for the final hours; still eight and ten?",
        "No, that was too early. Doors open at 9:00 and 11:00, tell the ushers.",
    )
    assert found[old].state == "superseded"
    (question,) = (it for text, it in found.items() if "eight and ten" in text)
    assert question.state == "superseded"


def test_refused_question_keeps_other_values() -> None:
    old = "Der Einlass ist um 8:00 und um 12:00 Uhr."
    found = read(
        old,
        *_BETWEEN[:6],
        "The ushers ask for the final hours; still eight and ten?",
        "No, that was too early. Doors open at 9:00 and 11:00, tell the ushers.",
    )
    assert found[old].state == "current"


def test_todo_list_does_not_part_correction_from_context() -> None:
    old = "400 dollars a month for stamps is a hard cap."
    found = read(
        old,
        *_BETWEEN[:6],
        "Stamps: 431 in May, over the cap.",
        "I'll look at that on the train.",
        "- [x] count the parcels\n- [ ] order the tape",
        "Hm. The cap is 500 from June, the treasurer agreed.",
    )
    assert found[old].state == "superseded"


def test_replaced_person_is_replaced_everywhere() -> None:
    found = read(
        "Wir nehmen für die Fotos Annika Thoms, sie kostet 900 am Tag.",
        "Verschiebe den Termin mit Annika.",
        *_BETWEEN[:5],
        "Annika hat sich den Arm gebrochen, für sie springt Joris Lund ein.",
    )
    states = [it.state for text, it in found.items() if "Annika" in text]
    assert states == ["superseded", "superseded", "current"]


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        (
            "No label longer than 40 letters, the frame cuts them.",
            "Also the maximum is 32 letters, Ines saw that 40 already breaks in Dutch.",
            "superseded",
        ),
        (
            "Höchstens 40 Zeichen pro Etikett, der Rahmen schneidet ab.",
            "Dort passen höchstens 32 Zeichen hin, bei 40 war es schon zu breit.",
            "superseded",
        ),
        (
            "No label longer than 40 letters, the frame cuts them.",
            "At most 3 colours for each label, please.",
            "current",
        ),
    ],
)
def test_later_limit_replaces_earlier_limit(old: str, new: str, state: str) -> None:
    assert read(old, "Noted, I write it down.", *_BETWEEN, new)[old].state == state
