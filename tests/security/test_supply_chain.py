"""Supply chain: few dependencies with version bounds, and nothing else loaded by the server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

KNOWN = {
    *("anyio", "mcp", "pluggy", "pydantic", "pysqlite3", "pyyaml", "rich", "shtab", "tomlkit"),
    *("inotify_simple", "orjson", "zstandard"),  # for transcripts of other agents
    "typing_extensions",  # for Python 3.10
}
"""The dependencies of the server and library; another one is a decision for DESIGN.md."""

LOADED = """
import json, sys
import anyio, pluggy, pydantic, uvicorn.protocols.http.h11_impl, yaml
from mcp.server.mcpserver import MCPServer
bare = MCPServer("bare")
bare.streamable_http_app()
bare.sse_app()
known = {name.split(".")[0] for name in sys.modules}
from mcp_serve import server, tool_list
from mcp_serve.features import late_features
from mcp_serve.http import app
from mcp_serve.stores.stores import ServerOptions, ServedStores
served = ServedStores(ServerOptions(home=sys.argv[1]))
server.create_server(served)
late_features.ServedFeatures(served)
tool_list.load_specs()
served.get_home().maintenance.health()
loaded = {name.split(".")[0] for name in sys.modules} - known
print(json.dumps(sorted(loaded - set(sys.stdlib_module_names))))
"""


def list_requirements(output):
    """Return the requirements of a distribution, as written."""
    listed = re.search(rf"^{output} = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    return re.findall(r'^  "(.*)",$', listed[1], re.MULTILINE)


def read_requirement_name(requirement):
    """Return the name in a requirement."""
    return re.split(r"[^\w.-]", requirement)[0].lower()


@pytest.mark.requirement("security:supplies")
def test_dependencies_are_known():
    assert {read_requirement_name(item) for item in list_requirements("dependencies")} == KNOWN


@pytest.mark.parametrize(
    "requirement", [*list_requirements("dependencies"), *list_requirements("dev")]
)
def test_requirements_have_both_bounds(requirement):
    request = requirement.partition(";")[0]
    assert re.fullmatch(r"[\w.-]+(\[[\w,]+\])?>=[\d.]+,<[\d.]+", request)


@pytest.mark.requirement("security:supplies")
def test_server_imports_only_declared_packages(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == ["mcp_serve", "session_core"]


def test_installation_runs_no_code():
    assert not (ROOT / "setup.py").exists()
    assert "[tool.hatch.build.hooks" not in PROJECT
    assert 'build-backend = "hatchling.build"' in PROJECT
