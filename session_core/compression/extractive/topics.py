"""Comparison of statements by their words.

The words of a statement are its values (numbers and names) and its content words, cut to a stem so
that forms of a word agree. A word weighs more if few statements contain it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from session_core.compression.extractive import keywords
from session_core.compression.extractive.patterns import SPACELESS_SIGN
from session_core.state.search_text import SPACELESS_CHARS

_STEM_CHARS = 5
_WORD = re.compile(rf"[^\W_{SPACELESS_CHARS}]+(?:[.:/_-][^\W_{SPACELESS_CHARS}]+)*")
_PHRASE_WORD = re.compile(rf"[^\W_{SPACELESS_CHARS}]+|[{SPACELESS_CHARS}]")
_PHRASE_WORDS = 4
_WIDE_PHRASE_WORDS = 6
"""The length of a phrase in a script without spaces, in characters."""
_WIDE_RUN = re.compile(f"[{SPACELESS_CHARS}]+")
_KANA = re.compile("[\u3040-\u309f]")
_MORE_STOP_WORDS = """
still need needs needed todo open task tasks remember remind please pending must have missing later
finished done ready complete completed noch offen fehlt fertig erledigt aufgabe bitte zu reste
faut encore terminé falta pendiente listo hecho terminado надо нужно осталось готово сделано
am been being because just about very really quite some more most much many such like get got
make made take use used want let say said know think see look well still even back now new time
every again yes okay im ive id were also may might shall upon per via am beim vom sich hier dort
mal schon sehr mehr alle alles diese dieser dieses mir mich uns euch unser unsere mein meine sein
haben hatte sei kann können soll sollen muss müssen cette ces mon ton son notre votre leur tout
tous toute plus très bien été être avoir fait faire este esta estos esas eso muy ser estar hay
нас вас его её их этот эта это эти был была было были быть мне тебе ещё уже так там тут
"""  # noqa: RUF001 -- Russian
_STOP_WORDS = frozenset((*keywords.STOP_WORDS.split(), *_MORE_STOP_WORDS.split()))
_COMMON_SHARE = 0.2
"""The share of statements from which a word does not distinguish topics."""
_MIN_POSTINGS = 40
_RARE_SHARE = 0.01
_MIN_RARE_PLACES = 4
_NAME_COUNT = 2.5
_MIN_NAME_CHARS = 3


def extract_words(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text, and its values as written."""
    folded = text.lower().replace("\u2019", "'")
    words = {
        word[:_STEM_CHARS] if word.isalpha() else word
        for word in _WORD.findall(folded)
        if len(word) > 1 or word.isdigit()
        if word not in _STOP_WORDS
    }
    if not folded.isascii():
        for run in _WIDE_RUN.findall(folded):
            pairs = (run[at : at + 2] for at in range(len(run) - 1))
            words.update(pair for pair in pairs if not all(map(_KANA.match, pair)))
    return frozenset(words)


def is_value(word: str) -> bool:
    """Return whether a word is a number or a name with a number."""
    return any(map(str.isdigit, word))


class TopicIndex:
    """The words of statements, their weights, and the statements that contain them."""

    def __init__(self, texts: Iterable[frozenset[str]]) -> None:
        self.words = list(texts)
        self._postings: dict[str, list[int]] = defaultdict(list)
        for at, words in enumerate(self.words):
            for word in words:
                self._postings[word].append(at)
        count = len(self.words) + 1
        self._weights: Mapping[str, float] = {
            word: math.log(count / len(places)) + 0.1 for word, places in self._postings.items()
        }
        self._most_weight = math.log(count) + 0.1
        self._rare = max(_MIN_RARE_PLACES, int(_RARE_SHARE * count))
        self.values = [frozenset(filter(is_value, words)) for words in self.words]
        self.topics = [
            words - values for words, values in zip(self.words, self.values, strict=True)
        ]
        self._most = max(_MIN_POSTINGS, int(_COMMON_SHARE * count))

    def sum_weights(self, words: Iterable[str]) -> float:
        """Return the total weight of words.

        The order of a set differs between processes; `fsum` returns the same sum for each order.
        """
        return math.fsum(self._weights.get(word, 0.0) for word in words)

    def measure_in_rare_words(self, words: Iterable[str]) -> float:
        """Return the total weight of words as a number of words of maximal weight."""
        return self.sum_weights(words) / self._most_weight

    def count_statements_with(self, word: str) -> int:
        """Return the number of statements that contain a word."""
        return len(self._postings[word])

    def is_rare(self, word: str) -> bool:
        """Return whether few statements contain a word, so that it names their subject."""
        return self.count_statements_with(word) <= self._rare

    def find_related(self, at: int) -> Iterator[tuple[int, set[str]]]:
        """Yield earlier statements that share words with a statement, with the shared words.

        A word that very many statements contain does not count.
        """
        common: dict[int, set[str]] = defaultdict(set)
        for word in sorted(self.words[at]):
            places = self._postings[word]
            if len(places) <= self._most:
                for other in places[: bisect_left(places, at)]:
                    common[other].add(word)
        yield from common.items()

    def measure_coverage(self, part: int, whole: int) -> float:
        """Return the share of one statement's topic that another statement contains."""
        total = self.sum_weights(self.topics[part])
        return self.sum_weights(self.topics[part] & self.topics[whole]) / total if total else 0.0


class SharedWords:
    """The words that more than one message contains."""

    def __init__(self, texts: Iterable[tuple[int, frozenset[str]]]) -> None:
        first: dict[str, int] = {}
        self._shared = {
            word
            for place, words in texts
            for word in words
            if first.setdefault(word, place) != place
        }

    def count_unique(self, words: frozenset[str]) -> float:
        """Return the number of words that no other message contains.

        A name counts as several words.
        """
        return sum(_NAME_COUNT if _is_name(word) else 1 for word in words - self._shared)


class SharedPhrases:
    """The short phrases that more than one message contains."""

    def __init__(self, texts: Iterable[tuple[int, str]]) -> None:
        self._places: dict[int, list[int]] = defaultdict(list)
        last: dict[int, int] = {}
        counts: Counter[int] = Counter()
        for place, text in texts:
            phrases = _list_phrases(text)
            self._places[place] += phrases
            for phrase in phrases:
                if last.get(phrase) != place:
                    last[phrase] = place
                    counts[phrase] += 1
        self._counts = counts

    def measure_novelty(self) -> dict[int, float]:
        """Return the share of each message's phrases that is its own, from 0 to 1, by place."""
        return {
            place: sum(1 / self._counts[phrase] for phrase in phrases) / len(phrases)
            if phrases
            else 1.0
            for place, phrases in self._places.items()
        }


def _list_phrases(text: str) -> list[int]:
    words = _PHRASE_WORD.findall(text.lower())
    words = ["0" if word.isdigit() else word for word in words]
    count = _WIDE_PHRASE_WORDS if SPACELESS_SIGN.search(text) else _PHRASE_WORDS
    runs = zip(*(words[at:] for at in range(min(count, len(words)))), strict=False)
    return [hash(run) for run in runs]


def _is_name(word: str) -> bool:
    """Return whether a word is a compound name or a number of several digits."""
    return not word.isalpha() and len(word) >= _MIN_NAME_CHARS
