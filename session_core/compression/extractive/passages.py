"""Passages of a range of messages: sentences of speech, lines of tool input and output.

The work is bounded. In a very long range, user messages are read first, then calls, assistant
messages and results, the newest of each first. A result line that repeats, even at another time, is
read once. Of lines of the same form only the first few are read, unless the speech names them too.

A passage never ends inside a fact and never contains a redaction mark, because a summary may not
contain a redaction mark: the text before and after it is two passages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from session_core.compression import chat_messages, summary_message
from session_core.compression.chat_messages import Message
from session_core.compression.extractive import (
    alike_lines,
    facts,
    patterns,
    tokenize,
    written_form,
)
from session_core.compression.extractive.facts import Fact
from session_core.compression.extractive.patterns import (
    CODE_LINE,
    FENCE,
    LOG_TIMESTAMP,
    OPEN_JSON_ITEM,
    SHELLS,
    SPACELESS_SIGN,
)
from session_core.compression.extractive.tokenize import make_template
from session_core.compression.extractive.written_form import WrittenLine
from session_core.state import content
from session_core.state.content import extract_plain_text

MAX_RANGE_CHARS = 4_000_000
"""The default for the number of characters to read of a range."""

MAX_LINES_PER_FORM = 4
"""The number of lines of one form to read of a result."""
_STEM_SEPARATOR = re.compile(r"[\s/\\\"'`,:;()\[\]]+")
PlacedTexts = list[tuple[int, str]]


@dataclass(slots=True)
class PassageSet:
    """The passages of a range in order, and counts made while reading."""

    passages: list[Passage] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The last parts of all names that users, the assistant and its calls mention."""
    earlier: list[Passage] = field(default_factory=list)
    """The lines of the summaries in the range."""
    counted: int = 0
    """The number of statements that these summaries have counted."""


def read_passages(messages: Iterable[Message], most: int = MAX_RANGE_CHARS) -> PassageSet:
    """Return the passages of a range, reading at most `most` characters."""
    reading = PassageSet()
    texts = _collect_texts(list(messages), reading, most)
    for speaker in ("user", "assistant"):
        for place, text in texts[speaker]:
            reading.passages += split_speech(text, speaker, place)
    _set_templates_and_counts(reading)
    for place, text in texts["call"]:
        reading.passages += split_arguments(text, place)
    _collect_names(reading)
    call_texts = {passage.text for passage in reading.passages if passage.speaker == "call"}
    for place, text in texts["result"]:
        reading.passages += _read_result(text, place, reading.named, call_texts)
    reading.passages.sort(key=lambda passage: passage.place)
    return reading


def _collect_texts(
    messages: list[Message], reading: PassageSet, room: int
) -> Mapping[Speaker, PlacedTexts]:
    """Return the texts of the messages, newest first, as far as the limit allows."""
    speech = _collect_speech(messages, reading)
    newest = list(zip(range(len(messages)), messages, strict=True))[::-1]
    backwards: Mapping[Speaker, Iterator[tuple[int, str]]] = {
        "user": reversed(speech["user"]),
        "call": (
            (at, item.arguments)
            for at, row in newest
            for item in chat_messages.list_calls(row)[::-1]
        ),
        "assistant": reversed(speech["assistant"]),
        "result": (
            (at, item.text) for at, row in newest for item in chat_messages.list_results(row)[::-1]
        ),
    }
    kept: dict[Speaker, PlacedTexts] = {}
    for speaker, texts in backwards.items():
        collected: PlacedTexts = []
        while room > 0 and (text := next(texts, None)) is not None:
            room -= min(len(text[1]), facts.MAX_TEXT_CHARS)
            collected.append(text)
        kept[speaker] = collected[::-1]
    return kept


def _collect_speech(messages: list[Message], reading: PassageSet) -> Mapping[Speaker, PlacedTexts]:
    speech: dict[Speaker, PlacedTexts] = {"user": [], "assistant": []}
    for place, message in enumerate(messages):
        turn = chat_messages.get_turn(message)
        if turn in ("user", "assistant", "other"):
            speaker: Speaker = "user" if turn == "user" else "assistant"
            speech[speaker].append((place, _get_speech(message, reading)))
    return speech


def _get_speech(message: Message, reading: PassageSet) -> str:
    """Return the text of a message without the earlier summary in it.

    The lines of the summary are added to `reading`.
    """
    text = extract_plain_text(_strip_results(message.get("content")))
    if text == summary_message.SUMMARY_NOTE:
        return ""
    summary = summary_message.parse_summary(message) if "CONTEXT" in text else None
    if summary is None:
        return text
    split_earlier_summary(summary_message.clean_summary(summary.text), reading)
    return "\n".join(filter(None, (summary.before, summary.after)))


def _strip_results(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        part
        for part in content
        if not (isinstance(part, Mapping) and part.get("type") == "tool_result")
    ]


def _set_templates_and_counts(reading: PassageSet) -> None:
    """Set the template of each passage, and the number of passages that share it."""
    counts: Counter[str] = Counter()
    for passage in reading.passages:
        passage.template = tokenize.make_template(passage.text)
        counts[passage.template] += 1
    for passage in reading.passages:
        passage.repeated = counts[passage.template]


def _collect_names(reading: PassageSet) -> None:
    for passage in reading.passages:
        for fact in passage.facts if passage.speaker != "result" else ():
            if fact.kind in ("path", "identifier", "url"):
                reading.named.add(_STEM_SEPARATOR.split(fact.text.rstrip("/"))[-1])
    reading.named.discard("")


def _read_result(text: str, place: int, named: set[str], called: set[str]) -> list[Passage]:
    """Return the passages of a result, without lines that repeat the call."""
    seen: Counter[str] = Counter()
    once: set[str] = set()
    passages: list[Passage] = []
    lines = (line for _, line in facts.split_lines(unpack_result(text)))
    for line in alike_lines.collapse_lines(lines, named):
        stamp = LOG_TIMESTAMP.match(line)
        line_text = line[stamp.end() :] if stamp else line
        if line_text in once or line_text in called:
            continue
        once.add(line_text)
        form = tokenize.make_template(line)
        seen[form] += 1
        if seen[form] <= MAX_LINES_PER_FORM or not named.isdisjoint(_STEM_SEPARATOR.split(line)):
            for passage in split_lines(line, "result", place):
                passage.template = form
                passages.append(passage)
    for passage in passages:
        passage.repeated = seen[passage.template]
    return passages


Speaker = Literal["user", "assistant", "call", "result", "earlier"]

MAX_PASSAGE_CHARS = 400
MAX_LINE_CHARS = 100
_TALKING_SPEAKERS = frozenset(("user", "assistant"))
_BULLET = re.compile(r"[-*+•]\s+(?=\S)")
_MIN_PASTED_LINES = 20
_MIN_ALIKE_LINES = 4
_SCRIPT_KEYS = frozenset(("command", "cmd", "commands", "script", "shell", "bash"))
_MAX_LEAF_DEPTH = 8
_MIN_PROSE_WORDS = 5
_CODE_SIGNS = re.compile(r"[{}();=<>|]")

_LETTER_RUN = re.compile(r"[^\W\d_]+")
_REDACTION_MARK = re.compile("|".join(summary_message.REDACTION_MARKS), re.IGNORECASE)
_DATA_SIGNS = re.compile(r"[0/\\=_|]")


@dataclass(slots=True)
class Passage:
    """A part of a message with its facts. Their positions are relative to the passage."""

    text: str
    facts: Sequence[Fact]
    speaker: Speaker
    place: int
    template: str = ""
    repeated: int = 1
    line: WrittenLine | None = None
    """The line of an earlier summary from which the passage was read."""


def split_speech(text: str, speaker: Speaker, place: int) -> Iterator[Passage]:
    """Yield the sentences of a text. Code and pasted output are split by lines."""
    text_facts = facts.find_facts(text, prose=True)
    pasted = _find_pasted_forms(text)
    at = 0
    fence: str | None = None
    for begin, line in facts.split_lines(text):
        mark = FENCE.match(line)
        if mark:
            fence = mark.group(1).lower() if fence is None else None
            continue
        inside: list[Fact] = []
        while at < len(text_facts) and text_facts[at].position < begin + len(line):
            inside.append(text_facts[at]._replace(position=text_facts[at].position - begin))
            at += 1
        code = fence is not None and fence not in SHELLS
        who: Speaker = "result" if code or _get_line_form(line) in pasted else speaker
        whole = [(0, len(line))] if fence is not None else tokenize.find_sentence_spans(line)
        yield from _cut_line(line, whole, inside, who, place)


def split_lines(text: str, speaker: Speaker, place: int) -> Iterator[Passage]:
    """Yield the lines of a text. Long lines are split by sentences."""
    for _, line in facts.split_lines(text):
        whole = (
            [(0, len(line))] if len(line) <= MAX_LINE_CHARS else tokenize.find_sentence_spans(line)
        )
        yield from _cut_line(line, whole, facts.find_facts(line), speaker, place)


def split_arguments(arguments: str, place: int) -> Iterator[Passage]:
    """Yield the passages of the arguments of a tool call."""
    try:
        decoded: Any = content.load_json(arguments)
    except ValueError:
        decoded = arguments
    for key, value in _list_leaves("", decoded, 0):
        first, _, rest = facts.normalize_line_breaks(value).strip().partition("\n")
        if (
            key in _SCRIPT_KEYS
            and len(first) <= MAX_PASSAGE_CHARS
            and first
            and not _is_redacted(first)
        ):
            inside = [fact for fact in facts.find_facts(first) if fact.text != first]
            yield Passage(first, (Fact("command", first, 0), *inside), "call", place)
            yield from _split_argument_text(rest, place)
        else:
            named = key and value.isascii() and value.replace(".", "").isdigit()
            yield from _split_argument_text(f"{key}: {value}" if named else value, place)


def _split_argument_text(text: str, place: int) -> Iterator[Passage]:
    for passage in split_lines(text, "call", place):
        if passage.facts or _is_prose(passage.text) or patterns.is_ticked(passage.text):
            yield passage


def _is_prose(text: str) -> bool:
    """Return whether a text consists almost only of words."""
    is_code = CODE_LINE.match(text) or _CODE_SIGNS.search(text)
    return not is_code and tokenize.count_words(text) >= _MIN_PROSE_WORDS


def unpack_result(text: str) -> str:
    """Return a JSON result with escapes, or a to-do list, as lines."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    if "\\" not in text and not ('"stat' in text and OPEN_JSON_ITEM.search(text)):
        return text
    try:
        decoded = content.load_json(text)
    except ValueError:
        return text
    leaves = _list_leaves("", decoded, 0)
    return "\n".join(f"{key}: {leaf}" if key and "\n" not in leaf else leaf for key, leaf in leaves)


def split_earlier_summary(text: str, reading: PassageSet) -> None:
    """Add the lines of an earlier summary, and its number of statements, to `reading`."""
    summary = written_form.read_summary(text)
    reading.counted += summary.counted
    for line in summary.lines:
        if not _is_redacted(line.text):
            line_facts = facts.find_facts(line.text, prose=True)
            template = make_template(line.text)
            passage = Passage(line.text, line_facts, "earlier", -1, template, 1, line)
            reading.earlier.append(passage)


def _find_pasted_forms(text: str) -> frozenset[str]:
    """Return the forms of lines that repeat too often to be typed by a person."""
    if text.count("\n") < _MIN_PASTED_LINES:
        return frozenset()
    shapes = Counter(_get_line_form(line) for _, line in facts.split_lines(text))
    return frozenset(
        shape
        for shape, count in shapes.items()
        if count >= _MIN_ALIKE_LINES and _DATA_SIGNS.search(shape)
    )


def _get_line_form(line: str) -> str:
    return _LETTER_RUN.sub("a", make_template(line))


def _cut_line(
    line: str, spans: Sequence[tuple[int, int]], inside: list[Fact], speaker: Speaker, place: int
) -> Iterator[Passage]:
    """Yield the passages of a line, one per span, without cutting a fact."""
    at = 0
    first: int | None = None
    marks = (
        [mark.span() for mark in _REDACTION_MARK.finditer(line)]
        if "redacted" in line.lower()
        else []
    )
    if marks:
        spans = [part for span in spans for part in _exclude_marks(marks, span)]
        inside = [fact for fact in inside if not _is_overlapping(marks, fact)]
    for begin, end in _split_long_spans(spans, inside):
        first = begin if first is None else first
        reach = at
        while reach < len(inside) and inside[reach].position < end:
            reach += 1
        if any(fact.end > end for fact in inside[at:reach]):
            continue
        yield from _make_passage(line[first:end], first, inside[at:reach], speaker, place)
        at, first = reach, None
    if first is not None:
        yield from _make_passage(line[first:], first, inside[at:], speaker, place)


def _exclude_marks(
    marks: Sequence[tuple[int, int]], span: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of a span without redaction marks."""
    begin, last = span
    for first, end in marks:
        if begin < end and first < last:
            yield begin, max(first, begin)
            begin = end
    if begin < last:
        yield begin, last


def _is_overlapping(marks: Sequence[tuple[int, int]], fact: Fact) -> bool:
    return any(first < fact.end and fact.position < end for first, end in marks)


def _split_long_spans(
    spans: Sequence[tuple[int, int]], inside: list[Fact]
) -> Iterator[tuple[int, int]]:
    """Yield the spans, splitting long spans before a fact."""
    starts = [fact.position for fact in inside if fact.kind not in ("decision", "task")]
    for first, end in spans:
        begin = first
        for start in starts if end - first > MAX_PASSAGE_CHARS else ():
            if start - begin >= MAX_PASSAGE_CHARS // 4 and start < end:
                yield begin, start
                begin = start
        yield begin, end


def _make_passage(
    text: str, begin: int, inside: Sequence[Fact], speaker: Speaker, place: int
) -> Iterator[Passage]:
    stripped = text.strip()
    bullet = _BULLET.match(stripped) if speaker in _TALKING_SPEAKERS else None
    stripped = stripped[bullet.end() :] if bullet else stripped
    first = begin + text.index(stripped)
    if not stripped or _is_redacted(stripped):
        return
    if len(stripped) > MAX_PASSAGE_CHARS and not inside:
        parts = _split_long_text(stripped) if speaker in _TALKING_SPEAKERS else ()
        yield from (Passage(part, (), speaker, place) for part in parts)
        return
    moved = [fact._replace(position=fact.position - first) for fact in inside]
    yield Passage(stripped, moved, speaker, place)


def _split_long_text(text: str) -> Iterator[str]:
    """Yield parts of speech without sentence ends.

    The text ends at data without words, such as an image.
    """
    while len(text) > MAX_PASSAGE_CHARS:
        cut = text.rfind(" ", MAX_PASSAGE_CHARS // 2, MAX_PASSAGE_CHARS)
        if cut < 0:
            if not SPACELESS_SIGN.search(text, 0, MAX_PASSAGE_CHARS):
                return
            cut = MAX_PASSAGE_CHARS
        yield text[:cut].rstrip()
        text = text[cut:].lstrip()
    if text:
        yield text


def _is_redacted(text: str) -> bool:
    return "redacted" in text.lower() and summary_message.find_fault(text) == "redacted_summary"


def _list_leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield key, str(value)
    elif isinstance(value, Mapping) and depth < _MAX_LEAF_DEPTH:
        task = patterns.format_to_do_item(value)
        if task is not None:
            yield "", task
        for name, inner in (value if task is None else patterns.get_other_fields(value)).items():
            yield from _list_leaves(str(name).lower(), inner, depth + 1)
    elif isinstance(value, list) and depth < _MAX_LEAF_DEPTH:
        for inner in value:
            yield from _list_leaves(key, inner, depth + 1)
