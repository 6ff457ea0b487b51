"""What a client is to start: this very command, by a path that does not depend on its own."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from session_core import find_home

NAME = "mcp-sessions"
VARIABLES = ("MCP_SESSIONS_HOME", "HERMES_HOME")
"""What names a home in the environment."""


def command(*, shared: bool) -> list[str]:
    """Return how we are started; a `shared` configuration names no folder of this machine."""
    found = shutil.which(NAME)
    if shared and found:
        return [NAME]
    if _is_passing():
        return ["uvx" if shared else shutil.which("uvx") or "uvx", NAME]
    started = Path(sys.argv[0])
    if started.stem == NAME and started.is_file():
        return [str(started.absolute())]
    return [found] if found else [sys.executable, "-m", "mcp_serve.cli.main"]


def arguments(options: argparse.Namespace) -> list[str]:
    """Return what follows: the home and the limits that were asked for.

    A client does not have the variables of this shell, so that the home that one of them names is
    said too; not in a configuration that is shared, whose other readers have another one.
    """
    given = ["serve"]
    home = find_home(options.home)
    if options.home or (home.found_by in VARIABLES and not options.project):
        given += ["--home", str(home.path)]
    for profile in options.profile:
        given += ["--profile", profile]
    if options.all_profiles:
        given.append("--all-profiles")
    if options.read_only:
        given.append("--read-only")
    return given


def is_ours(entry: Any) -> bool:
    """Whether it is this program that an entry starts."""
    return isinstance(entry, dict) and any(map(_names_us, words(entry)))


def words(entry: dict[str, Any]) -> list[str]:
    """Return the command line of an entry, whether it stands in one list or in two."""
    started = entry.get("command")
    found = [*(started if isinstance(started, list) else [started]), *_list(entry.get("args"))]
    return [word for word in found if isinstance(word, str)]


def _names_us(word: str) -> bool:
    name = word.replace("\\", "/").rpartition("/")[2]
    return name.removesuffix(".exe").partition("==")[0] == NAME or word == "mcp_serve.cli.main"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_passing() -> bool:
    """Whether this environment is one that `uvx` made, which may be gone tomorrow."""
    return any(part.startswith("archive-v") for part in Path(sys.prefix).parts)
