"""Configuration with comments, changed in place."""

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
def test_what_is_put_in_and_taken_out_again_leaves_every_byte(says, indent, windows):
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
def test_comments_commas_and_line_ends_stay_where_they_are(text):
    before = jsonc.parse_text(text)
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert jsonc.parse_text(with_it) == before | {"mcpServers": {"sessions": ENTRY}}
    assert jsonc.delete_value(jsonc.delete_value(with_it, PATH), PATH[:1]) == text


def test_another_server_and_what_is_said_about_it_stay():
    text = '{\n  "mcpServers": {\n    // tickets\n    "other": {"command": "x"} // old\n  }\n}\n'
    with_it = jsonc.set_value(text, PATH, ENTRY)
    assert '    // tickets\n    "other": {"command": "x"}, // old\n' in with_it
    assert jsonc.delete_value(with_it, PATH) == text


def test_the_first_of_several_goes_without_its_comma():
    text = '{\n  "sessions": {},\n  "other": {}\n}'
    assert jsonc.delete_value(text, ("sessions",)) == '{\n  "other": {}\n}'


def test_a_value_is_replaced_and_its_neighbours_are_not():
    text = '{\n  "a": {\n    "command": "old", // why\n    "timeout": 5\n  }\n}'
    assert jsonc.set_value(text, ("a", "command"), "new") == text.replace("old", "new")


def test_of_a_name_that_stands_twice_the_last_is_meant():
    assert jsonc.set_value('{"a": 1, "a": 2}', ("a",), 3) == '{"a": 1, "a": 3}'


@pytest.mark.parametrize("text", ["", "\n", "// nothing yet\n", "{}", "{ }\n", "{\n}\n"])
def test_a_text_without_anything_gets_an_object(text):
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
def test_what_is_half_written_is_refused_with_its_place(text, place):
    with pytest.raises(jsonc.MalformedConfiguration, match=place):
        jsonc.set_value(text, PATH, ENTRY)


def test_what_is_nested_too_deeply_is_refused():
    with pytest.raises(jsonc.MalformedConfiguration, match="deeply"):
        jsonc.parse_text("[" * 100_000)


def test_where_something_else_stands_nothing_is_put():
    with pytest.raises(jsonc.MalformedConfiguration, match="mcpServers is no object"):
        jsonc.set_value('{"mcpServers": []}', PATH, ENTRY)
