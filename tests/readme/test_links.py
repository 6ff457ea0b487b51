"""Links that add the server to a host, the Claude Code plugin, and `llms.txt`."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.readme.parts import README, ROOT

SERVER = {"command": "mcp-sessions", "args": ["serve"]}
LINKS = dict(
    re.findall(r"\[([\w ]+)\]\((https://[^)]+[?]\S*name=[^)]+)\)", README.read_text("utf-8"))
)
PLUGIN = json.loads((ROOT / "mcp_serve/plugin/.claude-plugin/plugin.json").read_text("utf-8"))


def read_link(name):
    """Return the server that a link adds."""
    query = parse_qs(urlsplit(LINKS[name]).query)
    if "cmd" in query:
        return {"command": query["cmd"][0], "args": query["arg"]}
    (config,) = query["config"]
    text = config if config.startswith("{") else base64.b64decode(config, validate=True)
    return json.loads(text)


@pytest.mark.requirement("terminal:plugin")
@pytest.mark.parametrize("name", ["VS Code", "Cursor", "LM Studio", "Goose"])
def test_link_starts_command_from_path(name):
    assert read_link(name) == SERVER


@pytest.mark.requirement("terminal:plugin")
def test_plugin_starts_command_from_path():
    assert PLUGIN["mcpServers"] == {"sessions": SERVER}
    assert not re.search(r"uvx|npx|pipx|https?:", json.dumps(PLUGIN))


@pytest.mark.requirement("terminal:plugin")
def test_plugin_hook_is_that_of_the_guide():
    guide = (ROOT / "docs" / "how-to" / "keep-sessions.md").read_text("utf-8")
    blocks = re.findall(r"^```text\n(\{.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert [json.loads(block)["hooks"] for block in blocks] == [PLUGIN["hooks"]]


@pytest.mark.requirement("terminal:plugin")
def test_marketplace_has_the_plugin():
    marketplace = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))
    (entry,) = marketplace["plugins"]
    assert entry["name"] == PLUGIN["name"]
    assert (ROOT / entry["source"] / ".claude-plugin" / "plugin.json").is_file()
    command = f"claude plugin install {entry['name']}@{marketplace['name']}"
    assert command in README.read_text("utf-8")


@pytest.mark.requirement("project:readme")
def test_llms_links_lead_to_files():
    text = (ROOT / "llms.txt").read_text("utf-8")
    assert text.startswith("# mcp-sessions\n\n> ")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).is_file()] == []
