"""Every declared Python version: installed ones run it, others resolve its dependencies."""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

import pytest

from tests.peers import PeerMissing, get_peers_folder, list_pythons, run_command
from tests.release.conftest import ROOT

DECLARED = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"

SMOKE = (
    "tests/test_public_names.py",
    "tests/contract/test_append.py",
    "tests/contract/test_messages.py",
    "tests/serve/test_list.py",
)
"""Tests that run from the sdist: the library on a database, the server."""


@pytest.fixture(scope="session", name="others")
def _others(uv) -> dict[str, str]:
    """Pythons of other declared versions, by version. One is installed where there is none."""
    versions = [version for version in DECLARED if version != THIS]
    pythons = list_pythons(versions)
    if not pythons:
        folder = get_peers_folder() / "pythons"
        try:
            run_command([str(uv), "python", "install", "-i", str(folder), versions[0]], versions[0])
        except PeerMissing as error:
            wanted = ", ".join(versions)
            raise PeerMissing(f"install a second Python, one of {wanted}: {error}") from error
        pythons = {versions[0]: str(next(folder.glob("*/bin/python3.*[0-9]")))}
    return pythons


@pytest.mark.requirement("project:pythons")
def test_metadata_declares_five_pythons():
    assert DECLARED == ["3.10", "3.11", "3.12", "3.13", "3.14"]


@pytest.fixture(params=[version for version in DECLARED if version != THIS], name="python")
def _python(request, others) -> tuple[str, str | None]:
    """Another version, and a Python of it where there is one."""
    return request.param, others.get(request.param)


@pytest.mark.requirement("project:pythons")
def test_each_python_serves_or_resolves_dependencies(released, shell, lists_all, uv, python):
    version, command = python
    if command:
        shell(uv, "venv", "--quiet", "--python", command, "env")
        shell(uv, "pip", "install", "--quiet", "--python", "env/bin/python", released.wheel)
        folder = shell("pwd").strip()
        assert shell("env/bin/python", "-V").startswith(f"Python {version}.")
        assert lists_all(f"{folder}/env/bin/mcp-sessions")
    else:
        wheels = ["--only-binary", ":all:", "--target", "none", "--dry-run"]
        shell(uv, "pip", "install", "--quiet", "--python-version", version, *wheels, released.wheel)


@pytest.mark.requirement("project:pythons")
def test_sdist_tests_pass_on_another_python(released, shell, uv, others, tmp_path):
    with tarfile.open(released.sdist) as sdist:
        sdist.extractall(tmp_path / "here")  # noqa: S202 -- our own
    (folder,) = Path(tmp_path / "here").iterdir()
    python = folder / "env" / "bin" / "python"
    oldest = min(others, key=DECLARED.index)
    shell(uv, "venv", "--quiet", "--python", others[oldest], folder / "env")
    shell(uv, "pip", "install", "--quiet", "--python", python, "--editable", f"{folder}[dev]")
    smoke = [folder / file for file in SMOKE]
    result = shell(
        python, "-m", "pytest", "--rootdir", folder, "-c", folder / "pyproject.toml", *smoke
    )
    assert " passed" in result
