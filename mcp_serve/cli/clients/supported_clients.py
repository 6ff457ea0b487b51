"""The supported clients, their configuration files and the form of an entry."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

System = Literal["linux", "darwin", "windows"]
Entry = dict[str, Any]


def _detect_system() -> System:
    if sys.platform == "win32":
        return "windows"
    return "darwin" if sys.platform == "darwin" else "linux"


@dataclass(frozen=True, slots=True)
class UserEnvironment:
    """The home directory, system and environment variables of the user."""

    user: Path = field(default_factory=Path.home)
    system: System = field(default_factory=_detect_system)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def find_applications_folder(self) -> Path:
        """Return the folder for data of graphical applications."""
        if self.system == "windows":
            return Path(self.env.get("APPDATA") or self.user / "AppData" / "Roaming")
        if self.system == "darwin":
            return self.user / "Library" / "Application Support"
        return self.find_config_folder()

    def find_config_folder(self) -> Path:
        """Return the folder for configuration of command-line programs."""
        return Path(self.env.get("XDG_CONFIG_HOME") or self.user / ".config")

    def find_own_folder(self, variable: str, name: str) -> Path:
        """Return the folder that a variable names, else a folder in the home directory."""
        return Path(self.env.get(variable) or self.user / name)


def is_present(path: Path) -> bool:
    """Return True if a path exists, and False if access is denied."""
    return os.path.exists(path)  # noqa: PTH110 -- Path.exists raises PermissionError


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """One client: its files and the entry of a server in them."""

    name: str
    label: str
    program: str
    """The executable of the client."""
    user: Callable[[UserEnvironment], Path]
    table: str = "mcpServers"
    folder: Callable[[UserEnvironment], Path] | None = None
    """The folder of its own data, if its configuration file lies elsewhere."""
    project: str | None = None
    """The path of its project file, relative to the project."""
    entry: Callable[[str, list[str]], Entry] = lambda command, args: {
        "command": command,
        "args": args,
    }

    def find_file(self, machine: UserEnvironment, project: Path | None) -> Path | None:
        """Return the file of the user or of a project, or None if there is no project file."""
        if project is None:
            return self.user(machine)
        return None if self.project is None else project / self.project

    def is_installed(self, machine: UserEnvironment) -> bool:
        """Return True if the client seems to be installed."""
        file = self.user(machine)
        folder = file.parent
        if self.folder is not None and is_present(self.folder(machine)):
            return True
        # The home directory and the folder for configuration exist without the client.
        own = folder not in (machine.user, machine.find_config_folder()) and is_present(folder)
        return own or is_present(file) or shutil.which(self.program) is not None


def _find_claude_code_file(machine: UserEnvironment) -> Path:
    return machine.find_own_folder("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _find_claude_desktop_file(machine: UserEnvironment) -> Path:
    return machine.find_applications_folder() / "Claude" / "claude_desktop_config.json"


def _find_vscode_file(machine: UserEnvironment) -> Path:
    return machine.find_applications_folder() / "Code" / "User" / "mcp.json"


def _find_opencode_file(machine: UserEnvironment) -> Path:
    folder = machine.find_config_folder() / "opencode"
    commented, plain = folder / "opencode.jsonc", folder / "opencode.json"
    return plain if is_present(plain) and not is_present(commented) else commented


def _find_zed_file(machine: UserEnvironment) -> Path:
    if machine.system == "windows":
        return machine.find_applications_folder() / "Zed" / "settings.json"
    return machine.find_config_folder() / "zed" / "settings.json"


def _build_stdio_entry(command: str, args: list[str]) -> Entry:
    return {"type": "stdio", "command": command, "args": args}


CLIENTS = (
    ClientProgram(
        "claude-code",
        "Claude Code",
        "claude",
        _find_claude_code_file,
        folder=lambda machine: machine.find_own_folder("CLAUDE_CONFIG_DIR", ".claude"),
        project=".mcp.json",
        entry=lambda command, args: _build_stdio_entry(command, args) | {"env": {}},
    ),
    ClientProgram("claude-desktop", "Claude Desktop", "claude-desktop", _find_claude_desktop_file),
    ClientProgram(
        "cursor",
        "Cursor",
        "cursor",
        lambda machine: machine.user / ".cursor" / "mcp.json",
        project=".cursor/mcp.json",
    ),
    ClientProgram(
        "vscode",
        "VS Code",
        "code",
        _find_vscode_file,
        table="servers",
        project=".vscode/mcp.json",
        entry=_build_stdio_entry,
    ),
    ClientProgram(
        "codex",
        "Codex",
        "codex",
        lambda machine: machine.find_own_folder("CODEX_HOME", ".codex") / "config.toml",
        table="mcp_servers",
        project=".codex/config.toml",
    ),
    ClientProgram(
        "gemini",
        "Gemini CLI",
        "gemini",
        lambda machine: machine.user / ".gemini" / "settings.json",
        project=".gemini/settings.json",
    ),
    ClientProgram(
        "opencode",
        "opencode",
        "opencode",
        _find_opencode_file,
        table="mcp",
        project="opencode.json",
        entry=lambda command, args: {
            "type": "local",
            "command": [command, *args],
        },
    ),
    ClientProgram(
        "zed",
        "Zed",
        "zed",
        _find_zed_file,
        table="context_servers",
        project=".zed/settings.json",
    ),
    ClientProgram(
        "copilot",
        "Copilot CLI",
        "copilot",
        lambda machine: machine.find_own_folder("COPILOT_HOME", ".copilot") / "mcp-config.json",
        project=".github/mcp.json",
        entry=lambda command, args: {
            "type": "local",
            "command": command,
            "args": args,
            "tools": ["*"],
        },
    ),
    ClientProgram(
        "qwen",
        "Qwen Code",
        "qwen",
        lambda machine: machine.user / ".qwen" / "settings.json",
        project=".qwen/settings.json",
    ),
)
"""All supported clients."""
