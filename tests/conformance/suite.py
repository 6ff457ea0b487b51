"""Runs the suite and reads the results of its scenarios."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.node import MODULES, find_node, install_modules

_PACKAGE = "@modelcontextprotocol/conformance"

_EXTENSION_SCENARIOS = tuple(
    f"sep-2640-skills-{part}" for part in ("directory", "enumeration", "manifest")
)
"""Scenarios of extensions that the server has; `all` contains those of the protocol only."""

_FIRST_WITH_EXTENSIONS = "2026-07-28"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The results of the checks of a scenario. Skipped checks are not counted."""

    passed: int
    failed: tuple[str, ...]
    warned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The installed suite."""

    folder: Path

    @classmethod
    def ready(cls) -> Suite:
        """Return the suite. Install it if necessary."""
        return cls(install_modules(*MODULES["conformance"]) / _PACKAGE)

    def run(self, port: int, revision: str, results: Path) -> dict[str, Scenario]:
        """Run every scenario of a revision against `/mcp` on a local port."""
        given = ["--url", f"http://127.0.0.1:{port}/mcp", "--spec-version", revision]
        given += ["--output-dir", str(results)]
        self._start(*given, "--suite", "all")
        for name in _EXTENSION_SCENARIOS if revision >= _FIRST_WITH_EXTENSIONS else ():
            self._start(*given, "--scenario", name, "--force")
        return dict(sorted(map(_read, results.glob("server-*/checks.json"))))

    def _start(self, *given: str) -> None:
        subprocess.run(
            [find_node(), self.folder / "dist" / "index.js", "server", *given],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=400,
            check=False,  # it fails if any scenario does, and a server need not have them all
        )

    def required(self, revision: str) -> set[str]:
        """Return the scenarios that the suite requires of a server of a revision."""
        text = (self.folder / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
        return set(yaml.safe_load(text)["server"])


def _read(path: Path) -> tuple[str, Scenario]:
    checks: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    failed = tuple(
        f"{check['id']}: {check.get('errorMessage', check['description'])}"
        for check in checks
        if check["status"] == "FAILURE" and not check.get("details", {}).get("untestable")
    )
    warned = tuple(check["id"] for check in checks if check["status"] == "WARNING")
    named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", path.parent.name)
    assert named, path
    return named[1], Scenario(passed, failed, warned)
