"""Ask each question in one call of `sessions_search`, as a model does."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mcp_serve.stores.stores import ServedStores
from mcp_serve.tool_dispatcher import bind_call
from mcp_serve.tools.search import SPEC
from tests.bench.plain_questions.questions import PlainQuestion

FIRST_HITS = 5
_TOKEN_CHARS = 4


@dataclass
class AnswerCounts:
    """How many questions the first call answers."""

    asked: int = 0
    tokens: int = 0
    not_among_first: list[str] = field(default_factory=list)
    """Questions whose conversation is not among the first five hits."""
    not_in_answer: list[str] = field(default_factory=list)
    """Questions whose answer is in no snippet and no next message."""

    def render_lines(self) -> list[str]:
        """Return the counts and the questions that were missed."""
        first, inside = len(self.not_among_first), len(self.not_in_answer)
        return [
            f"conversation among the first {FIRST_HITS}: {self.asked - first} of {self.asked}",
            f"answer itself in the first call: {self.asked - inside} of {self.asked}",
            f"tokens of an answer: {self.tokens // self.asked}",
            *(f"  not among the first: {text}" for text in self.not_among_first),
            *(f"  not in the answer: {text}" for text in self.not_in_answer),
        ]


def ask_questions(
    served: ServedStores, questions: list[PlainQuestion], sessions: dict[int, str]
) -> AnswerCounts:
    """Ask all questions, and return the counts.

    `sessions` has the id of the session that answers each question.
    """
    counts = AnswerCounts()
    for number, question in enumerate(questions):
        answer: dict[str, Any] = bind_call(SPEC, {"query": question.text}, served)()
        counts.asked += 1
        counts.tokens += len(json.dumps(answer, ensure_ascii=False)) // _TOKEN_CHARS
        hits = answer["hits"]
        if sessions[number] not in [hit["session_id"] for hit in hits[:FIRST_HITS]]:
            counts.not_among_first.append(question.text)
        if not any(_has_answer(hit, question.answer) for hit in hits):
            counts.not_in_answer.append(question.text)
    return counts


def _has_answer(hit: dict[str, Any], answer: str) -> bool:
    return any(answer in hit.get(name, "") for name in ("snippet", "next"))
