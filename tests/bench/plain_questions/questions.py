"""Plain questions about past conversations, and the conversations with their answers.

A conversation answers its question in its own words: the question matches its title, the words of
the user or the words of the agent, often each in part. Other conversations share words of the
question and answer another question. A conversation repeats it without an answer, and long messages
scatter its words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench.questions import SCATTERED_COUNT, make_scattered_message
from tests.bench.text import TextWriter

Turn = tuple[str, str]
"""The role and the text of a message."""

_FOLDER = Path(__file__).parent
_ROLES = {"u": "user", "a": "assistant", "t": "tool"}
_LEAST_TURNS, _MOST_TURNS = 4, 24
_START, _SPAN_S, _MESSAGE_STEP_S = 1_765_000_000, 300 * 86_400, 45


@dataclass
class PlainQuestion:
    """A question, the conversation that answers it, and messages that share its words."""

    text: str
    answer: str = ""
    """Words that only the answer has."""
    agent: str = ""
    title: str | None = None
    turns: list[Turn] = field(default_factory=list)
    decoys: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Conversation:
    """A conversation to store, with the number of the question that it answers."""

    turns: list[Turn]
    title: str | None = None
    agent: str = ""
    question: int | None = None
    started_at: float = 0.0

    def get_time(self, number: int) -> float:
        """Return the time of a message by its number."""
        return self.started_at + number * _MESSAGE_STEP_S


def load_questions(name: str) -> list[PlainQuestion]:
    """Return the questions of a set."""
    text = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    blocks = [block for block in text.split("\n\n") if not block.startswith("#")]
    return [_parse_question(block) for block in blocks]


def _parse_question(block: str) -> PlainQuestion:
    question = PlainQuestion("")
    for line in block.strip().splitlines():
        mark, text = line[0], line[2:]
        if mark == "~":
            question.decoys.append(text)
        elif mark in _ROLES:
            question.turns.append((_ROLES[mark], text))
        else:
            name = {"?": "text", "!": "answer", "=": "agent", "@": "title"}[mark]
            setattr(question, name, text)
    return question


def make_conversations(
    questions: list[PlainQuestion], messages: int, seed: int = 20261120
) -> list[Conversation]:
    """Return conversations with about so many messages, with those of the questions among them."""
    topics = re.findall(r"[a-z]{3,}", " ".join(_list_texts(questions)).lower())
    writer, drawn = TextWriter(seed, topics), random.Random(seed)
    agents = sorted({question.agent for question in questions})
    planted = [
        item
        for number in range(len(questions))
        for item in _plant(questions, number, drawn, writer)
    ]
    made = [_surround(item, writer, drawn, agents) for item in planted]
    count = sum(len(item.turns) for item in made)
    while count < messages:
        item = _surround(Conversation([]), writer, drawn, agents)
        count += len(item.turns)
        made.append(item)
    drawn.shuffle(made)
    step = _SPAN_S / len(made)
    return [replace(item, started_at=_START + step * at) for at, item in enumerate(made)]


def _list_texts(questions: list[PlainQuestion]) -> Iterator[str]:
    for question in questions:
        yield from (question.text, *(text for _, text in question.turns), *question.decoys)


def _plant(
    questions: list[PlainQuestion], number: int, drawn: random.Random, writer: TextWriter
) -> Iterator[Conversation]:
    """Yield the conversation that answers a question, and those that only share its words."""
    question = questions[number]
    yield Conversation(question.turns, question.title, question.agent, number)
    asked = f"Remind me: {question.text} I could not find it."
    yield Conversation([("user", asked), ("assistant", "I found nothing about that either.")])
    scattered = (
        make_scattered_message(question.text, drawn, writer) for _ in range(SCATTERED_COUNT)
    )
    for decoy in (*question.decoys, *scattered):
        yield Conversation([(drawn.choice(("user", "assistant")), decoy)])


def _surround(
    item: Conversation, writer: TextWriter, drawn: random.Random, agents: list[str]
) -> Conversation:
    """Return a conversation with everyday messages before and after its turns."""
    count = drawn.randint(_LEAST_TURNS, _MOST_TURNS)
    split = drawn.randint(0, count)
    before, after = _write_turns(writer, split), _write_turns(writer, count - split)
    title = item.title or (writer.write_sentence()[:60] if drawn.random() < 0.5 else None)
    agent = item.agent or drawn.choice(agents)
    return Conversation([*before, *item.turns, *after], title, agent, item.question)


def _write_turns(writer: TextWriter, count: int) -> list[Turn]:
    roles = ("user", "assistant")
    return [(roles[at % 2], writer.write_message(roles[at % 2])) for at in range(count)]
