"""A scripted model: it knows its task and what it has read, and pays for every call.

What it passes as an id, a handle or a cursor it must have read before: nothing else may be known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mcp import Client

KNOWN_ONLY = (
    *("session", "sessions", "batch", "plan", "cursor", "profile", "before", "after", "around"),
)
"""Arguments whose values come from somewhere: a task, or an answer."""


@dataclass
class Model:
    """Plays one task, and counts what it takes."""

    client: Client
    task: str
    steps: tuple[str, ...]
    """What cannot be done with fewer calls."""
    calls: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    @property
    def characters(self) -> int:
        """What it has read of answers."""
        return sum(map(len, self.read))

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool with what it knows, and read the answer."""
        self._check_known(given)
        result = await self.client.call_tool(tool, given)
        text = result.content[0].text
        self.calls.append(f"{tool}({', '.join(given)})")
        self.read.append(text)
        if result.is_error:
            self.errors.append(text)
            return {}
        answer: dict[str, Any] = result.structured_content
        return answer

    def _check_known(self, given: dict[str, Any]) -> None:
        known = "\n".join([self.task, *self.read])
        for name in KNOWN_ONLY:
            values = given.get(name, [])
            for value in values if isinstance(values, list) else [values]:
                said = json.dumps(value, ensure_ascii=False).strip('"')
                assert said in known, f"{name}={value} is nowhere in what it has read"

    def check(self, most: int, errors: int = 0) -> None:
        """Say whether it took more than the task needs."""
        spent = f"{self.task}: {self.calls}, {self.characters} characters, {self.errors}"
        assert len(self.calls) == len(self.steps), spent
        assert len(self.errors) == errors, spent
        assert self.characters <= most, spent
