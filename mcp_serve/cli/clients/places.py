"""Which clients there are, where each keeps its servers, and in which form."""

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


def _system() -> System:
    if sys.platform == "win32":
        return "windows"
    return "darwin" if sys.platform == "darwin" else "linux"


@dataclass(frozen=True, slots=True)
class Machine:
    """Whose configuration it is, and on which system."""

    user: Path = field(default_factory=Path.home)
    system: System = field(default_factory=_system)
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def applications(self) -> Path:
        """Return where programs with windows keep what is the user's."""
        if self.system == "windows":
            return Path(self.env.get("APPDATA") or self.user / "AppData" / "Roaming")
        if self.system == "darwin":
            return self.user / "Library" / "Application Support"
        return self.config()

    def config(self) -> Path:
        """Return where programs of the command line do so."""
        return Path(self.env.get("XDG_CONFIG_HOME") or self.user / ".config")

    def own(self, variable: str, name: str) -> Path:
        """Return a folder in the home of the user, unless a variable names another."""
        return Path(self.env.get(variable) or self.user / name)


def is_there(path: Path) -> bool:
    """Whether there is something; not where nobody may look, at which `Path.exists` fails."""
    return os.path.exists(path)  # noqa: PTH110 -- as said


@dataclass(frozen=True, slots=True)
class Client:
    """One client: its files, and what stands in them for a server."""

    name: str
    label: str
    program: str
    """What is on the path where it is installed."""
    user: Callable[[Machine], Path]
    table: str = "mcpServers"
    project: str | None = None
    """Its file in a folder that is worked on."""
    entry: Callable[[str, list[str]], Entry] = lambda command, args: {
        "command": command,
        "args": args,
    }

    def file(self, machine: Machine, project: Path | None) -> Path | None:
        """Return the file of the user, or that of a project; None where it reads none there."""
        if project is None:
            return self.user(machine)
        return None if self.project is None else project / self.project

    def is_here(self, machine: Machine) -> bool:
        """Whether it seems to be installed."""
        file = self.user(machine)
        folder = file.parent
        own = folder not in (machine.user, machine.config()) and is_there(folder)
        return own or is_there(file) or shutil.which(self.program) is not None


def _claude_code(machine: Machine) -> Path:
    return machine.own("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _claude_desktop(machine: Machine) -> Path:
    return machine.applications() / "Claude" / "claude_desktop_config.json"


def _code(machine: Machine) -> Path:
    return machine.applications() / "Code" / "User" / "mcp.json"


def _opencode(machine: Machine) -> Path:
    folder = machine.config() / "opencode"
    commented, plain = folder / "opencode.jsonc", folder / "opencode.json"
    return plain if is_there(plain) and not is_there(commented) else commented


def _zed(machine: Machine) -> Path:
    if machine.system == "windows":
        return machine.applications() / "Zed" / "settings.json"
    return machine.config() / "zed" / "settings.json"


def _of_stdio(command: str, args: list[str]) -> Entry:
    return {"type": "stdio", "command": command, "args": args}


CLIENTS = (
    Client(
        "claude-code",
        "Claude Code",
        "claude",
        _claude_code,
        project=".mcp.json",
        entry=lambda command, args: _of_stdio(command, args) | {"env": {}},
    ),
    Client("claude-desktop", "Claude Desktop", "claude-desktop", _claude_desktop),
    Client(
        "cursor",
        "Cursor",
        "cursor",
        lambda machine: machine.user / ".cursor" / "mcp.json",
        project=".cursor/mcp.json",
    ),
    Client(
        "vscode",
        "VS Code",
        "code",
        _code,
        table="servers",
        project=".vscode/mcp.json",
        entry=_of_stdio,
    ),
    Client(
        "codex",
        "Codex",
        "codex",
        lambda machine: machine.own("CODEX_HOME", ".codex") / "config.toml",
        table="mcp_servers",
        project=".codex/config.toml",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        "gemini",
        lambda machine: machine.user / ".gemini" / "settings.json",
        project=".gemini/settings.json",
    ),
    Client(
        "opencode",
        "opencode",
        "opencode",
        _opencode,
        table="mcp",
        project="opencode.json",
        entry=lambda command, args: {
            "type": "local",
            "command": [command, *args],
        },
    ),
    Client(
        "zed",
        "Zed",
        "zed",
        _zed,
        table="context_servers",
        project=".zed/settings.json",
    ),
    Client(
        "copilot",
        "Copilot CLI",
        "copilot",
        lambda machine: machine.own("COPILOT_HOME", ".copilot") / "mcp-config.json",
        project=".github/mcp.json",
        entry=lambda command, args: {
            "type": "local",
            "command": command,
            "args": args,
            "tools": ["*"],
        },
    ),
    Client(
        "qwen",
        "Qwen Code",
        "qwen",
        lambda machine: machine.user / ".qwen" / "settings.json",
        project=".qwen/settings.json",
    ),
)
"""All of them, by the names that `install` takes."""
