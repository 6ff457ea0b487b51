"""Peer systems, each in its own virtual environment and process.

The environments are in `.peers/` of this repository, or in `MCP_SESSIONS_PEERS`, and are made at
first use from a package index. They are never imported into our own process: two SQLite libraries
on one file drop each other's locks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

VERSIONS = ("3.13", "3.12", "3.11")
"""The Pythons that every peer runs on, newest first."""

ROOT = Path(__file__).parents[1]


class PeerMissing(Exception):
    """A peer could not be installed; the message lists its needs."""


def peer_python(name: str, requirement: str, *, versions: Sequence[str] = VERSIONS) -> Path:
    """Return the Python of the environment `name` that has `requirement`; make it if need be."""
    folder = get_peers_folder() / name
    python = _find_python(folder)
    if not python.exists():
        _make_environment(folder, requirement, find_base_python(versions))
    return python


def get_peers_folder() -> Path:
    """Return the folder of the environments."""
    return Path(os.environ.get("MCP_SESSIONS_PEERS") or ROOT / ".peers").absolute()


def list_pythons(versions: Sequence[str]) -> dict[str, str]:
    """Return the installed Pythons of these versions, by version."""
    found = ((read_version(command), command) for command in _list_candidates(versions))
    return {version: command for version, command in found if version in versions}


def find_base_python(versions: Sequence[str] = VERSIONS) -> str:
    """Return a Python of one of these versions, this one if it is."""
    for command in _list_candidates(versions):
        if read_version(command) in versions:
            return command
    raise PeerMissing(f"the peers need Python {' or '.join(versions)}; install one of them")


def make_peer_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables with which a peer finds only this home."""
    kept = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    own = {"HOME": str(home), "HERMES_HOME": str(home), "PYTHONIOENCODING": "utf-8"}
    return env | own | dict(extra or {})


def run_command(command: list[str], requirement: str, *, path: Path | None = None) -> None:
    """Run a step of an installation, with the programs of the folder `path` first.

    Raises:
        PeerMissing: it failed.
    """
    env = os.environ | ({"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"} if path else {})
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = "\n".join(process.stderr.strip().splitlines()[-15:]) or "no reason given"
        raise PeerMissing(f"{requirement} could not be installed:\n{reason}")


def build_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Build a folder next to its place and move it there, so that it is complete or missing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        fill(building)
        try:
            building.rename(folder)
        except OSError:
            if not folder.exists():  # else another run was faster
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _list_candidates(versions: Sequence[str]) -> Iterator[str]:
    yield sys.executable
    for version in versions:
        path = shutil.which(f"python{version}")
        if path:
            yield path
    # pyenv has only the selected versions on the path, and more in its own folder.
    for shims in filter(_is_of_pyenv, map(Path, os.environ["PATH"].split(os.pathsep))):
        for version in versions:
            yield from map(str, shims.parent.glob(f"versions/*/bin/python{version}"))


def _is_of_pyenv(folder: Path) -> bool:
    return folder.name == "shims" and (folder.parent / "versions").is_dir()


def read_version(command: str) -> str | None:
    """Return the version of a Python that can make environments, or None."""
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    asked = [command, "-c", code]
    process = subprocess.run(asked, capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else None


def _make_environment(folder: Path, requirement: str, base: str) -> None:
    def fill(building: Path) -> None:
        run_command([base, "-m", "venv", str(building)], requirement)
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", requirement]
        run_command([str(_find_python(building)), *install], requirement)

    build_folder(folder, fill)


def _find_python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
