"""Runs the suite and reads the results of its scenarios."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.node import find_node, install_modules

_PACKAGE = "@modelcontextprotocol/conformance"
_VERSION = "0.2.0-alpha.12"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The results of the checks of a scenario; skipped checks are not counted."""

    passed: int
    failed: tuple[str, ...]
    warned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The installed suite."""

    folder: Path

    @classmethod
    def ready(cls) -> Suite:
        """Return the suite; install it if necessary."""
        return cls(install_modules(f"{_PACKAGE}@{_VERSION}") / _PACKAGE)

    def run(self, port: int, revision: str, results: Path) -> dict[str, Scenario]:
        """Run every scenario of a revision against `/mcp` on a local port."""
        expected = ["--suite", "all", "--spec-version", revision, "--output-dir", str(results)]
        address = ["--url", f"http://127.0.0.1:{port}/mcp"]
        subprocess.run(
            [find_node(), self.folder / "dist" / "index.js", "server", *address, *expected],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=100,
            check=False,  # it fails if any scenario does, and a server need not have them all
        )
        return dict(sorted(map(_read, results.glob("server-*/checks.json"))))

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
