"""A scripted model that knows its task and the answers that it has read.

An id, handle or cursor that it passes must have occurred in an answer before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mcp import Client

KNOWN_ONLY = (
    *("session", "sessions", "batch", "plan", "cursor", "store", "before", "after", "around"),
)
"""Arguments whose values come from somewhere: a task, or an answer."""


@dataclass
class Model:
    """A model that plays one task and counts its calls and characters."""

    client: Client
    task: str
    steps: tuple[str, ...]
    """What cannot be done with fewer calls."""
    calls: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    @property
    def characters(self) -> int:
        """The number of characters of the answers."""
        return sum(map(len, self.read))

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Call a tool with known values and read the answer."""
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
                output = json.dumps(value, ensure_ascii=False).strip('"')
                assert output in known, f"{name}={value} is nowhere in what it has read"

    def check(self, most: int, errors: int = 0) -> None:
        """Check that the task took no more calls and characters than it needs."""
        spent = f"{self.task}: {self.calls}, {self.characters} characters, {self.errors}"
        assert len(self.calls) == len(self.steps), spent
        assert len(self.errors) == errors, spent
        assert self.characters <= most, spent
