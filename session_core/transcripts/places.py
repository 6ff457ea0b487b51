"""The folders of other agents, and which of their stores are on this machine.

The functions open no file and import no format, so that a server knows the names of its stores
before it reads anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from session_core.home import find_state_root

FOLDER_NAME = "transcripts"
"""The name of the folder of the index in the state folder."""

_SEEN_FOLDER = "seen"
_KEPT_FOLDER = "kept"


class _Agent(NamedTuple):
    """The folder of an agent, given by variables or a default, and its roots."""

    variables: tuple[str, ...]
    default: str
    roots: tuple[str, ...]
    inside: str = ""
    """The path of the agent's folder below the folder that a variable names."""


AGENTS = {
    "claude-code": _Agent(("CLAUDE_CONFIG_DIR",), ".claude", ("projects", "transcripts")),
    "codex": _Agent(("CODEX_HOME",), ".codex", ("sessions", "archived_sessions")),
    "opencode": _Agent(("XDG_DATA_HOME",), ".local/share", (".",), inside="opencode"),
    "openclaw": _Agent(("OPENCLAW_STATE_DIR",), ".openclaw", ("agents",)),
    "gemini": _Agent(("GEMINI_CLI_HOME",), "", ("tmp",), inside=".gemini"),
    "antigravity": _Agent(("GEMINI_CLI_HOME",), "", ("antigravity*",), inside=".gemini"),
    "qwen": _Agent(("QWEN_RUNTIME_DIR", "QWEN_HOME"), ".qwen", ("projects",)),
    "copilot": _Agent(("COPILOT_HOME",), ".copilot", ("session-state",)),
}
"""The agents by the names of their stores."""


def find_agent_folder(store: str, environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder of the agent of a store.

    It need not exist.
    """
    agent = AGENTS[store]
    configured = next((environ[name] for name in agent.variables if environ.get(name)), None)
    return (Path(configured) if configured else home / agent.default) / agent.inside


def find_user_folder(environ: Mapping[str, str]) -> Path:
    """Return the home folder of the user."""
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def find_index_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the index.

    It need not exist.
    """
    return find_state_root(environ) / FOLDER_NAME


def list_transcript_stores(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the stores on this machine.

    A store that was seen once stays in the list while the folder of its agent exists, so that a
    store that has moved is reported instead of missing. A store with kept sessions stays without a
    folder.
    """
    env = os.environ if environ is None else environ
    home, notes = find_user_folder(env), find_index_folder(env)
    return [store for store in AGENTS if _is_present(store, env, home, notes)]


def list_seen_stores(folder: Path) -> list[str]:
    """Return the stores that had sessions, as recorded in the folder of the index."""
    return [store for store in AGENTS if (folder / _SEEN_FOLDER / store).exists()]


def remember_stores(folder: Path, stores: Iterable[str]) -> None:
    """Record in the folder of the index that these stores had sessions."""
    _touch_store_files(folder / _SEEN_FOLDER, stores)


def remember_kept_stores(folder: Path, stores: Iterable[str]) -> None:
    """Record in the folder of the index that sessions of these stores are kept."""
    _touch_store_files(folder / _KEPT_FOLDER, stores)


def forget_kept_store(folder: Path, store: str) -> None:
    """Remove the record that sessions of a store are kept."""
    (folder / _KEPT_FOLDER / store).unlink(missing_ok=True)


def _touch_store_files(folder: Path, stores: Iterable[str]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for store in stores:
        (folder / store).touch(mode=0o600)


def _is_present(store: str, environ: Mapping[str, str], home: Path, notes: Path) -> bool:
    folder = find_agent_folder(store, environ, home)
    try:
        if (notes / _KEPT_FOLDER / store).exists():
            return True
        if any(
            root.is_dir() for name in AGENTS[store].roots for root in _expand_glob(folder, name)
        ):
            return True
        return folder.is_dir() and (notes / _SEEN_FOLDER / store).exists()
    except OSError:  # a folder that may not be read holds nothing for us
        return False


def _expand_glob(folder: Path, name: str) -> list[Path]:
    return list(folder.glob(name)) if "*" in name else [folder / name]
