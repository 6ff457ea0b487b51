"""Weave hand-written messages into filler talk, tool calls with results, and to-do lists."""

from __future__ import annotations

import functools
import json
import random
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.bench.long_life.script import Line, Script, ScriptPart
from tests.bench.long_life.tool_output import ToolOutput

_FILLER = Path(__file__).with_name("filler.txt")
_MIN_CHARACTERS, _MAX_CHARACTERS = 29_000, 50_000
_MAX_MESSAGES = 132
_ASIDE_SHARE = 0.3
_NARRATED_SHARE = 0.75
_REMARK_SHARE = 0.35
_SMALL_STEPS = (
    "read the last output again",
    "compare with the previous run",
    "tidy the temporary folder",
    "skim the log of last night",
    "list the folder",
    "check the exit codes",
)

Message = dict[str, Any]

_SLOT = re.compile(r"\{(word|file|n|m)\}")


def weave_part(
    script: Script, number: int, open_labels: dict[str, str]
) -> tuple[list[Message], list[int]]:
    """Return the messages of a part, and the place of each hand-written line in them.

    `open_labels` has the open tasks before the part by id, and is brought to its end.
    """
    return _Weaver(script, number, open_labels).weave()


@functools.cache
def read_filler() -> dict[tuple[str, str], list[str]]:
    """Return the filler sentences by language and speaker."""
    pools: dict[tuple[str, str], list[str]] = {}
    for line in _FILLER.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            language, speaker = line.strip("[]").split()
            pool = pools.setdefault((language, speaker), [])
        else:
            pool.append(line)
    return pools


class _Weaver:
    def __init__(self, script: Script, number: int, open_labels: dict[str, str]) -> None:
        self.part: ScriptPart = script.parts[number - 1]
        self.script = script
        self.number = number
        self.random = random.Random(f"{script.name} {number}")
        self.output = ToolOutput(
            self.random, script.words, script.files, is_office=script.is_office
        )
        self.open_labels = open_labels
        self.asides: list[str] = []
        self.messages: list[Message] = []
        self.size = 0
        self.call_count = 0

    @property
    def _is_dense(self) -> bool:
        return self.part.language in ("ja", "zh")

    def weave(self) -> tuple[list[Message], list[int]]:
        lines = self.part.lines
        target = self.random.randint(_MIN_CHARACTERS, _MAX_CHARACTERS)
        todo_lines = {len(lines) // 3, 2 * len(lines) // 3}
        places = []
        for index, line in enumerate(lines):
            if index:
                self._fill(line, (target - self.size) // (len(lines) - index + 1))
            if index in todo_lines:
                self._add_todo(line)
            self._prepare(line)
            places.append(len(self.messages))
            self._add_line(line)
            self._follow_tasks(index)
        self._fill(None, target - self.size)
        if self.messages[-1]["role"] != "assistant":
            self._add("assistant", self._talk(2))
        self._date_messages(places)
        return self.messages, places

    def _fill(self, following: Line | None, wanted: int) -> None:
        """Add tool calls with talk until about this many characters are added."""
        begin = self.size
        wanted = int(wanted * self.random.uniform(0.2, 1.8))
        while self.size - begin < wanted and len(self.messages) < _MAX_MESSAGES:
            self._ask_to_go_on()
            for _ in range(self.random.randint(1, 3)):
                self._add_tool_call(*self.output.make_call())
            if following is None or following.role == "user" or self.random.random() < 0.4:
                self._add("assistant", self._talk(self.random.randint(3, 6)))
            if following is not None and following.role == "assistant":
                break

    def _prepare(self, line: Line) -> None:
        """Keep turns in order: no two messages of one speaker in a row."""
        last = self.messages[-1]["role"] if self.messages else "none"
        if line.role == "user" and last == "tool":
            self._add("assistant", self._talk(2))
        elif line.role in ("assistant", "call"):
            self._ask_to_go_on()

    def _ask_to_go_on(self) -> None:
        if self.messages and self.messages[-1]["role"] == "assistant":
            self._add("user", self._pick("user"))

    def _add_line(self, line: Line) -> None:
        if line.role == "call":
            self._add_tool_call(line.tool_name, line.arguments, line.text)
        else:
            self._add(line.role, line.text)

    def _add(self, role: str, content: str, **columns: Any) -> None:
        self.messages.append({"role": role, "content": content, **columns})
        self.size += len(content)

    def _add_tool_call(self, name: str, arguments: str, result: str) -> None:
        self.call_count += 1
        call_id = f"call_{self.script.name}_{self.number}_{self.call_count}"
        call = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        narration = (
            self._talk(self.random.randint(1, 3)) if self.random.random() < _NARRATED_SHARE else ""
        )
        self._add("assistant", narration, tool_calls=[call])
        self.size += len(arguments)
        self._add("tool", result, tool_call_id=call_id, tool_name=name)

    def _add_todo(self, following: Line) -> None:
        """Add the to-do list as it is now: open tasks, and small steps that are done."""
        self._ask_to_go_on()
        steps = self.random.sample(_SMALL_STEPS, 3)
        labels = list(self.open_labels.values())
        if following.role == "user" and self.random.random() < 0.5:
            boxes = [f"- [x] {step}" for step in steps] + [f"- [ ] {label}" for label in labels]
            self._add("assistant", "\n".join(boxes))
            return
        todos = [
            {"id": str(index), "content": content, "status": status}
            for index, (content, status) in enumerate(
                [(step, "completed") for step in steps] + [(label, "pending") for label in labels],
                1,
            )
        ]
        arguments = json.dumps({"todos": todos}, ensure_ascii=False)
        result = {"todos": todos, "summary": {"total": len(todos), "pending": len(labels)}}
        self._add_tool_call("todo", arguments, json.dumps(result, ensure_ascii=False))

    def _follow_tasks(self, index: int) -> None:
        for fact in self.part.facts.values():
            if max(fact.line_indexes) == index:
                if fact.kind == "task_open":
                    self.open_labels[fact.fact_id] = fact.needles[0][0]
                for fact_id in (*fact.done, *fact.drops):
                    del self.open_labels[fact_id]

    def _pick(self, speaker: str) -> str:
        text = self.random.choice(read_filler()[self.part.language, speaker])
        return _SLOT.sub(self._fill_slot, text)

    def _fill_slot(self, match: re.Match[str]) -> str:
        match match[1]:
            case "word":
                return self.random.choice(self.script.words)
            case "file":
                return self.random.choice(self.script.files)
            case "n":
                return str(self.random.randint(61, 99))
            case _:
                return str(self.random.randint(2, 9))

    def _pick_sentence(self) -> str:
        """Return a sentence of the agent: an observation, or more rarely a remark as written."""
        if self.random.random() < _REMARK_SHARE:
            return self._pick("agent")
        parts = [self._pick(name) for name in ("open", "middle", "end")]
        if self._is_dense:
            return "".join(parts)
        comma = "" if self.part.language == "de" else ","
        return f"{parts[0]}{comma} {parts[1]}, {parts[2]}"

    def _talk(self, count: int) -> str:
        # A sentence of Chinese or Japanese has about half the characters of an English one.
        times = 2 if self._is_dense else 1
        sentences = dict.fromkeys(self._pick_sentence() for _ in range(count * times))
        for _ in range(times):
            if self.random.random() < _ASIDE_SHARE:
                sentences[self._pick_aside()] = None
        return ("" if self._is_dense else " ").join(sentences)

    def _pick_aside(self) -> str:
        """Return the next paragraph without facts. Each is used once before it is used again."""
        if not self.asides:
            self.asides = list(self.script.asides[self.part.language])
            self.random.shuffle(self.asides)
        return self.asides.pop()

    def _date_messages(self, places: list[int]) -> None:
        """Spread the part over its days. A new day begins at a hand-written message of the user."""
        days = (self.part.end - self.part.start).days
        begins = [
            place
            for place, line in zip(places, self.part.lines, strict=True)
            if line.role == "user"
        ]
        clock = self._begin_day(0)
        for index, message in enumerate(self.messages):
            if index in begins:
                day = begins.index(index) * days // max(len(begins) - 1, 1)
                clock = max(clock, self._begin_day(day))
            clock += timedelta(seconds=self.random.randint(4, 150))
            message["timestamp"] = clock.timestamp()

    def _begin_day(self, day: int) -> datetime:
        start = datetime.combine(self.part.start, datetime.min.time(), tzinfo=timezone.utc)
        return start + timedelta(days=day, hours=8, minutes=7)
