"""Measurement of the statements of a conversation that its summary still contains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session_core.compression import chat_messages
from session_core.compression.chat_messages import Message
from session_core.compression.extractive import statements, topics
from session_core.compression.extractive.written_form import StatementKind

_KEPT_SHARE = 0.5
"""The share of a statement's words, and of its numbers, that one line must contain."""


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """The number of statements that were found and kept, in total and by kind.

    `found` includes the statements that earlier summaries have left out; `by_kind` does not.
    """

    found: int
    kept: int
    by_kind: Mapping[StatementKind, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RetentionReport:
        """Build the report from its JSON."""
        by_kind = {kind: (found, kept) for kind, (found, kept) in stored["by_kind"].items()}
        return cls(stored["found"], stored["kept"], by_kind)


def measure_retention(
    range_messages: Iterable[Message],
    summary: str,
    kept_messages: Iterable[Message] = (),
) -> RetentionReport:
    """Count the statements of a range that its summary or the kept messages contain."""
    lines = _LineIndex((summary, *_collect_texts(kept_messages)))
    found: Counter[StatementKind] = Counter()
    kept: Counter[StatementKind] = Counter()
    read = statements.read_statements(range_messages)
    for statement in read.statements:
        if statement.is_essential:
            found[statement.kind] += 1
            kept[statement.kind] += lines.has_statement(statement.text)
    by_kind = {kind: (found[kind], kept[kind]) for kind in sorted(found)}
    return RetentionReport(max(read.counted, found.total()), kept.total(), by_kind)


class _LineIndex:
    """An index of the lines of texts by their words."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._lines = [
            topics.extract_words(line) for text in texts for line in text.splitlines() if line
        ]
        self._places: dict[str, list[int]] = defaultdict(list)
        for at, words in enumerate(self._lines):
            for word in words:
                self._places[word].append(at)

    def has_statement(self, text: str) -> bool:
        """Return whether one line contains enough words and values of a statement."""
        words = topics.extract_words(text)
        if not words:
            return False
        common: Counter[int] = Counter(at for word in words for at in self._places.get(word, ()))
        values = frozenset(filter(topics.is_value, words))
        return any(
            count >= _KEPT_SHARE * len(words)
            and len(values & self._lines[at]) >= _KEPT_SHARE * len(values)
            for at, count in common.items()
        )


def _collect_texts(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        yield chat_messages.get_text(message)
        yield from (answer.text for answer in chat_messages.list_results(message))
        yield from (call.arguments for call in chat_messages.list_calls(message))
