"""The files and the entries of the supported clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_serve.cli.clients.supported_clients import CLIENTS, UserEnvironment


@pytest.mark.requirement("terminal:install")
@pytest.mark.parametrize(
    ("system", "env", "name", "place"),
    [
        ("linux", {}, "claude-code", "."),
        ("linux", {}, "claude-desktop", ".config/Claude"),
        ("linux", {}, "cursor", ".cursor"),
        ("linux", {}, "vscode", ".config/Code/User"),
        ("linux", {}, "codex", ".codex"),
        ("linux", {"CODEX_HOME": "/x"}, "codex", "/x"),
        ("linux", {}, "gemini", ".gemini"),
        ("linux", {}, "zed", ".config/zed"),
        ("linux", {}, "copilot", ".copilot"),
        ("linux", {"COPILOT_HOME": "/x"}, "copilot", "/x"),
        ("linux", {}, "qwen", ".qwen"),
        ("darwin", {}, "claude-code", "."),
        ("darwin", {}, "opencode", ".config/opencode"),
        ("darwin", {}, "claude-desktop", "Library/Application Support/Claude"),
        ("darwin", {}, "vscode", "Library/Application Support/Code/User"),
        ("darwin", {}, "zed", ".config/zed"),
        ("windows", {}, "claude-code", "."),
        ("windows", {}, "codex", ".codex"),
        ("windows", {"APPDATA": "/r"}, "vscode", "/r/Code/User"),
        ("windows", {}, "claude-desktop", "AppData/Roaming/Claude"),
        ("windows", {"APPDATA": "/r"}, "zed", "/r/Zed"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "opencode", "/x/opencode"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/x"}, "claude-code", "/x"),
    ],
)
def test_client_files_differ_by_system(tmp_path, system, env, name, place):
    client = next(item for item in CLIENTS if item.name == name)
    assert client.user(UserEnvironment(tmp_path, system, env)).parent == tmp_path / Path(place)


def test_client_is_recognized_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    client = next(item for item in CLIENTS if item.name == "claude-code")
    machine = UserEnvironment(tmp_path, "linux", {})
    assert not client.is_installed(machine)
    (tmp_path / ".claude").mkdir()
    assert client.is_installed(machine)
    elsewhere = UserEnvironment(tmp_path, "linux", {"CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
    assert not client.is_installed(elsewhere)
