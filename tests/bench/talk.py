"""Ordinary talk of a working session: people ask, chat and paste; the agent plans and calls tools.

It is what facts are planted among, and has paths, numbers, ids and addresses of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.formats import Filler

Message = dict[str, Any]

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
class Call:
    """A call of a tool and its answer; who reads a file again gets the same lines."""

    tool: str
    arguments: str
    output: str
    frame: list[str]
    lines: list[str]

    def answer(self) -> str:
        """Return the whole answer."""
        first, last = self.frame[:1], self.frame[1:]
        return "\n".join((*first, *self.lines, *last))


@dataclass(frozen=True)
class Turn:
    """What one side says, and what the agent calls at once."""

    role: str
    sentences: list[str]
    calls: list[Call] = field(default_factory=list)


class Talk:
    """Talks in one language of one project."""

    def __init__(self, filler: Filler, language: str) -> None:
        self.filler = filler
        self.language = language
        self.lengths = _lengths(filler)
        self._random = filler.random
        self._reads: list[Call] = []

    def opening(self) -> list[Turn]:
        """Return the system prompt, a question and an answer."""
        return [Turn("system", ["You work in a repository."]), *self._exchange("user")]

    def long(self, least: int) -> list[Turn]:
        """Return episodes of at least so many characters."""
        turns: list[Turn] = []
        while size(list(messages(turns))) < least:
            turns += self._episode(self._random.choice(_STEPS), None)
            if self._random.random() < _CHATS:
                turns += self._exchange("chat")
        return turns

    def short(self, steps: Sequence[int]) -> list[Turn]:
        """Return an episode of each of these numbers of steps, with one call in each step."""
        self._reads = []
        return [turn for count in steps for turn in self._episode(count, 1)]

    def step(self, tool: str, output: str, arguments: str) -> Turn:
        """Return a step of the agent with this call."""
        call = self._answered(tool, arguments, output)
        return Turn("assistant", self._several("assistant", 0, 1), [call])

    def _exchange(self, asks: str) -> list[Turn]:
        return [Turn("user", [self._say(asks)]), Turn("assistant", [self._say("assistant")])]

    def _episode(self, steps: int, calls: int | None) -> list[Turn]:
        asked = Turn("user", self._several("user", 1, 3))
        if self._random.random() < _PASTES:
            pasted = self._lines(self.filler.line("paste"))[:12]
            asked.sentences.append("\n".join(("```", *pasted, "```")))
        done = Turn("assistant", self._several("assistant", 1, 4))
        return [asked, *(self._step(calls) for _ in range(steps)), done]

    def _step(self, calls: int | None) -> Turn:
        said = self._several("assistant", 0, 2)
        count = calls or self._random.choice(_CALLS)
        return Turn("assistant", said, [self._call() for _ in range(count)])

    def _several(self, section: str, least: int, most: int) -> list[str]:
        return [self._say(section) for _ in range(self._random.randint(least, most))]

    def _say(self, section: str) -> str:
        return self.filler.line(section + self.language)

    def _call(self) -> Call:
        output = self._random.choices(list(_TOOLS), weights=list(_TOOLS.values()))[0]
        if output == "code" and self._reads and self._random.random() < _READS_AGAIN:
            return self._random.choice(self._reads)
        tool, arguments = self.filler.line(f"call {output}").split(" ", 1)
        call = self._answered(tool, arguments, output)
        if output == "code":
            self._reads.append(call)
        return call

    def _answered(self, tool: str, arguments: str, output: str) -> Call:
        frame = self.filler.sections.get(f"frame {output}", [])
        return Call(tool, _json(arguments), output, frame, self._lines(output))

    def _lines(self, output: str) -> list[str]:
        count = self._random.randint(*self.lengths[output])
        return [self.filler.line(f"output {output}", number + 1) for number in range(count)]


def messages(turns: Sequence[Turn]) -> Iterator[Message]:
    """Yield the messages of the turns; the calls have no ids yet."""
    for turn in turns:
        said: Message = {"role": turn.role, "content": _join(turn.sentences)}
        if turn.calls:
            said["tool_calls"] = [
                {"type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
                for call in turn.calls
            ]
        yield said
        for call in turn.calls:
            yield {"role": "tool", "content": call.answer(), "tool_name": call.tool}


def size(some: Sequence[Message]) -> int:
    """Return the characters of what was said, called and answered."""
    return sum(len(text) for message in some for text in texts(message))


def texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message: its content, then the names and arguments of its calls."""
    yield message["content"]
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def _join(sentences: Sequence[str]) -> str:
    """Put sentences on one line, but what is unfinished or a block on lines of its own."""
    text = ""
    for sentence in sentences:
        block = "\n" in sentence or sentence.startswith(("- ", "```"))
        gap = "\n" if block or not text.endswith(_ENDS) else " "
        text += (gap if text else "") + sentence
    return text


def _lengths(filler: Filler) -> dict[str, tuple[int, int]]:
    """Return how many lines each output has, and call its section by its name alone."""
    found = {}
    for section in [name for name in filler.sections if name.startswith("output ")]:
        _, name, span = section.split()
        least, most = span.split("-")
        found[name] = (int(least), int(most))
        filler.sections[f"output {name}"] = filler.sections.pop(section)
    return found


def _json(arguments: str) -> str:
    return json.dumps(json.loads(arguments, strict=False), ensure_ascii=False)
