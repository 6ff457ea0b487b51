"""Measure the facts of a range that its summary still contains verbatim."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session_core.compression import chat_messages
from session_core.compression.chat_messages import Message
from session_core.compression.extractive import passages
from session_core.compression.extractive.facts import FACT_KINDS, FactKind
from session_core.compression.extractive.passages import PassageSet

_NAME_RUN = re.compile("[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """The number of distinct facts found and kept, in total and by kind."""

    found: int
    kept: int
    by_kind: Mapping[FactKind, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RetentionReport:
        """Return the report from its JSON."""
        by_kind = {kind: (found, kept) for kind, (found, kept) in stored["by_kind"].items()}
        return cls(stored["found"], stored["kept"], by_kind)


def measure_retention(
    range_messages: Iterable[Message],
    summary: str,
    kept_messages: Iterable[Message] = (),
) -> RetentionReport:
    """Return how many facts of a range are in its summary or in the messages that stay.

    Facts are those of `read_passages`, which reads only the first few of many similar lines.
    """
    text = _SearchableText("\n".join((summary, *_collect_texts(kept_messages))))
    found: Counter[FactKind] = Counter()
    kept: Counter[FactKind] = Counter()
    for kind, fact in sorted(_collect_facts(passages.read_passages(range_messages))):
        found[kind] += 1
        kept[kind] += text.has_fact(fact)
    by_kind = {kind: (found[kind], kept[kind]) for kind in FACT_KINDS if found[kind]}
    return RetentionReport(found.total(), kept.total(), by_kind)


class _SearchableText:
    """A long text that is searched for many short ones, most of which it does not contain."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = frozenset(_NAME_RUN.findall(text))

    def has_fact(self, fact: str) -> bool:
        """Return whether the text contains a fact that is not part of a longer name."""
        # Most facts are absent, and a set of words rules them out without a search of the text.
        if fact.isascii() and not self._words.issuperset(_NAME_RUN.findall(fact)):
            return False
        at = self._text.find(fact)
        while at >= 0:
            if not self._is_longer_name(at, at + len(fact)):
                return True
            at = self._text.find(fact, at + 1)
        return False

    def _is_longer_name(self, begin: int, end: int) -> bool:
        text = self._text
        before = begin > 0 and _is_joined(text[begin - 1], text[begin])
        return before or (end < len(text) and _is_joined(text[end - 1], text[end]))


def _is_joined(left: str, right: str) -> bool:
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()


def _collect_facts(passage_set: PassageSet) -> set[tuple[FactKind, str]]:
    all_passages = (*passage_set.earlier, *passage_set.passages)
    return {(fact.kind, fact.text) for passage in all_passages for fact in passage.facts}


def _collect_texts(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        yield chat_messages.get_text(message)
        yield from (answer.text for answer in chat_messages.list_results(message))
        yield from (call.arguments for call in chat_messages.list_calls(message))
