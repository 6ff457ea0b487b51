"""Servers in configuration files: each edit keeps the rest, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_serve.cli.clients import formats
from mcp_serve.cli.clients.jsonc import MalformedConfiguration

ENTRY = {"command": "mcp-sessions", "args": ["serve"]}
JSON, TOML = formats.JsoncFormat(), formats.TomlFormat()
EXAMPLES = [
    (JSON, '{"theme": "dark", "mcpServers": {"other": {"command": "x"}}} // mine\n'),
    (TOML, '# mine\ntheme = "dark"\n\n[mcpServers.other]\ncommand = "x" # kept\n'),
]


@pytest.mark.parametrize(("form", "text"), EXAMPLES)
def test_removal_of_added_server_restores_text(form, text):
    added = formats.add_server(form, text, "mcpServers", "sessions", ENTRY)
    assert formats.list_servers(form, added, "mcpServers") == {
        "other": {"command": "x"},
        "sessions": ENTRY,
    }
    removed = formats.remove_server(form, added, "mcpServers", "sessions")
    assert form.parse_text(removed) == form.parse_text(text)
    assert "mine" in removed


@pytest.mark.parametrize(("form", "text"), EXAMPLES)
def test_update_keeps_foreign_keys_of_entry(form, text):
    updated = formats.add_server(form, text, "mcpServers", "other", ENTRY)
    updated = formats.add_server(form, updated, "mcpServers", "other", {"timeout": 5})
    assert formats.find_server(form, updated, "mcpServers", "other") == {**ENTRY, "timeout": 5}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *((JSON, "[]"), (JSON, '{"mcpServers": []}'), (JSON, '{"mcpServers": {"sessions": 5}}')),
        *((TOML, "mcpServers = 5"), (TOML, "[mcpServers"), (TOML, "[mcpServers]\nsessions = 5")),
    ],
)
def test_other_layout_is_refused(form, text):
    with pytest.raises(MalformedConfiguration):
        formats.add_server(form, text, "mcpServers", "sessions", ENTRY)


def test_edit_that_changes_more_is_refused():
    class Careless(formats.JsoncFormat):
        """A format whose edits lose the other servers."""

        def set_server(self, text, table, name, entry):  # noqa: ARG002
            """Return a text with the server alone."""
            return super().set_server("{}", table, name, entry)

    with pytest.raises(MalformedConfiguration, match="cannot be edited in place"):
        formats.add_server(Careless(), EXAMPLES[0][1], "mcpServers", "sessions", ENTRY)


def test_missing_table_has_no_servers():
    assert formats.list_servers(JSON, '{"mcpServers": null}', "mcpServers") == {}
    assert formats.find_server(TOML, "", "mcpServers", "sessions") is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_toml_keeps_its_line_endings(end):
    text = end.join(['theme = "dark"', ""])
    added = formats.add_server(TOML, text, "mcp_servers", "sessions", ENTRY)
    assert added.count("\n") > 2
    assert added.count("\r\n") == (added.count("\n") if end == "\r\n" else 0)


def test_suffix_chooses_format():
    assert isinstance(formats.choose_format(Path("config.toml")), formats.TomlFormat)
    assert isinstance(formats.choose_format(Path("settings.json")), formats.JsoncFormat)
