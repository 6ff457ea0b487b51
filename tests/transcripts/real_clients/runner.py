"""Runs of real clients against the model endpoint, each with a home folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.packages import PACKAGES
from tests.node import find_node, install_modules

NOWHERE = "http://127.0.0.1:9"
"""A proxy that refuses: whatever a client asks of another host fails at once."""

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "COPILOT_AUTO_UPDATE": "false",
    "COPILOT_OFFLINE": "true",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}

_TIMEOUT_S = 100


def find_program(name: str) -> Path:
    """Return the program of a client. Install it if need be."""
    return install_modules(PACKAGES[name], scripts=True) / ".bin" / name


def format_prompt(*lines: str | tuple[str, dict[str, Any]]) -> str:
    """Return a prompt of directives: a pair is a tool call, a text ends the turn."""
    directives = []
    for line in lines:
        if isinstance(line, str):
            directives.append(f"!say {line}")
        else:
            directives.append(f"!tool {line[0]} {json.dumps(line[1])}")
    return "\n".join(directives)


@dataclass(frozen=True)
class ClientRunner:
    """A client with its home folder and the project in which it works."""

    name: str
    home: Path
    project: Path
    url: str
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, *arguments: str, text: str = "", environment: dict[str, str] | None = None
    ) -> str:
        """Run the client to its end, and return its output."""
        self.project.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            [find_program(self.name), *arguments],
            env=self._make_environment() | (environment or {}),
            cwd=self.project,
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def write_file(self, path: str, content: str) -> None:
        """Write a configuration file below the home folder."""
        place = self.home / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")

    def _make_environment(self) -> dict[str, str]:
        folders: Sequence[str] = (str(find_node().parent), os.environ["PATH"])
        own = {"HOME": str(self.home), "PATH": os.pathsep.join(folders), "LANG": "C.UTF-8"}
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "https_proxy"), NOWHERE)
        return own | proxies | {"NO_PROXY": "127.0.0.1"} | _QUIET | self.environment
