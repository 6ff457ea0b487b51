"""The user of a client that can show forms."""

from __future__ import annotations

from typing import Any

from mcp.types import ElicitResult


class Human:
    """Gives the same answer to every question, and records the questions."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        """Answer a question."""
        self.asked.append(params.message)
        return ElicitResult(**self.answer)
