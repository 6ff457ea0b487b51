"""Every way to install, from an empty machine to a client that lists the sessions."""

from __future__ import annotations

import sys

import pytest

from release.artifacts import read_project

VERSION = f"mcp-sessions {read_project().version}\n"


@pytest.mark.requirement("project:installs")
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_pip_installs_command(released, shell, lists_all, form):
    shell(sys.executable, "-m", "venv", "env")
    folder = shell("pwd").strip()
    shell(f"{folder}/env/bin/pip", "install", "--quiet", getattr(released, form))
    command = f"{folder}/env/bin/mcp-sessions"
    assert shell(command, "--version") == VERSION
    assert lists_all(command)


@pytest.mark.requirement("project:installs")
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_uvx_runs_command(released, shell, lists_all, uv, form):
    command = [uv.with_name("uvx"), "--from", getattr(released, form), "mcp-sessions"]
    assert shell(*command, "--version") == VERSION
    assert lists_all(*command, "serve")


@pytest.mark.requirement("project:installs")
def test_pipx_installs_command(released, shell, person, lists_all, pipx):
    shell(*pipx, "install", "--quiet", released.wheel)
    command = f"{person['HOME']}/.local/bin/mcp-sessions"
    assert shell(command, "--version") == VERSION
    assert lists_all(command)
