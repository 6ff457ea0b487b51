"""JSON with comments, edited in place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_serve.cli.clients import jsonc

PATH = ("mcpServers", "sessions")
ENTRY = {"command": "mcp-sessions", "args": ["serve", "--read-only"]}

_NAMES = st.text(max_size=4).filter(lambda name: name != "mcpServers")
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4),
    st.sampled_from((None, 1, 2, 4, "\t")),
    st.booleans(),
)
def test_set_and_delete_restores_every_byte(says, indent, windows):
    text = json.dumps(says, indent=indent)
    text = text.replace("\n", "\r\n") if windows else text
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert jsonc.parse_text(with_it) == {**says, "mcpServers": {"sessions": ENTRY}}
    assert jsonc.delete_value(jsonc.delete_value(with_it, PATH), PATH[:1]) == text


@pytest.mark.parametrize(
    "text",
    [
        '// mine\n{\n  "a": 1, // one\n  /* two */ "b": [1, 2,],\n}\n',
        '{\n\t"a": {"b": "// no comment"} // the end\n\t// of it\n}',
        '{"a": "}{,", "b": "\\"", /* c */ "d": -1.5e3}',
        '{\r\n    "a": "ü"\r\n}\r\n',
    ],
)
def test_set_keeps_comments_commas_and_endings(text):
    before = jsonc.parse_text(text)
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert jsonc.parse_text(with_it) == before | {"mcpServers": {"sessions": ENTRY}}
    assert jsonc.delete_value(jsonc.delete_value(with_it, PATH), PATH[:1]) == text


def test_set_keeps_sibling_servers_and_comments():
    text = '{\n  "mcpServers": {\n    // tickets\n    "other": {"command": "x"} // old\n  }\n}\n'
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert '    // tickets\n    "other": {"command": "x"}, // old\n' in with_it
    assert jsonc.delete_value(with_it, PATH) == text


def test_delete_first_member_removes_comma():
    text = '{\n  "sessions": {},\n  "other": {}\n}'
    assert jsonc.delete_value(text, ("sessions",)) == '{\n  "other": {}\n}'


def test_set_replaces_single_value():
    text = '{\n  "a": {\n    "command": "old", // why\n    "timeout": 5\n  }\n}'
    assert jsonc.set_value(text, ("a", "command"), "new") == text.replace("old", "new")


def test_duplicate_key_uses_last_member():
    assert jsonc.set_value('{"a": 1, "a": 2}', ("a",), 3) == '{"a": 1, "a": 3}'


@pytest.mark.parametrize("text", ["", "\n", "// nothing yet\n", "{}", "{ }\n", "{\n}\n"])
def test_set_in_empty_text_creates_object(text):
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert jsonc.parse_text(with_it) == {"mcpServers": {"sessions": ENTRY}}
    assert '\n    "sessions": {\n' in with_it


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1', "line 1, column 8"),
        ('{\n  "a": \n}', "line 3, column 1"),
        ('{"a" 1}', "line 1, column 6"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": 1} x', "line 1, column 10"),
        ('{"a": 1 "b": 2}', "line 1, column 9"),
        ('{"a": "half', "line 1, column 7"),
        ("/* no end", "line 1, column 1"),
        ('{"a": 01}', "line 1, column 7"),
    ],
)
def test_malformed_text_is_refused_with_position(text, place):
    with pytest.raises(jsonc.MalformedConfiguration, match=place):
        jsonc.set_value(text, PATH, ENTRY)


def test_deep_nesting_is_refused():
    with pytest.raises(jsonc.MalformedConfiguration, match="deeply"):
        jsonc.parse_text("[" * 100_000)


def test_set_refuses_non_object_parent():
    with pytest.raises(jsonc.MalformedConfiguration, match="mcpServers is not an object"):
        jsonc.set_value('{"mcpServers": []}', PATH, ENTRY)
