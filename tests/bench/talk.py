"""Ordinary talk of a working session: people ask, chat and paste. The agent plans and calls tools.

Facts are planted in this talk, which has paths, numbers, ids and addresses of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.formats import TemplateFiller

TalkMessage = dict[str, Any]

_TOOLS = {
    "listing": 2,
    "find": 1,
    "log": 4,
    "tests": 4,
    "code": 7,
    "grep": 3,
    "git": 2,
    "diff": 3,
    "json": 3,
    "build": 3,
    "web": 2,
    "table": 2,
    "todo": 1,
    "short": 3,
}
"""What outputs there are, and how often beside each other."""
_STEPS = (1, 1, 2, 2, 3, 4, 6)
_CALLS = (1, 1, 1, 1, 2)
_CHATS, _PASTES, _READS_AGAIN = 0.3, 0.15, 0.4
_ENDS = tuple(".?!。\uff1f\uff01")


@dataclass(frozen=True)
class AgentCall:
    """A call of a tool and its answer. Reading a file again returns the same lines."""

    tool: str
    arguments: str
    output: str
    frame: list[str]
    lines: list[str]

    def render_answer(self) -> str:
        """Return the whole answer."""
        first, last = self.frame[:1], self.frame[1:]
        return "\n".join((*first, *self.lines, *last))


@dataclass(frozen=True)
class TalkTurn:
    """The sentences of one side, and the calls that the agent makes with them."""

    role: str
    sentences: list[str]
    calls: list[AgentCall] = field(default_factory=list)


class TalkWriter:
    """Talks in one language of one project."""

    def __init__(self, filler: TemplateFiller, language: str) -> None:
        self.filler = filler
        self.language = language
        self.lengths = _parse_lengths(filler)
        self._random = filler.random
        self._reads: list[AgentCall] = []

    def write_opening(self) -> list[TalkTurn]:
        """Return the system prompt, a question and an answer."""
        return [TalkTurn("system", ["You work in a repository."]), *self._write_exchange("user")]

    def write_long_talk(self, least: int) -> list[TalkTurn]:
        """Return episodes of at least so many characters."""
        turns: list[TalkTurn] = []
        while count_characters(list(build_messages(turns))) < least:
            turns += self._write_episode(self._random.choice(_STEPS), None)
            if self._random.random() < _CHATS:
                turns += self._write_exchange("chat")
        return turns

    def write_short_episodes(self, steps: Sequence[int]) -> list[TalkTurn]:
        """Return an episode of each of these numbers of steps, with one call in each step."""
        self._reads = []
        return [turn for count in steps for turn in self._write_episode(count, 1)]

    def write_step(self, tool: str, output: str, arguments: str) -> TalkTurn:
        """Return a step of the agent with this call."""
        call = self._make_answered_call(tool, arguments, output)
        return TalkTurn("assistant", self._draw_several("assistant", 0, 1), [call])

    def _write_exchange(self, asks: str) -> list[TalkTurn]:
        return [
            TalkTurn("user", [self._make_turn(asks)]),
            TalkTurn("assistant", [self._make_turn("assistant")]),
        ]

    def _write_episode(self, steps: int, calls: int | None) -> list[TalkTurn]:
        talk_turn = TalkTurn("user", self._draw_several("user", 1, 3))
        if self._random.random() < _PASTES:
            pasted = self._draw_lines(self.filler.fill_line("paste"))[:12]
            talk_turn.sentences.append("\n".join(("```", *pasted, "```")))
        done = TalkTurn("assistant", self._draw_several("assistant", 1, 4))
        return [talk_turn, *(self._write_agent_step(calls) for _ in range(steps)), done]

    def _write_agent_step(self, calls: int | None) -> TalkTurn:
        said = self._draw_several("assistant", 0, 2)
        count = calls or self._random.choice(_CALLS)
        return TalkTurn("assistant", said, [self._make_call() for _ in range(count)])

    def _draw_several(self, section: str, least: int, most: int) -> list[str]:
        return [self._make_turn(section) for _ in range(self._random.randint(least, most))]

    def _make_turn(self, section: str) -> str:
        return self.filler.fill_line(section + self.language)

    def _make_call(self) -> AgentCall:
        output = self._random.choices(list(_TOOLS), weights=list(_TOOLS.values()))[0]
        if output == "code" and self._reads and self._random.random() < _READS_AGAIN:
            return self._random.choice(self._reads)
        tool, arguments = self.filler.fill_line(f"call {output}").split(" ", 1)
        call = self._make_answered_call(tool, arguments, output)
        if output == "code":
            self._reads.append(call)
        return call

    def _make_answered_call(self, tool: str, arguments: str, output: str) -> AgentCall:
        frame = self.filler.sections.get(f"frame {output}", [])
        return AgentCall(tool, _encode_json(arguments), output, frame, self._draw_lines(output))

    def _draw_lines(self, output: str) -> list[str]:
        count = self._random.randint(*self.lengths[output])
        return [self.filler.fill_line(f"output {output}", number + 1) for number in range(count)]


def build_messages(turns: Sequence[TalkTurn]) -> Iterator[TalkMessage]:
    """Yield the messages of the turns. The calls have no ids yet."""
    for turn in turns:
        said: TalkMessage = {"role": turn.role, "content": _join_sentences(turn.sentences)}
        if turn.calls:
            said["tool_calls"] = [
                {"type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
                for call in turn.calls
            ]
        yield said
        for call in turn.calls:
            yield {"role": "tool", "content": call.render_answer(), "tool_name": call.tool}


def count_characters(some: Sequence[TalkMessage]) -> int:
    """Return the number of characters of texts, calls and answers."""
    return sum(len(text) for message in some for text in list_texts(message))


def list_texts(message: TalkMessage) -> Iterator[str]:
    """Yield the texts of a message: its content, then the names and arguments of its calls."""
    yield message["content"]
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def _join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences in one line, with blocks and unfinished sentences on lines of their own."""
    text = ""
    for sentence in sentences:
        block = "\n" in sentence or sentence.startswith(("- ", "```"))
        gap = "\n" if block or not text.endswith(_ENDS) else " "
        text += (gap if text else "") + sentence
    return text


def _parse_lengths(filler: TemplateFiller) -> dict[str, tuple[int, int]]:
    """Return how many lines each output has, and call its section by its name alone."""
    found = {}
    for section in [name for name in filler.sections if name.startswith("output ")]:
        _, name, span = section.split()
        least, most = span.split("-")
        found[name] = (int(least), int(most))
        filler.sections[f"output {name}"] = filler.sections.pop(section)
    return found


def _encode_json(arguments: str) -> str:
    return json.dumps(json.loads(arguments, strict=False), ensure_ascii=False)
