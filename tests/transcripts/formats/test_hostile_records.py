"""Damaged and hostile records: a reader returns a record of each, and never raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.transcripts.format import FileFormat, Message, Record
from session_core.transcripts.formats import claude_code, codex, copilot, gemini, openclaw, qwen
from tests.transcripts.formats.reading import FIXTURES

FORMATS: dict[str, Any] = {
    "antigravity": gemini.FORMATS[1],
    "claude_code": claude_code.FORMATS[0],
    "codex": codex.FORMATS[0],
    "copilot": copilot.FORMATS[0],
    "gemini": gemini.FORMATS[0],
    "openclaw": openclaw.FORMATS[0],
    "qwen": qwen.FORMATS[0],
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.sampled_from(
        ["", "\x00", "\ud800", "user", "<ide_selection>", 10**400, -1, 2**63, "1" * 30]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
ESCAPES = [
    b"",
    b"\x00",
    b"null",
    b"[]",
    b'{"type":',
    b"[" * 100_000,
    b'{"a":' * 900 + b'"\\ud800"' + b"}" * 900,
    b"\xff\xfe{}",
    b'{"type":"user","message":{"content":' + b"[" * 950 + b"1" + b"]" * 950 + b"}}",
    b'{"type":"user","timestamp":1' + b"0" * 400 + b"}",
    b'{"type":"user","timestamp":' + b"9" * 5000 + b"}",
]


def list_lines(name: str) -> list[bytes]:
    """Return the lines of all fixtures of a format."""
    files = sorted((FIXTURES / name).rglob("*.json*"))
    return [line for file in files for line in file.read_bytes().splitlines() if line]


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value inside of a decoded line."""
    yield place
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from list_places(inner, (*place, key))


def put_value(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a place."""
    if not place:
        return new
    copy = value.copy()
    copy[place[0]] = put_value(value[place[0]], place[1:], new)
    return copy


def check_record(record: Record, data: bytes) -> None:
    """Check the types of a record, and that a database can hold its texts."""
    assert (record.offset, record.length) == (7, len(data) + 1)
    texts = [record.type]
    for message in record.messages:
        assert isinstance(message, Message)
        assert message.role in ("user", "assistant", "tool", "system")
        assert message.at is None or 0 <= message.at < 10**12
        calls = [text for call in message.tool_calls for text in call]
        names = (message.key, message.parent_key, message.group, message.model, message.tool_name)
        texts += [message.text, message.reasoning, *calls, *names, message.tool_call_id]
        assert all(
            isinstance(size := part.bytes, int) or size is None for part in message.attachments
        )
    for name, fact in (record.facts or {}).items():
        numbers = fact if name == "usage" else (fact,) if isinstance(fact, float | int) else ()
        assert all(isinstance(number, int | float) and number < 2**54 for number in numbers)
        texts += [fact] if isinstance(fact, str) else []
    for text in texts:
        assert text is None or isinstance(text, str)
        (text or "").encode()


def read_hostile(reader: FileFormat, data: bytes, state: dict[str, Any]) -> None:
    check_record(reader.read_record(data, 7, state), data)
    assert len(json.dumps(state)) < 50_000


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_mutated_lines_never_raise(name, data):
    state: dict[str, Any] = {}
    lines = list_lines(name)
    for _ in range(data.draw(st.integers(1, 4))):
        line = data.draw(st.sampled_from(lines))
        try:
            value = json.loads(line)
        except ValueError:
            continue
        place = data.draw(st.sampled_from(list(list_places(value))))
        mutated = put_value(value, place, data.draw(VALUES))
        read_hostile(FORMATS[name], json.dumps(mutated).encode(), state)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_damaged_lines_never_raise(name, data):
    line = bytearray(data.draw(st.sampled_from(list_lines(name))))
    place = data.draw(st.integers(0, len(line)))
    line[place : place + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    read_hostile(FORMATS[name], bytes(line).replace(b"\n", b" "), {})


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("line", ESCAPES, ids=range(len(ESCAPES)))
def test_hostile_lines_never_raise(name, line):
    read_hostile(FORMATS[name], line, {})
    record = FORMATS[name].read_cut_record(line[:100], 7, 10**10, {})
    assert (record.offset, record.length, record.messages) == (7, 10**10, ())


@pytest.mark.parametrize("name", FORMATS)
@given(
    path=st.text(max_size=60) | st.from_regex(r"([a-z.-]{1,8}/){0,6}[a-z-]{0,8}\.(jsonl|json|zst)")
)
def test_any_path_is_matched(name, path):
    found = FORMATS[name].match_file(path)
    assert found is None or found.session_id
