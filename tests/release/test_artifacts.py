"""Contents and metadata of the release artifacts, checked with external tools."""

from __future__ import annotations

import json
import subprocess
import tarfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from mcp_serve.tool_list import load_specs
from release.artifacts import read_project
from tests.node import MODULES, find_node, install_modules
from tests.peers import peer_python
from tests.release.conftest import ROOT

SAID = read_project()


def run_program(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.fixture(name="metadata")
def _metadata(released) -> Message:
    with ZipFile(released.wheel) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(wheel.read(name).decode())


@pytest.fixture(scope="session", name="mcpb")
def _mcpb() -> list[Path]:
    """The tools for bundles. Made before any test hides the user's folder."""
    return [find_node(), install_modules(*MODULES["mcpb"]) / "@anthropic-ai/mcpb/dist/cli/cli.js"]


@pytest.fixture(scope="session", name="skillsaw")
def _skillsaw() -> list[str]:
    """A linter that brings the released schemas of the registry, and its rules."""
    return [str(peer_python("skillsaw")), "-m", "skillsaw"]


@pytest.mark.requirement("project:release")
def test_wheel_holds_only_typed_packages(released):
    ours = {
        path.relative_to(ROOT).as_posix()
        for name in ("session_core", "mcp_serve")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name not in ("DESIGN.md", "README.md")
    }
    with ZipFile(released.wheel) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == ours
    assert {"session_core/py.typed", "mcp_serve/py.typed"} <= held


@pytest.mark.requirement("project:release")
def test_sdist_holds_sources_and_tests(released):
    with tarfile.open(released.sdist) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = (
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        ".ci/run",
        "pyproject.toml",
        "docs/hermes-differences.md",
        "mkdocs.yml",
    )
    assert {*wanted, "tests/conftest.py", "release/__main__.py", "session_core/py.typed"} <= held
    assert [name for name in held if "__pycache__" in name or name.endswith(".db")] == []


@pytest.mark.requirement("project:release")
def test_metadata_is_complete(metadata):
    assert (metadata["Name"], metadata["Version"]) == (SAID.name, SAID.version)
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Summary"] == SAID.description
    assert "mcp" in metadata["Keywords"].split(",")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Requires-Python"] == ">=3.10"


@pytest.mark.requirement("project:release")
def test_readme_names_registry_owner():
    assert f"<!-- mcp-name: {SAID.registry_name} -->" in (ROOT / "README.md").read_text("utf-8")


def _lint_entry(skillsaw: list[str], folder: Path, entry: Any) -> subprocess.CompletedProcess[str]:
    (folder / "server.json").write_text(json.dumps(entry))
    return run_program(*skillsaw, "lint", "--strict", "--type", "mcp-registry", folder)


@pytest.mark.requirement("project:release")
def test_registry_entry_passes_schema_and_rules(released, skillsaw, tmp_path):
    entry = json.loads(released.entry.read_text("utf-8"))
    assert (entry["version"], entry["packages"][0]["version"]) == (SAID.version, SAID.version)
    done = _lint_entry(skillsaw, tmp_path, entry)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.requirement("project:release")
@pytest.mark.parametrize(
    "wrong",
    [{"version": "latest"}, {"description": "x" * 101}, {"name": "no slash"}, {"packages": [{}]}],
)
def test_registry_lint_rejects_wrong_entry(released, skillsaw, tmp_path, wrong):
    entry = json.loads(released.entry.read_text("utf-8")) | wrong
    done = _lint_entry(skillsaw, tmp_path, entry)
    assert "mcp-registry-server-json-valid" in done.stdout
    assert done.returncode == 1


@pytest.mark.requirement("project:release")
def test_bundle_manifest_passes_validator(released, mcpb, tmp_path):
    whole = run_program(*mcpb, "unpack", released.bundle, tmp_path / "whole")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    manifest = tmp_path / "whole" / "manifest.json"
    result = run_program(*mcpb, "validate", manifest)
    assert result.returncode == 0, result.stdout + result.stderr
    data = json.loads(manifest.read_text("utf-8"))
    assert data["version"] == SAID.version
    assert [tool["name"] for tool in data["tools"]] == [spec.name for spec in load_specs()]
    manifest.write_text(json.dumps(data | {"server": {"type": "uv"}}))
    assert run_program(*mcpb, "validate", manifest).returncode == 1


@pytest.mark.requirement("project:release")
def test_installed_bundle_lists_sessions(released, lists_all, uv, tmp_path):
    with ZipFile(released.bundle) as bundle:
        bundle.extractall(tmp_path / "bundle")  # noqa: S202 -- our own
        server = json.loads(bundle.read("manifest.json"))["server"]
        default = json.loads(bundle.read("manifest.json"))["user_config"]["home"]["default"]
    assert (tmp_path / "bundle" / server["entry_point"]).is_file()
    # The values of the variables of a host.
    given = {"${__dirname}": str(tmp_path / "bundle"), "${user_config.home}": default}
    config = server["mcp_config"]
    args = [given.get(arg, arg) for arg in config["args"]]
    env = {name: given.get(value, value) for name, value in config["env"].items()}
    assert config["command"] == "uv"
    assert lists_all(uv, *args, **env)
