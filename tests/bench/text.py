"""Text as in transcripts: prose over a Zipf vocabulary, code, paths, logs, some CJK.

The same seed gives the same text. Words, lengths and shares are chosen so that an index has the
proportions of an index over real transcripts: few words are everywhere, most are rare, and tool
output is full of paths, numbers and ids that occur once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

HALF_WORD = "gateway"
"""A word that the text leaves out, so that it can be planted in half of all messages."""

COMMON_WORDS = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split()

_SYLLABLE_STARTS = (
    *"bcdfghjklmnprstvwz",
    "br",
    "cl",
    "dr",
    "fl",
    "gr",
    "pl",
    "pr",
    "qu",
    "sk",
    "sl",
    "st",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
_SYLLABLE_ENDS = ("", "", "n", "r", "s", "t", "l", "nd", "rk", "m", "x")
_FOLDER_NAMES = ("src", "app", "core", "api", "jobs", "web", "tests", "docs", "scripts", "models")
_FILE_SUFFIXES = ("py", "ts", "go", "rs", "sql", "md", "json", "yaml", "toml", "sh")
_CJK_TEXT = (
    "我们今天讨论数据库的迁移计划首先需要备份然后检查索引最后验证结果如果失败就回滚到之前的版本"
    "会議の議事録を確認して修正しました次の手順を教えてください設定ファイルを更新する必要がある"
)

VOCABULARY_SIZE = 20_000
_FIRST_TOPIC, _TOPIC_STEP = 250, 3
_CHUNK_SIZE = 50_000


class TextWriter:
    """Writes messages, one after the other, from one seed."""

    def __init__(self, seed: int, topics: Iterable[str] = ()) -> None:
        """Prepare the vocabulary. `topics` are words that the text also uses."""
        self.random = random.Random(seed)
        self.vocabulary = self._invent_word(topics)
        weights = [1 / (rank + 2.7) for rank in range(len(self.vocabulary))]
        self._weights = list(accumulate(weights))
        self._words = self._draw_words()

    def write_message(self, role: str, mean: int = 470) -> str:
        """Return one message. Its length varies around `mean` characters, like real messages."""
        length = min(max(int(self.random.lognormvariate(0, 0.75) * mean * 0.7), 20), mean * 8)
        kind = self.random.random()
        if role == "tool":
            return self._write_tool_output(length)
        if kind < 0.03:
            return self.write_cjk(length // 3)
        if role == "assistant" and kind < 0.35:
            return self._add_code(length)
        return self.write_prose(length)

    def write_prose(self, length: int) -> str:
        """Return sentences."""
        parts: list[str] = []
        size = 0
        while size < length:
            sentence = self.write_sentence()
            parts.append(sentence)
            size += len(sentence) + 1
        return " ".join(parts)

    def write_sentence(self) -> str:
        """Return one sentence of 4 to 18 words."""
        words = [next(self._words) for _ in range(self.random.randint(4, 18))]
        return " ".join(words).capitalize() + self.random.choice((".", ".", ".", "?", ":"))

    def write_cjk(self, length: int) -> str:
        """Return Chinese and Japanese sentences."""
        start = self.random.randrange(len(_CJK_TEXT))
        return ((_CJK_TEXT + "。") * (length // len(_CJK_TEXT) + 2))[start : start + max(8, length)]

    def make_path(self) -> str:
        """Return the path of a source file."""
        folders = "/".join(self.random.sample(_FOLDER_NAMES, self.random.randint(1, 3)))
        return f"{folders}/{self._make_identifier()}.{self.random.choice(_FILE_SUFFIXES)}"

    def make_hex_id(self, digits: int) -> str:
        """Return a hexadecimal id."""
        return f"{self.random.getrandbits(digits * 4):0{digits}x}"

    def _make_identifier(self) -> str:
        return f"{next(self._words)}_{next(self._words)}"

    def _add_code(self, length: int) -> str:
        code = [
            f"    {self._make_identifier()} = {self._make_identifier()}({next(self._words)})"
            for _ in range(max(1, length // 140))
        ]
        fenced = "\n".join(("```python", f"def {self._make_identifier()}():", *code, "```"))
        return f"{self.write_prose(max(20, length - len(fenced)))}\n{fenced}"

    def _write_tool_output(self, length: int) -> str:
        lines: list[str] = []
        size = 0
        while size < length:
            line = self._write_tool_line()
            lines.append(line)
            size += len(line) + 1
        return "\n".join(lines)

    def _write_tool_line(self) -> str:
        kind = self.random.random()
        if kind < 0.4:
            return f"{self.make_path()}:{self.random.randint(1, 900)}: {self.write_sentence()}"
        if kind < 0.6:
            return (
                f"[{self.random.randint(0, 86399)}] {next(self._words)} id={self.make_hex_id(8)} ok"
            )
        if kind < 0.7:
            pair = (next(self._words), self.random.randint(0, 99999))
            return f'{{"{pair[0]}": {pair[1]}, "path": "{self.make_path()}"}}'
        return self.write_sentence()

    def _draw_words(self) -> Iterator[str]:
        while True:
            yield from self.random.choices(
                self.vocabulary, cum_weights=self._weights, k=_CHUNK_SIZE
            )

    def _invent_word(self, topics: Iterable[str]) -> list[str]:
        words = dict.fromkeys(COMMON_WORDS)
        while len(words) < VOCABULARY_SIZE:
            parts = (
                self.random.choice(_SYLLABLE_STARTS) + self.random.choice(_VOWELS)
                for _ in range(self.random.randint(1, 3))
            )
            words["".join(parts) + self.random.choice(_SYLLABLE_ENDS)] = None
        vocabulary = list(words)
        for number, topic in enumerate(sorted({*_list_topics(), *topics} - words.keys())):
            vocabulary.insert(_FIRST_TOPIC + number * _TOPIC_STEP, topic)
        return vocabulary


def _list_topics() -> set[str]:
    """Return the words of the planted questions, which other talk uses too."""
    text = Path(__file__).with_name("questions.txt").read_text(encoding="utf-8")
    return set(re.findall(r"[a-z]{3,}", text.lower())) - {HALF_WORD}
