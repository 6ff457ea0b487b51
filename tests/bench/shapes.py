"""The two homes of the bench, session by session, with their planted texts.

*even*: many sessions of equal length. *skewed*: half of the sessions have 0 to 2 messages, one has
a great many and is the newest, and times sometimes go backwards.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.bench.questions import make_questions
from tests.bench.text import HALF_WORD, TextWriter

SEED = 20261118
_NOW_S = 1_790_000_000.0
_YEAR_S = 365 * 86_400.0
_SOURCES = ("cli", "telegram", "discord", "slack", "tui", "cron")
_ROLES = ("user", "assistant", "tool", "assistant")


@dataclass(frozen=True)
class HomeShape:
    """How many sessions, of how many messages."""

    name: str
    sessions: int
    messages: int
    longest: int = 0
    """Messages of the newest session of a skewed home; 0 in an even one."""

    @property
    def page_session(self) -> int:
        """Messages of the session in which ordinary pages are read."""
        return min(1000, self.longest // 2) if self.longest else self.messages


HOME_SHAPES = {
    False: (HomeShape("even", 2000, 100), HomeShape("skewed", 50_000, 0, longest=100_000)),
    True: (HomeShape("even", 80, 30), HomeShape("skewed", 900, 0, longest=3000)),
}
"""The homes of a full run, and of a quick one."""


@dataclass
class BenchSession:
    """One session with its messages, as rows."""

    row: dict[str, Any]
    messages: list[dict[str, Any]]


@dataclass
class PlantedTexts:
    """The planted texts by session and message number, and the queries that must find them."""

    at: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    whole: set[tuple[int, int]] = field(default_factory=set)
    tokens: list[tuple[str, str]] = field(default_factory=list)
    cjk: list[tuple[str, str]] = field(default_factory=list)
    questions: list[tuple[str, str]] = field(default_factory=list)
    rare: list[str] = field(default_factory=list)


def make_session_id(number: int) -> str:
    """Return the id of the session of this number."""
    return f"2026_{number:06d}_{number * 2654435761 % 2**32:08x}"


class HomeWriter:
    """Writes the sessions of one shape, and has the list of its planted texts."""

    def __init__(self, shape: HomeShape, seed: int = SEED) -> None:
        self.shape = shape
        self._random = random.Random(f"{seed} {shape.name}")
        self._writer = TextWriter(seed)
        self.lengths = self._draw_lengths()
        self.plants = PlantedTexts()
        self._plant_texts()
        self._links = self._draw_links()
        self._ended_at = 0.0

    @property
    def longest(self) -> int:
        """The number of the longest session."""
        return max(range(len(self.lengths)), key=self.lengths.__getitem__)

    @property
    def ordinary(self) -> int:
        """The number of the session of up to 1,000 messages in which pages are read."""
        return self.lengths.index(self.shape.page_session)

    def list_sessions(self) -> Iterator[BenchSession]:
        """Yield every session, parents before their children."""
        for number, length in enumerate(self.lengths):
            yield self._build_session(number, length)

    def _draw_lengths(self) -> list[int]:
        shape, drawn = self.shape, self._random
        if not shape.longest:
            return [shape.messages] * shape.sessions
        short = [drawn.randint(0, 2) for _ in range(shape.sessions // 2)]
        rest = shape.sessions - len(short) - 2
        middling = [3 + min(int(drawn.lognormvariate(1.2, 1.0)), 500) for _ in range(rest)]
        lengths = [*short, *middling, shape.page_session]
        drawn.shuffle(lengths)
        return [*lengths, shape.longest]

    def _build_session(self, number: int, length: int) -> BenchSession:
        drawn = self._random
        newest = bool(self.shape.longest) and number == len(self.lengths) - 1
        started_at = _NOW_S - (86_400 if newest else drawn.uniform(2 * 86_400, 2 * _YEAR_S))
        if self._links.get(number) == "continuation":
            started_at = self._ended_at + 1
        step = 86_000 / max(length, 1) if newest else drawn.uniform(5, 120)
        messages = [self._build_message(number, at, started_at + step * at) for at in range(length)]
        row = self._build_row(number, started_at, messages)
        self._ended_at = row["ended_at"] or started_at
        return BenchSession(row, messages)

    def _build_row(
        self, number: int, started_at: float, messages: list[dict[str, Any]]
    ) -> dict[str, Any]:
        drawn = self._random
        link = self._links.get(number)
        parent = make_session_id(number - 1) if link else None
        delegate = json.dumps({"_delegate_from": parent}) if link == "delegate" else None
        compressed = self._links.get(number + 1) == "continuation"
        last = messages[-1]["timestamp"] if messages else started_at
        ended_at = last + 60 if compressed or drawn.random() < 0.6 else None
        reason = "compression" if compressed else drawn.choice(("cli_close", "agent_close"))
        return {
            "id": make_session_id(number),
            "source": drawn.choice(_SOURCES),
            "model": drawn.choice(("large-2", "small-1")),
            "model_config": delegate,
            "parent_session_id": parent,
            "started_at": started_at,
            "ended_at": ended_at,
            "end_reason": reason if ended_at else None,
            "title": f"{self._writer.write_sentence()[:60]} {number}"
            if drawn.random() < 0.6
            else None,
            "cwd": f"/home/someone/{drawn.choice(('shop', 'site', 'notes', 'lab'))}",
            "message_count": len(messages),
            "tool_call_count": sum(bool(message["tool_calls"]) for message in messages),
        }

    def _draw_links(self) -> dict[int, str]:
        """Return the sessions that continue the session before, or that it delegated.

        Planted texts are in sessions without links, so that the conversation of each is clear.
        """
        inside = {number for number, _ in self.plants.at} | {self.longest, self.ordinary}
        alone = inside | {number + 1 for number in inside} | {0}
        kinds = {
            number: self._random.choices(("continuation", "delegate", ""), (3, 3, 94))[0]
            for number in range(len(self.lengths))
        }
        return {number: kind for number, kind in kinds.items() if kind and number not in alone}

    def _build_message(self, number: int, at: int, time_at: float) -> dict[str, Any]:
        drawn = self._random
        role = _ROLES[at % 4]
        calls = at % 4 == 1
        backwards = drawn.uniform(0, 3600) if self.shape.longest and drawn.random() < 0.1 else 0
        call_id = f"call_{number:x}_{at - at % 4:x}"
        function = {"name": "run", "arguments": json.dumps({"path": self._writer.make_path()})}
        return {
            "role": role,
            "content": self._build_content(number, at, role),
            "tool_calls": [{"id": call_id, "type": "function", "function": function}]
            if calls
            else None,
            "tool_call_id": call_id if role == "tool" else None,
            "tool_name": "run" if role == "tool" else None,
            "timestamp": time_at - backwards,
        }

    def _build_content(self, number: int, at: int, role: str) -> str:
        planted = self.plants.at.get((number, at))
        if planted and (number, at) in self.plants.whole:
            return "\n".join(planted)
        content = self._writer.write_message(role)
        for word in [*(planted or ()), *([HALF_WORD] if self._random.random() < 0.5 else ())]:
            cut = content.find(" ", self._random.randrange(len(content)))
            content = f"{content[:cut]} {word}{content[cut:]}" if cut >= 0 else f"{content} {word}"
        return content

    def _plant_texts(self) -> None:
        self._plant_questions()
        self._plant_tokens()
        self._plant_cjk()
        for number in range(10):
            word = f"quixotrel{number}zy"
            self.plants.rare.append(word)
            for _ in range(12):
                self._plant_text(word)

    def _plant_questions(self) -> None:
        for question in make_questions(SEED):
            answered_in = self._plant_text(question.answer, whole=True)
            self.plants.questions.append((question.text, answered_in))
            for decoy in question.decoys:
                self._plant_text(decoy, whole=True, away_from=answered_in)

    def _plant_tokens(self) -> None:
        for number in range(30):
            token = self._make_token(number)
            hidden_in = self._plant_text(token)
            self.plants.tokens.append((token, hidden_in))
            self._plant_text(token[:-1] + ("7" if token[-1] != "7" else "8"), away_from=hidden_in)

    def _plant_cjk(self) -> None:
        for number in range(10):
            pair = chr(0x9A00 + 7 * number) + chr(0x9B00 + 11 * number)
            text = f"昨日の打ち合わせで{pair}についての方針を決めました。"
            self.plants.cjk.append((pair, self._plant_text(text, whole=True)))

    def _make_token(self, number: int) -> str:
        writer, words = self._writer, self._random.sample(self._writer.vocabulary[400:], 3)
        makers = (
            lambda: f"{words[0]}_{words[1]}.{words[2]}9",
            lambda: f"{writer.make_hex_id(4)}-{writer.make_hex_id(3)}-{number}",
            lambda: f"ERR_{words[0].upper()}_{4000 + number}",
            lambda: f"v2.{number}.7-rc4",
            lambda: f"src/{words[0]}/{words[1]}_{number}.rs:118",
            lambda: (
                f"{writer.make_hex_id(8)}-{writer.make_hex_id(4)}-4{writer.make_hex_id(3)}-{writer.make_hex_id(12)}"
            ),
            lambda: f"{words[0]}.{words[1]}+{number}@example.org",
            lambda: f"{words[0].capitalize()}{words[1].capitalize()}Factory{number}",
            lambda: f"--{words[0]}-{words[1]}-{number}",
            lambda: writer.make_hex_id(11),
        )
        return makers[number % len(makers)]()

    def _plant_text(self, text: str, *, whole: bool = False, away_from: str = "") -> str:
        """Plant a text in a random conversation, and return the id of the session."""
        while True:
            number = self._random.randrange(len(self.lengths))
            at = self._random.randrange(self.lengths[number] or 1)
            fits = at < self.lengths[number] and not (whole and at % 4 == 2)
            apart = number != self.longest and make_session_id(number) != away_from
            if fits and apart and (number, at) not in self.plants.at:
                break
        self.plants.at[(number, at)] = [text]
        if whole:
            self.plants.whole.add((number, at))
        return make_session_id(number)
