"""Plain questions with one answer each, and decoys that share the words of the question.

The answers use other forms of the words than the questions, as people do. Besides the decoys in
`questions.txt` each question was asked before, in a conversation without an answer, and some long
messages scatter half of its words. All words of this file occur in the everyday text, too.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

from tests.bench.text import TextWriter

SCATTERED_COUNT = 4
"""So many long messages hold half of the words of each question."""

_PEOPLE_NAMES = ("Maria", "Jonas", "Priya", "Chen", "Oluwaseun", "Ines", "Tomasz", "Aiko")


@dataclass(frozen=True)
class PlantedQuestion:
    """A question, the message that answers it, and messages that only look like the answer."""

    text: str
    answer: str
    decoys: tuple[str, ...]


def make_questions(seed: int) -> list[PlantedQuestion]:
    """Return all questions, with names and numbers drawn anew."""
    drawn = random.Random(seed)
    writer = TextWriter(seed)
    source = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    blocks = [block for block in source.split("\n\n") if not block.startswith("#")]
    return [_make_question(block, drawn, writer) for block in blocks]


def _make_question(block: str, drawn: random.Random, writer: TextWriter) -> PlantedQuestion:
    slots = {
        "days": drawn.randint(7, 400),
        "euros": drawn.randint(3, 90) * 20,
        "port": drawn.randint(2000, 9999),
        "time": f"{drawn.randint(6, 22)}:{drawn.choice(('00', '15', '30', '45'))}",
        "version": f"{drawn.randint(1, 9)}.{drawn.randint(0, 30)}",
        "person": drawn.choice(_PEOPLE_NAMES),
    }
    lines = [(line[0], line[2:].format(**slots)) for line in block.strip().splitlines()]
    (text,) = (line for mark, line in lines if mark == "?")
    (answer,) = (line for mark, line in lines if mark == "=")
    decoys = [line for mark, line in lines if mark == "~"]
    decoys.append(f"Remind me: {text} I could not find it.")
    decoys += [make_scattered_message(text, drawn, writer) for _ in range(SCATTERED_COUNT)]
    return PlantedQuestion(text, answer, tuple(decoys))


def make_scattered_message(text: str, drawn: random.Random, writer: TextWriter) -> str:
    """Return a long message with half of the words of a text."""
    words = re.findall(r"\w+", text.lower())
    inside = drawn.sample(words, max(2, len(words) // 2))
    sentences = [
        f"{writer.write_sentence()[:-1]} {word} {writer.write_sentence().lower()}"
        for word in inside
    ]
    return " ".join(sentences)
