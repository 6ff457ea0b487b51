"""Corrections: the earlier statements that a later statement corrects.

A correction denies a value or a name of the earlier statement, or claims another value of the same
kind about the same subject. The less clearly its words show a correction, the more the two
statements must have in common.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from session_core.compression.extractive import claims, cues, values
from session_core.compression.extractive.claims import Claims
from session_core.compression.extractive.patterns import CHECKBOX, WORD
from session_core.compression.extractive.topics import TopicIndex
from session_core.compression.extractive.values import Value
from session_core.state.search_text import SPACELESS_CHARS

if TYPE_CHECKING:
    from session_core.compression.extractive.statements import Statement

_MARKED_OVERLAP = 0.15
_CONTEXT_OVERLAP = 0.34
_DENIED_OVERLAP = 0.15
_LOOSE_OVERLAP = 0.3
"""The minimum overlap if one of the values has no unit."""
_STRONG_OVERLAP = 0.5
_SAME_OVERLAP = 0.55
"""The minimum overlap if no word shows a correction."""
_SURE = 2.0
_BEST_SHARE = 0.6
_MIN_STRONG_WORDS = 2
_MIN_REFUSED_VALUES = 2
_MIN_TELLING_DIGITS = 2
_MAX_SUBJECT_WORDS = 3
_MIN_SUBJECT_WORDS = 2
_NEAR_MESSAGES = 6
_STEM_CHARS = 4
_SUBJECT_WORD = re.compile(rf"[^\W{SPACELESS_CHARS}]+|[{SPACELESS_CHARS}]")
_NAME_WORD = (
    rf"[^\W\d_a-zа-я{SPACELESS_CHARS}][^\W\d_{SPACELESS_CHARS}]{{2,}}"  # noqa: RUF001 -- Russian
    r"|[\u4e00-\u9fff]{2}(?=さん|氏|様|部長)"
)
_NAME = re.compile(rf"(?<!\w)(?:{_NAME_WORD})")
_SUBJECT_NAME = re.compile(
    r"(?:^|[:.;,] |\n|(?i:\b(?:and|und|et|y|и|but|aber|mais|pero|mrs?\.?|ms\.?|frau|herrn?|mme"
    rf"|sra?\.?)\s))({_NAME_WORD})"
)
"""A name at the beginning of a clause. In German other nouns are written like names."""
_PREPOSITION_LIST = """
    at to of on in by for from is be auf bei in um zu für von a à au de du en le la les est al del
    el es en по на в до с за は が を に の 在 是 为 到
"""  # noqa: RUF001 -- Russian
_PREPOSITIONS = frozenset(_PREPOSITION_LIST.split())
_LIMIT = re.compile(
    r"\b(?:max(?:imum|imal)?|at most|(?:no|not) (?:more|longer|larger|later) than|(?:longer"
    r"|more) than"
    r"|limit|caps?|capped|höchstens|nicht (?:mehr|länger|größer) als|grenze|au (?:plus|maximum)"
    r"|plafond"
    r"|como máximo|(?:no )?más de|límite|не (?:более|больше|длиннее)|максимум|лимит)\b"
    r"|最多|不超过|上限|以内|最大|まで"
)
"""Words of a limit. Of two limits of one subject only the later holds."""
_UNSTATED_KINDS = frozenset(("command", "file", "mention", "output"))
"""Kinds without a claim, for which another value alone is not a correction."""

Related = Iterable[tuple[int, set[str]]]


class Correction(NamedTuple):
    """An earlier statement that is corrected, and the certainty of the correction."""

    place: int
    certainty: float
    is_whole: bool
    """Whether no other part of the earlier statement still holds."""
    is_person: bool = False
    """Whether a named person is replaced, which corrects each statement about that person."""


class CorrectionFinder:
    """Finds the earlier statements that a statement corrects."""

    def __init__(self, speech: Sequence[Statement], index: TopicIndex) -> None:
        self._speech = speech
        self._index = index
        self._claims: dict[int, Claims] = {}

    def find_corrected(self, at: int, related: Related) -> list[Correction]:
        """Return the earlier statements that a statement corrects."""
        statement = self._speech[at]
        if statement.traits.is_question and not statement.parts:
            return []
        folded = _get_folded_text(statement)
        rejects = claims.is_rejection(folded)
        marked = _is_marked_correction(statement)
        if not (marked or rejects or self._index.values[at] or claims.has_denial(folded)):
            return []
        refused = self._list_refused_values(at)
        corrections = list(self._find_refused(at, refused)) if refused else []
        if not marked and claims.has_denial(folded):
            marked = bool(self._get_claims(at).denied)
        for other, common in self._add_context(at, related) if marked else related:
            before = self._speech[other]
            if before.state != "current" or (before.kind == "done" and statement.kind != "done"):
                continue
            if not _is_later(statement, before):
                continue
            if self._is_rejected(at, other) or self._is_other_limit(at, other):
                corrections.append(Correction(other, _SURE, is_whole=False))
            elif marked:
                corrections += self._find_marked_correction(at, other, common)
            elif common & self._index.topics[at]:
                corrections += self._find_unmarked_correction(at, other, common)
        best = max((item.certainty for item in corrections if not item.is_person), default=0.0)
        return [
            item for item in corrections if item.is_person or item.certainty >= best * _BEST_SHARE
        ]

    def _add_context(self, at: int, related: Related) -> Related:
        """Return the related statements, and statements related to the preceding statement."""
        related_words = {other: set(common) for other, common in related}
        before = self._find_answered_statement(at)
        if before is not None:
            for other, common in self._index.find_related(before):
                related_words.setdefault(other, set()).update(common)
        return list(related_words.items())

    def _find_answered_statement(self, at: int) -> int | None:
        """Return the last statement of the other side, if a statement replies to it.

        To-do lists and other statements of the same side between the two do not count.
        """
        statement = self._speech[at]
        if statement.is_narration or statement.age:
            return None
        for place in range(at - 1, -1, -1):
            before = self._speech[place]
            if statement.passage.place - before.passage.place > _NEAR_MESSAGES or before.age:
                return None
            if before.author != statement.author and not CHECKBOX.match(before.text):
                return None if before.is_narration else place
        return None

    def _list_refused_values(self, at: int) -> frozenset[object]:
        """Return the values that the other side asked about, if a reply says no and names others.

        One value alone is too little: the earlier statement need not share a word with the reply.
        """
        if len(self._index.values[at]) < _MIN_REFUSED_VALUES or not self._begins_with_no(at):
            return frozenset()
        claimed = _list_amounts(self._get_claims(at).claimed)
        context = self._find_answered_statement(at)
        if context is None or not self._speech[context].traits.is_question:
            return frozenset()
        asked = _list_amounts(values.read_values(_get_folded_text(self._speech[context]), 1))
        enough = min(len(asked), len(claimed)) >= _MIN_REFUSED_VALUES and asked.isdisjoint(claimed)
        return asked if enough else frozenset()

    def _begins_with_no(self, at: int) -> bool:
        """Return whether the message of a statement begins with a rejection."""
        first = at
        while first and self._speech[first - 1].passage.place == self._speech[at].passage.place:
            first -= 1
        return claims.is_rejection(_get_folded_text(self._speech[first]))

    def _find_refused(self, at: int, refused: frozenset[object]) -> Iterator[Correction]:
        """Yield the question and the earlier statements with all values that a reply refuses."""
        question = self._find_answered_statement(at)
        if question is not None:
            yield Correction(question, _SURE, is_whole=True)
        for other, before in enumerate(self._speech[:at]):
            known = before.state == "current" and len(self._index.values[other]) >= len(refused)
            if known and refused <= _list_amounts(self._get_claims(other).claimed):
                yield Correction(other, _SURE, is_whole=False)

    def _find_marked_correction(
        self, at: int, other: int, common: set[str]
    ) -> Iterator[Correction]:
        """Yield the correction by a statement whose words show a correction."""
        index, new, old = self._index, self._get_claims(at), self._get_claims(other)
        topic = (common - new.value_words - old.value_words) & index.topics[other]
        denied = self._find_denied(at, other, common, topic)
        if denied:
            yield Correction(
                other,
                _SURE + self._measure_common_share(at, other, topic),
                not _has_other_value(old, denied),
            )
            return
        conflict = _find_conflict(new, old)
        if conflict and conflict[0].kind.startswith(("host", "path")):
            yield Correction(other, _SURE, is_whole=True)
        if not any(map(index.is_rare, topic)):
            return
        overlap = self._measure_common_share(at, other, topic)
        if not topic & index.topics[at]:
            # A word that the speaker did not repeat is less certain.
            enough = (
                conflict and conflict[0].kind == conflict[1].kind and overlap >= _CONTEXT_OVERLAP
            )
            if conflict and enough and self._has_same_subject(at, other, conflict):
                yield Correction(other, overlap, is_whole=False)
        elif conflict:
            loose = "number" in (conflict[0].kind, conflict[1].kind)
            enough = overlap >= (_LOOSE_OVERLAP if loose else _MARKED_OVERLAP)
            if enough and self._has_same_subject(at, other, conflict):
                yield Correction(
                    other, overlap, not loose and not _has_other_value(old, conflict[1])
                )
            return
        strong = new.is_strong and len(topic) >= _MIN_STRONG_WORDS
        strong = strong and min(overlap, self._measure_word_share(other, topic)) >= _STRONG_OVERLAP
        named = self._is_person_replaced(at, other)
        if strong or named or self._is_role_taken(at, other, overlap):
            yield Correction(other, overlap, is_whole=False, is_person=named)

    def _is_other_limit(self, at: int, other: int) -> bool:
        """Return whether a limit names the amount of an earlier limit of the same unit.

        In `at most 32 letters, 40 already breaks` the earlier limit is the reason.
        """
        texts = (_get_folded_text(self._speech[place]) for place in (at, other))
        if not self._index.values[at] & self._index.values[other] or not all(
            map(_LIMIT.search, texts)
        ):
            return False
        new, old = self._get_claims(at), self._get_claims(other)
        conflict = _find_conflict(new, old)
        same_kind = conflict is not None and conflict[0].kind == conflict[1].kind
        return bool(conflict and same_kind and conflict[1].amount in new.amounts)

    def _find_unmarked_correction(
        self, at: int, other: int, common: set[str]
    ) -> Iterator[Correction]:
        """Yield the correction if both statements say the same about different values."""
        index = self._index
        if {self._speech[at].kind, self._speech[other].kind} & _UNSTATED_KINDS:
            return
        # Most have little in common; counting is faster than weighing.
        if 2 * len(common) < len(index.topics[other]):
            return
        new, old = self._get_claims(at), self._get_claims(other)
        conflict = _find_conflict(new, old)
        if not conflict or not all(value.is_free for value in conflict):
            return
        if len(new.amounts - old.amounts) != 1 or len(old.amounts - new.amounts) != 1:
            return
        topic = common - new.value_words - old.value_words
        if not any(map(index.is_rare, topic)):
            return
        words = index.topics[at] | index.topics[other]
        whole = index.sum_weights(words - new.value_words - old.value_words) or 1.0
        overlap = index.sum_weights(topic) / whole
        same = overlap >= _SAME_OVERLAP and self._has_same_subject(at, other, conflict)
        alike = len(topic) >= _MIN_SUBJECT_WORDS and self._has_same_beginning(at, other, conflict)
        if same or alike:
            yield Correction(other, overlap, is_whole=True)

    def _has_same_beginning(self, at: int, other: int, values: tuple[Value, Value]) -> bool:
        """Return whether two statements have the same words before their values."""
        new, old = (
            _list_subject(_get_folded_text(self._speech[place]), value.start)
            for place, value in zip((at, other), values, strict=True)
        )
        return (
            new == old
            and sum(map(_has_content_word, ([word] for word in new))) >= _MIN_SUBJECT_WORDS
        )

    def _measure_common_share(self, at: int, other: int, topic: AbstractSet[str]) -> float:
        """Return the weight of a topic divided by the weight of the shorter statement."""
        index = self._index
        ours = index.topics[at] - self._get_claims(at).value_words
        theirs = index.topics[other] - self._get_claims(other).value_words
        least = (
            min(index.sum_weights(ours), index.sum_weights(theirs))
            if topic <= ours
            else index.sum_weights(theirs)
        )
        return min(index.sum_weights(topic) / least, 1.0) if least else 0.0

    def _measure_word_share(self, at: int, topic: Iterable[str]) -> float:
        """Return the weight of some words divided by the weight of a statement."""
        whole = self._index.sum_weights(self._index.topics[at])
        return self._index.sum_weights(topic) / whole if whole else 0.0

    def _is_rejected(self, at: int, other: int) -> bool:
        """Return whether a reply rejects a recent statement of the other side."""
        statement, before = self._speech[at], self._speech[other]
        near = 0 < statement.passage.place - before.passage.place <= _NEAR_MESSAGES
        near = near and claims.is_rejection(_get_folded_text(statement))
        if not near or statement.author == before.author or before.traits.is_question:
            return False
        words = self._get_claims(at).rejected_words
        return bool(words) and 2 * len(words & self._index.words[other]) > len(words)

    def _find_denied(self, at: int, other: int, common: set[str], topic: set[str]) -> Value | None:
        """Return the value of an earlier statement that a correction denies."""
        index, new, old = self._index, self._get_claims(at), self._get_claims(other)
        known = any(map(index.is_rare, topic))
        for value in old.claimed:
            for denied in new.denied:
                exact = denied.kind == value.kind and denied.amount == value.amount
                bare = denied.kind == "number" and claims.is_denied_amount(
                    denied, value, new.claimed
                )
                telling = len(str(denied.amount).partition(".")[0]) >= _MIN_TELLING_DIGITS
                rare = (telling or bare) and any(map(index.is_rare, common))
                if (exact or bare) and (known or rare) and value.amount not in new.amounts:
                    return value
        words = new.denied_words & common
        if (
            any(map(index.is_rare, words))
            and self._measure_common_share(at, other, topic - words) >= _DENIED_OVERLAP
        ):
            return Value("word", "", 0, 0)
        return None

    def _is_person_replaced(self, at: int, other: int) -> bool:
        """Return whether a statement replaces a person whom the earlier statement names."""
        new, old = self._find_names(at), self._find_names(other)
        subjects = frozenset(_SUBJECT_NAME.findall(_get_text(self._speech[at])))
        replaced = cues.REPLACED_PERSON.search(_get_folded_text(self._speech[at]))
        return bool(subjects & new & old and new - old and replaced)

    def _is_role_taken(self, at: int, other: int, overlap: float) -> bool:
        """Return whether two statements name different persons for the same task."""
        if not self._find_names(at) - self._find_names(other) or overlap < _MARKED_OVERLAP:
            return False
        return _is_person(self._speech[at]) and _is_person(self._speech[other])

    def _find_names(self, at: int) -> frozenset[str]:
        return frozenset(_NAME.findall(_get_text(self._speech[at])))

    def _has_same_subject(self, at: int, other: int, values: tuple[Value, Value]) -> bool:
        """Return False if one word before the values differs, as in `staging`, `production`."""
        if self._get_claims(at).is_strong:
            return True
        new = _list_subject(_get_folded_text(self._speech[at]), values[0].start)
        old = _list_subject(_get_folded_text(self._speech[other]), values[1].start)
        codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        for place, (tag, begin, end, first, last) in enumerate(codes):
            if tag != "replace" or max(end - begin, last - first) > _MAX_SUBJECT_WORDS:
                continue
            around = (*codes[max(place - 1, 0) : place], *codes[place + 1 : place + 2])
            has_equal_neighbour = any(
                _has_content_word(old[code[1] : code[2]]) for code in around if code[0] == "equal"
            )
            if (
                has_equal_neighbour
                and _has_content_word(old[begin:end])
                and _has_content_word(new[first:last])
            ):
                return False
        return True

    def _get_claims(self, at: int) -> Claims:
        if at not in self._claims:
            statement = self._speech[at]
            self._claims[at] = claims.read_claims(
                _get_folded_text(statement), _is_strong_correction(statement)
            )
        return self._claims[at]


def _is_later(statement: Statement, before: Statement) -> bool:
    """Return whether a statement is certainly later than another statement.

    The sections of a summary have no order.
    """
    if not statement.age:
        return True
    if statement.message_id is not None and before.message_id is not None:
        return statement.message_id > before.message_id
    return statement.kind in ("changed", before.kind)


def _get_text(statement: Statement) -> str:
    """Return the text of a statement with its parts, without the values that it has replaced."""
    parts = [part.text for label, part in statement.parts if label != "previously"]
    parts += [line.text for line in statement.old_parts if line.label != "previously"]
    return "\n".join((statement.text, *parts)) if parts else statement.text


def _get_folded_text(statement: Statement) -> str:
    return _get_text(statement).lower().replace("\u2019", "'")


def _is_marked_correction(statement: Statement) -> bool:
    parts = (part for label, part in statement.parts if label != "previously")
    return any(item.traits.is_correction or item.kind == "changed" for item in (statement, *parts))


def _is_strong_correction(statement: Statement) -> bool:
    folded = _get_folded_text(statement)
    words = frozenset(WORD.findall(folded))
    return statement.kind == "changed" or cues.STRONG_CORRECTION.is_in(folded, words)


def _is_person(statement: Statement) -> bool:
    folded = _get_folded_text(statement)
    return cues.PERSON.is_in(folded, frozenset(WORD.findall(folded)))


def _has_other_value(old: Claims, corrected: Value) -> bool:
    """Return whether a statement has a value besides the corrected value."""
    return any(value.amount != corrected.amount for value in old.claimed)


def _find_conflict(new: Claims, old: Claims) -> tuple[Value, Value] | None:
    """Return two values of one kind that cannot both hold."""
    for value in new.claimed:
        if any(denied.kind in (value.kind, "number") for denied in new.denied):
            continue
        alike = [
            candidate for candidate in old.claimed if claims.can_replace_value(value, candidate)
        ]
        # A word that the next clause repeats is a reason: `on Sundays, she dances on Saturdays`.
        repeated = {
            candidate.amount for candidate in new.claimed if candidate.clause == value.clause
        }
        if alike and not any(candidate.amount in repeated for candidate in alike):
            return value, alike[0]
    return None


def _list_amounts(read: Iterable[Value]) -> frozenset[object]:
    """Return the amounts of values, in which a full hour equals its number."""
    return frozenset(
        (value.amount, 0) if value.kind == "number" else value.amount for value in read
    )


def _list_subject(folded: str, end: int) -> list[str]:
    """Return the stems of the words before a value, without words of a correction."""
    text = cues.CHANGE_WORD.sub(" ", folded[:end])
    return [word[:_STEM_CHARS] for word in _SUBJECT_WORD.findall(text)]


def _has_content_word(words: Collection[str]) -> bool:
    return any(word not in _PREPOSITIONS for word in words)
