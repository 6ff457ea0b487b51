"""Scores of passages and facts by their value for later work.

Rare text in a distinctive form scores high, and text that repeats words or forms scores low. The
odds are rounded results of a regression over generated sessions and sessions made of real files;
the odds of files and settings were set by hand. User messages score higher than tool output, except
errors in tool output. Newer text scores a little higher than older text. A name that the speech
repeats scores higher than a name that was only listed.

Statements in tool output, such as a person's note in a file, often have no name and no number. They
are recognised as sentences between lines that are not sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from session_core.compression.extractive import keywords, tokenize
from session_core.compression.extractive import patterns as p
from session_core.compression.extractive.facts import STATEMENT_KINDS, Fact, FactKind
from session_core.compression.extractive.passages import (
    MAX_LINES_PER_FORM,
    Passage,
    PassageSet,
    Speaker,
)
from session_core.compression.extractive.patterns import CODE_LINE, LOOKUP_COMMAND

_UNSPOKEN_KINDS = frozenset(("mention", "output", "command"))
NAME_KINDS = frozenset(("path", "url", "identifier", "number"))

_NAME_RUN = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")
_PLAIN_NUMBER = re.compile(r"(?<![^\W\d])\d+(?![^\W\d])")
_CODE_SIGN = re.compile(r"[(){};=]")
_NUMBERED_LINE = re.compile(r"\s*\d{1,6}(?:[|→\t]|:\s)")
_LIST_ITEM = re.compile(r"\s*(?:[-*>|#☐]|\d{1,3}[.)]\s)")

_COMMON_LINES = 3
"""The number of lines of a result in which a word counts as a part of their form."""
_MIN_BULK_COUNT = 2
"""The number of lines from which a form counts as repeated."""
_MAX_WORDS = 15
_MAX_LINES = 40
_MAX_SENTENCES = 5
_MIN_NAME_CHARS = 5


class _Odds(NamedTuple):
    """Log-odds: the base value of a passage, and the weight of each trait."""

    base: float
    form: float
    same: float
    factless: float


_RESULT_ODDS = _Odds(base=2.2, form=-2.6, same=-1.9, factless=-3.2)
_COMMON_ODDS = -7.8
_SIGN_ODDS = -28.0
_ERROR_ODDS = 1.9
_SETTING_ODDS = 4.0
_FILE_ODDS = -2.0
"""The odds of a line of a file, which can be read again, unless it is a setting or a task."""
_DIGIT_ODDS = 8.0
_WORD_ODDS = 0.15
_LINE_ODDS = 0.09
_BULK_ODDS = -0.2
_USED_NAME_ODDS = 1.1

_TALK_ODDS = _Odds(base=3.0, form=-1.6, same=-2.9, factless=-2.6)
_HAS_DIGIT_ODDS = 1.8
_HAS_COLON_ODDS = 1.2
_LIST_ITEM_ODDS = 2.5
_SENTENCE_COUNT_ODDS = -0.4


def compute_chances(reading: PassageSet) -> dict[int, float]:
    """Return the probability that each passage is worth keeping, by the passage's `id`."""
    groups: dict[str, list[Passage]] = {"result": [], "call": [], "talk": []}
    for passage in (*filter(_is_earlier_talk, reading.earlier), *reading.passages):
        groups.get(passage.speaker, groups["talk"]).append(passage)
    named = {
        fact.text
        for passages in (groups["talk"], groups["call"])
        for p in passages
        for fact in p.facts
    }
    odds = (
        *_score_results(groups["result"], named),
        *_score_talk(groups["talk"]),
        *_score_talk(groups["call"]),
    )
    return {at: 1 / (1 + math.exp(-value)) for at, value in odds}


def _is_earlier_talk(passage: Passage) -> bool:
    """Return whether a line of an earlier summary is speech, which is scored by its form."""
    line = passage.line
    return line is not None and line.author != "tool" and line.kind not in _UNSPOKEN_KINDS


def _score_results(passages: Sequence[Passage], named: set[str]) -> Iterator[tuple[int, float]]:
    often, same = _score_repetition(passages, _RESULT_ODDS)
    bulk = _count_name_forms(passages)
    for group in _group_by_place(passages):
        most = _LINE_ODDS * min(len(group), _MAX_LINES)
        values = [
            most
            + often[id(passage)]
            + same[id(passage)]
            + _COMMON_ODDS * common
            + _score_line(passage, bulk, named)
            for passage, common in zip(group, _measure_common_share(group), strict=True)
        ]
        yield from zip(map(id, group), adjust_statement_odds(group, values), strict=True)


def _score_line(passage: Passage, bulk: Mapping[str, int], named: set[str]) -> float:
    text = passage.text
    odds = _RESULT_ODDS.base if passage.facts else _RESULT_ODDS.base + _RESULT_ODDS.factless
    odds += _ERROR_ODDS * any(fact.kind == "error" for fact in passage.facts)
    if any(fact.kind == "number" and fact.text[0].isalpha() for fact in passage.facts):
        odds += _SETTING_ODDS
    elif not any(fact.kind == "task" for fact in passage.facts):
        odds += _FILE_ODDS * bool(_NUMBERED_LINE.match(text) or CODE_LINE.match(text))
    odds += _WORD_ODDS * min(tokenize.count_words(text), _MAX_WORDS)
    odds += _DIGIT_ODDS * sum(map(len, _DIGITS.findall(text))) / len(text)
    odds += _SIGN_ODDS * len(_CODE_SIGN.findall(text)) / len(text)
    return odds + _score_names(passage, bulk, named)


def _score_names(passage: Passage, bulk: Mapping[str, int], named: set[str]) -> float:
    names = [fact for fact in passage.facts if fact.kind in NAME_KINDS]
    if not names:
        return 0.0
    odds = _BULK_ODDS * math.log(min(bulk[get_name_form(fact)] for fact in names))
    used = any(len(fact.text) > _MIN_NAME_CHARS and fact.text in named for fact in names)
    return odds + _USED_NAME_ODDS * used


def _score_talk(passages: Sequence[Passage]) -> Iterator[tuple[int, float]]:
    often, same = _score_repetition(passages, _TALK_ODDS)
    sentences = Counter(passage.place for passage in passages if passage.place >= 0)
    for passage in passages:
        text = passage.text
        odds = _TALK_ODDS.base if passage.facts else _TALK_ODDS.base + _TALK_ODDS.factless
        odds += often[id(passage)] + same[id(passage)]
        odds += _SENTENCE_COUNT_ODDS * min(sentences[passage.place] or 1, _MAX_SENTENCES)
        odds += _HAS_DIGIT_ODDS * any(map(str.isdigit, text)) + _HAS_COLON_ODDS * (":" in text)
        if passage.speaker == "call":
            odds += _FILE_ODDS * bool(CODE_LINE.match(text) or LOOKUP_COMMAND.match(text))
        yield id(passage), odds + _LIST_ITEM_ODDS * (_LIST_ITEM.match(text) is not None)


def _score_repetition(
    passages: Sequence[Passage], odds: _Odds
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the penalties of passages for a repeated form and for repeated words."""
    shapes = [tokenize.make_form(passage.text) for passage in passages]
    often: Counter[str] = Counter()
    same: Counter[str] = Counter()
    for passage, own in zip(passages, shapes, strict=True):
        often[own] += _count_lines(passage)
        same[_normalize_text(passage)] += _count_lines(passage)
    pairs = list(zip(passages, shapes, strict=True))
    return (
        {
            id(passage): odds.form * math.log(max(often[own] / _MIN_BULK_COUNT, 1))
            for passage, own in pairs
        },
        {
            id(passage): odds.same * math.log(max(same[_normalize_text(passage)], 1))
            for passage, _ in pairs
        },
    )


def _normalize_text(passage: Passage) -> str:
    """Return the text of a passage without its variable parts.

    In speech only plain numbers are variable.
    """
    if passage.speaker == "result":
        return passage.template or passage.text
    return _PLAIN_NUMBER.sub("0", passage.text)


def _count_lines(passage: Passage) -> int:
    """Return the number of similar lines that a passage represents."""
    return max(passage.repeated // MAX_LINES_PER_FORM, 1) if passage.speaker == "result" else 1


def get_name_form(fact: Fact) -> str:
    """Return the form of a name, which similar names in a list share."""
    if fact.kind == "number":
        return _DIGITS.sub("0", fact.text)
    head, dot, tail = fact.text.rpartition(".")
    name = _NAME_RUN.sub(_classify_run, head if dot and tail.isalpha() else fact.text)
    return f"{fact.kind} {name}.{tail}" if dot and tail.isalpha() else f"{fact.kind} {name}"


def _classify_run(run: re.Match[str]) -> str:
    text = run.group()
    return "a" if text.isalpha() else "0" if text.isdigit() else f"x{len(text)}"


def _count_name_forms(passages: Iterable[Passage]) -> Counter[str]:
    """Return the number of different names by their form."""
    names = {
        (get_name_form(fact), fact.text)
        for passage in passages
        for fact in passage.facts
        if fact.kind in NAME_KINDS
    }
    return Counter(form for form, _ in names)


def _group_by_place(passages: Iterable[Passage]) -> Iterable[list[Passage]]:
    groups: dict[int, list[Passage]] = defaultdict(list)
    for passage in passages:
        groups[passage.place].append(passage)
    return groups.values()


def _measure_common_share(group: Sequence[Passage]) -> Iterator[float]:
    """Yield, for each line, the fraction of its words that many lines of the group repeat."""
    tokens = [tokenize.extract_tokens(passage.template) for passage in group]
    often: Counter[str] = Counter()
    for passage, own in zip(group, tokens, strict=True):
        for token in own:
            often[token] += min(passage.repeated, _COMMON_LINES)
    for own in tokens:
        yield sum(often[token] >= _COMMON_LINES for token in own) / len(own) if own else 1.0


_KIND_WEIGHTS: Mapping[FactKind, float] = {
    "decision": 1.0,
    "task": 1.0,
    "error": 0.9,
    "command": 0.8,
    "url": 0.9,
    "path": 0.75,
    "identifier": 0.4,
    "number": 0.25,
}
"""The value of a fact without the words around it, relative to its passage. A bare number or name
often says nothing.
"""
_SPEAKER_WEIGHTS: Mapping[Speaker, float] = {
    "earlier": 1.0,
    "user": 1.0,
    "assistant": 0.85,
    "call": 0.6,
    "result": 0.6,
}
_FAILURE_FACTOR = 1.2
"""An error in tool output counts more than the words of a user, because the next step depends on
it.
"""
_STATEMENT_FACTOR = 1.4
"""A decision or an open task cannot be looked up elsewhere."""
_OLDEST_FACTOR = 0.8
_REUSED_FACTOR = 1.3


@dataclass(slots=True)
class ScoredPassage:
    """A passage with its score, the scores of its facts, and its probability."""

    passage: Passage
    facts: list[float]
    alone: float
    chance: float


def score_passages(reading: PassageSet) -> list[ScoredPassage]:
    """Return all passages in order, with their scores."""
    scale = _Scorer(reading)
    return [scale.score_passage(passage) for passage in (*reading.earlier, *reading.passages)]


class _Scorer:
    def __init__(self, reading: PassageSet) -> None:
        passages = reading.passages
        self._last = max((passage.place for passage in passages), default=0) or 1
        self._talked: dict[str, set[int]] = defaultdict(set)
        for passage in passages:
            for fact in passage.facts if passage.speaker != "result" else ():
                self._talked[fact.text].add(passage.place)
        self._bare = _find_bare_names(passages)
        self._chances = compute_chances(reading)

    def score_passage(self, passage: Passage) -> ScoredPassage:
        failed = any(fact.kind == "error" for fact in passage.facts)
        factor = (
            _FAILURE_FACTOR
            if failed and passage.speaker == "result"
            else _SPEAKER_WEIGHTS[passage.speaker]
        )
        if any(fact.kind in STATEMENT_KINDS for fact in passage.facts):
            factor *= _STATEMENT_FACTOR
        if passage.place >= 0:
            factor *= _OLDEST_FACTOR + (1 - _OLDEST_FACTOR) * passage.place / self._last
        chance = self._chances.get(id(passage), 1.0)
        alone = factor * chance
        values = [self._score_fact(passage, fact, alone) for fact in passage.facts]
        return ScoredPassage(passage, values, alone, chance)

    def _score_fact(self, passage: Passage, fact: Fact, alone: float) -> float:
        if passage.speaker != "result":
            again = len(self._talked[fact.text]) > 1
            return alone * _KIND_WEIGHTS[fact.kind] * (_REUSED_FACTOR if again else 1)
        if fact.kind == "path" and (stem := _get_file_stem(fact.text)) in self._bare:
            return _REUSED_FACTOR / len(self._bare[stem])
        return alone * _KIND_WEIGHTS[fact.kind]


def _find_bare_names(passages: Sequence[Passage]) -> dict[str, set[str]]:
    """Return the file names that the speech uses without a folder, with the matching paths."""
    talked = {
        fact.text
        for passage in passages
        if passage.speaker != "result"
        for fact in passage.facts
        if fact.kind in ("path", "identifier")
    }
    fitting: dict[str, set[str]] = defaultdict(set)
    for passage in passages:
        for fact in passage.facts if passage.speaker == "result" else ():
            if fact.kind == "path" and (stem := _get_file_stem(fact.text)) in talked:
                fitting[stem].add(fact.text)
    return fitting


def _get_file_stem(path: str) -> str:
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2].partition(":")[0]


_WORD = re.compile(r"[^\W\d_]+")
_STOP_WORDS = frozenset(keywords.STOP_WORDS.split())
_SENTENCE_ENDS = ".!?。"
_MIN_PROSE_WORDS = 2
"""The number of stop words from which a line counts as prose."""
_MIN_WIDE_WORDS = 3

_LINE_FACTOR = 0.6
_STATEMENT_ODDS = -0.8
_PROSE_ODDS = 2.9
_SENTENCE_ODDS = 2.8
_TASK_ODDS = 1.4
_MARKED_TASK_ODDS = 3.0


def adjust_statement_odds(group: Sequence[Passage], of_line: Sequence[float]) -> Iterator[float]:
    """Yield the odds of each result line, adjusted if the line may be a statement."""
    little = [_count_stop_words(passage.text) for passage in group]
    plain = sum(count < _MIN_PROSE_WORDS for count in little) / len(group)
    for passage, count, value in zip(group, little, of_line, strict=True):
        if _is_statement(passage):
            odd = _PROSE_ODDS * plain * (count >= _MIN_PROSE_WORDS)
            task = _TASK_ODDS * any(fact.kind == "task" for fact in passage.facts)
            task += _MARKED_TASK_ODDS * _is_marked_task(passage)
            sentence = _SENTENCE_ODDS * (count > 0 and _is_sentence(passage.text))
            yield _STATEMENT_ODDS + _LINE_FACTOR * value + odd + sentence + task
        else:
            yield value


def _is_statement(passage: Passage) -> bool:
    """Return whether a line has no fact, or only a decision or a task."""
    return not passage.facts or any(fact.kind in STATEMENT_KINDS for fact in passage.facts)


def _is_marked_task(passage: Passage) -> bool:
    """Return whether a mark shows an open task, as in a comment or an agent's list."""
    text = passage.text
    return bool(p.TASK_SIGN.match(text) or ('"stat' in text and p.OPEN_JSON_ITEM.search(text)))


def _is_sentence(text: str) -> bool:
    return text[-1] in _SENTENCE_ENDS and text[0].isupper()


def _count_stop_words(text: str) -> int:
    """Return the number of stop words in a text.

    A text in a script without spaces counts as prose.
    """
    words = _WORD.findall(text.lower())
    if not text.isascii() and tokenize.count_words(text) - len(words) >= _MIN_WIDE_WORDS:
        return _MIN_PROSE_WORDS
    return sum(word in _STOP_WORDS for word in words)
