"""Plain summarisers to compare with, independent of the fixture and of the compressor."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

Messages = Iterable[dict[str, Any]]

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。!?])|\n+")
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_SYMBOL = re.compile(r"[\d/_@#:=%€$.,-]")


def summarize_tfidf(messages: Messages, limit: int) -> str:
    """Return the sentences of talk with the highest mean TF-IDF, in their order."""
    sentences = _split_talk(messages)
    bags = [Counter(_list_terms(sentence)) for sentence in sentences]
    document_counts = Counter(term for bag in bags for term in bag)

    def score(index: int) -> float:
        bag = bags[index]
        weights = [
            count * math.log(len(bags) / document_counts[term]) for term, count in bag.items()
        ]
        return sum(weights) / math.sqrt(sum(bag.values()) + 4)

    return _take_best(sentences, score, limit)


def summarize_dense(messages: Messages, limit: int) -> str:
    """Return the sentences of talk with the most digits and symbols per character."""
    sentences = _split_talk(messages)

    def score(index: int) -> float:
        return len(_SYMBOL.findall(sentences[index])) / (len(sentences[index]) + 10)

    return _take_best(sentences, score, limit)


def summarize_head_tail(messages: Messages, limit: int) -> str:
    """Return the beginning and the end of the talk, half of the limit each."""
    text = "\n".join(_list_talk(messages))
    if len(text) <= limit:
        return text
    half = max((limit - 3) // 2, 0)
    return f"{text[:half]}\n…\n{text[len(text) - half :]}"[:limit]


BASELINES: dict[str, Callable[[Messages, int], str]] = {
    "tfidf": summarize_tfidf,
    "dense": summarize_dense,
    "head_tail": summarize_head_tail,
}


def _list_talk(messages: Messages) -> list[str]:
    return [
        message["content"]
        for message in messages
        if message["role"] in ("user", "assistant") and message["content"]
    ]


def _split_talk(messages: Messages) -> list[str]:
    """Return the sentences of the talk, each once."""
    sentences = (
        sentence.strip()
        for content in _list_talk(messages)
        for sentence in _SENTENCE_END.split(content)
    )
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def _list_terms(sentence: str) -> list[str]:
    """Return words, and pairs of characters for languages that are written without spaces."""
    folded = sentence.casefold()
    characters = _CJK.findall(folded)
    pairs = [first + second for first, second in pairwise(characters)]
    return _WORD.findall(_CJK.sub(" ", folded)) + pairs


def _take_best(sentences: list[str], score: Callable[[int], float], limit: int) -> str:
    chosen: list[int] = []
    size = 0
    for index in sorted(range(len(sentences)), key=lambda index: (-score(index), index)):
        if size + len(sentences[index]) + 1 <= limit:
            chosen.append(index)
            size += len(sentences[index]) + 1
    return "\n".join(sentences[index] for index in sorted(chosen))
