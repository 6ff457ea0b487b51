"""The command line of the Inspector, strict, over standard input and HTTP, in both eras."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import open_connection
from tests.node import MODULES, find_node, install_modules

LAUNCHER = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@pytest.fixture(scope="session", autouse=True)
def inspector() -> Path:
    """The Inspector. Made before any test hides the user's folder, where npm is configured."""
    return install_modules(*MODULES["inspector"]) / LAUNCHER


@pytest.fixture(params=["stdio", "http"])
def way(request) -> str:
    """How it gets to the server."""
    return request.param


def build_configuration(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a server in the form of most clients."""
    if asked["way"] == "stdio":
        return {name: asked[name] for name in ("command", "args", "env")}
    headers = {"Authorization": f"Bearer {asked['token']}"}
    return {"type": "streamable-http", "url": asked["address"], "headers": headers}


@pytest.fixture
def inspect(inspector: Path, home: Path, way: str, tmp_path: Path):
    """Run the Inspector, and return its exit code and output."""
    with open_connection(home, way) as connection:
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"sessions": build_configuration(connection)}}))
        line = [find_node(), inspector, "--cli", "--config", file, "--server", "sessions"]

        def run(method: str, *more: str) -> tuple[int, Any]:
            result = subprocess.run(
                [*line, "--method", method, *more, "--format", "json"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=200,
                check=False,
            )
            return result.returncode, json.loads(result.stdout or "null") or result.stderr

        yield run


ERAS = ("legacy", "modern")


@pytest.mark.requirement("server:inspector")
@pytest.mark.parametrize("era", ERAS)
def test_inspector_accepts_tool_schemas(inspect, era):
    code, said = inspect("tools/list", "--strict", "--protocol-era", era)
    assert (code, len(said["result"]["tools"])) == (0, 11), said


@pytest.mark.requirement("server:inspector")
@pytest.mark.parametrize("era", ERAS)
def test_call_answer_matches_schema(inspect, era):
    given = ["--tool-name", "sessions_list", "--tool-arg", "limit=2", "--protocol-era", era]
    code, said = inspect("tools/call", *given)
    assert (code, len(said["result"]["structuredContent"]["sessions"])) == (0, 2), said


@pytest.mark.requirement("server:inspector")
@pytest.mark.parametrize("era", ERAS)
def test_inspector_finds_card_of_tool(inspect, era):
    given = ["--tool-name", "sessions_prune", "--app-info", "--protocol-era", era]
    code, said = inspect("tools/call", *given)
    assert code == 0, said
    assert said["appInfo"] == {
        "hasApp": True,
        "toolName": "sessions_prune",
        "resourceUri": "ui://mcp-sessions/sessions_prune.html",
        "csp": {},
        "prefersBorder": True,
        "resourceMimeType": "text/html;profile=mcp-app",
    }


@pytest.mark.requirement("server:inspector")
def test_tool_error_differs_from_failure(inspect):
    code, said = inspect(
        "tools/call", "--tool-name", "sessions_read", "--tool-arg", "session=nowhere"
    )
    assert code == 5, said


@pytest.mark.requirement("server:inspector")
def test_resources_are_listed_and_read(inspect):
    code, said = inspect("resources/list")
    addresses = [resource["uri"] for resource in said["result"]["resources"]]
    assert (code, "sessions://stats" in addresses) == (0, True), said
    code, said = inspect("resources/read", "--uri", addresses[0])
    assert (code, said["result"]["contents"][0]["mimeType"]) == (0, "application/json"), said


@pytest.mark.requirement("server:inspector")
def test_templates_are_listed(inspect):
    code, said = inspect("resources/templates/list")
    templates = [template["uriTemplate"] for template in said["result"]["resourceTemplates"]]
    assert (code, "session://{session_id}" in templates) == (0, True), said


@pytest.mark.requirement("server:inspector")
def test_prompts_are_listed_and_fetched(inspect):
    code, said = inspect("prompts/list")
    names = [prompt["name"] for prompt in said["result"]["prompts"]]
    assert (code, names) == (0, ["catch_up", "continue_here", "tidy_up", "compress_session"]), said
    code, said = inspect("prompts/get", "--prompt-name", "tidy_up")
    assert (code, len(said["result"]["messages"])) == (0, 1), said
