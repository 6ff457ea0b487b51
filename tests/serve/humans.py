"""A person in front of a client."""

from __future__ import annotations

from typing import Any

from mcp.types import ElicitResult


class Human:
    """Answers every question in one way, and remembers them."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        """Answer a question."""
        self.asked.append(params.message)
        return ElicitResult(**self.answer)
