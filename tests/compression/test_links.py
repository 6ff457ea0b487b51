"""Links between statements: reasons, causes and fixes that the text states."""

from __future__ import annotations

from typing import Any

from session_core.compression.extractive import statements
from session_core.compression.extractive.statements import Statement


def read(*texts: tuple[str, str]) -> dict[str, Statement]:
    """Return the statements of messages by their texts."""
    messages: list[dict[str, Any]] = [
        {"role": {"u": "user", "a": "assistant"}[who], "content": text, "id": at}
        for at, (who, text) in enumerate(texts, 1)
    ]
    return {item.text: item for item in statements.read_statements(messages).statements}


def list_labels(statement: Statement) -> list[tuple[str, str]]:
    """Return the labels and texts of the parts of a statement."""
    return [(label, part.text) for label, part in statement.parts]


def test_accepted_proposal_gives_its_reason() -> None:
    reason = "The carrier offers pallets or parcels, and pallets fit since the ramp is level."
    found = read(
        ("u", "How do we ship the stoves?"),
        ("a", f"{reason} I would go that way."),
        ("u", "Agreed, pallets. Book the truck for Thursday."),
    )
    assert list_labels(found["Agreed, pallets."]) == [("reason", reason)]


def test_decision_without_reason_has_none() -> None:
    found = read(
        ("a", "The carrier offers pallets or parcels."),
        ("u", "Agreed, pallets."),
    )
    assert found["Agreed, pallets."].parts == []


def test_action_of_speaker_is_no_cause() -> None:
    found = read(
        ("a", "The scale in hall two is broken."),
        ("a", "Opening the manual again, because I forgot a page."),
        ("u", "Ich lese den Plan noch mal, weil ich etwas übersehen habe."),
    )
    assert found["The scale in hall two is broken."].parts == []


def test_distant_cause_needs_common_word() -> None:
    problem = "The scale in hall two is broken."
    between = [("a", "The rest of the hall is swept."), ("u", "Fine by me.")] * 2
    distant = read(("a", problem), *between, ("a", "It was the wet floor, that's why."))
    near = read(("a", problem), ("a", "It was the wet floor, that's why."))
    assert distant[problem].parts == []
    assert list_labels(near[problem]) == [("cause", "It was the wet floor, that's why.")]
