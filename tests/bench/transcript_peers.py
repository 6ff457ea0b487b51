"""The programs that read the same transcripts: this program, deja and agentsview.

Each has a copy of the home folder, so that no program reads the state of another. deja is built by
hand from its public source; without its path its column is empty.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.serving import ServerProgram, ToolCall
from tests.peers import make_peer_environment, peer_python

AGENTSVIEW = ("agentsview-0.46.1", "agentsview==0.46.1")

_INDEX_TIMEOUT_S = 900


@dataclass(frozen=True)
class TranscriptPeer:
    """A program: how it indexes a home folder, serves it, searches it and lists its sessions."""

    name: str
    index: tuple[str, ...]
    serve: tuple[str, ...]
    folder: str
    """Below the home folder: the index."""
    search: Callable[[str], ToolCall]
    list_newest: ToolCall | None = None
    stop: tuple[str, ...] = ()
    """Ends a process that indexing or serving has left."""

    def index_home(self, home: Path) -> float:
        """Index a home folder whole and return the seconds."""
        began = time.perf_counter()
        self._run(self.index, home)
        return time.perf_counter() - began

    def measure_index_bytes(self, home: Path) -> int:
        """Return the size of the index."""
        return sum(path.stat().st_size for path in (home / self.folder).rglob("*"))

    def make_program(self, home: Path) -> ServerProgram:
        """Return the server of this home folder."""
        return ServerProgram(self.serve, _make_environment(home))

    def stop_daemon(self, home: Path) -> None:
        """Stop the process that the program has left running."""
        if self.stop:
            self._run(self.stop, home)

    def _run(self, command: tuple[str, ...], home: Path) -> None:
        subprocess.run(
            command,
            env=_make_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_INDEX_TIMEOUT_S,
            check=True,
        )


def make_own_peer() -> TranscriptPeer:
    """Return the installed command."""
    command = str(Path(sys.executable).with_name("mcp-sessions"))
    return TranscriptPeer(
        name="ours",
        index=(command, "search", "--json", "zyxwvq"),
        serve=(command, "serve"),
        folder=".local/state",
        search=lambda query: ToolCall("sessions_search", {"query": query}),
        list_newest=ToolCall("sessions_list", {"limit": 20}),
    )


def make_deja_peer(binary: Path) -> TranscriptPeer:
    """Return deja, which lists no sessions over MCP."""
    return TranscriptPeer(
        name="deja",
        index=(str(binary), "index", "--rebuild"),
        serve=(str(binary), "mcp"),
        folder=".cache/deja",
        search=lambda query: ToolCall("recall", {"query": query, "limit": 10}),
    )


def make_agentsview_peer() -> TranscriptPeer:
    """Return agentsview, whose `sync` starts a process that the server asks."""
    command = (str(peer_python(*AGENTSVIEW)), "-m", "agentsview")
    return TranscriptPeer(
        name="agentsview",
        index=(*command, "sync"),
        serve=(*command, "mcp"),
        folder=".agentsview",
        search=lambda query: ToolCall(
            "search_content", {"pattern": query, "mode": "terms", "limit": 10}
        ),
        list_newest=ToolCall("list_sessions", {"limit": 20}),
        stop=(*command, "daemon", "stop"),
    )


def _make_environment(home: Path) -> dict[str, str]:
    """Return the variables with which a program finds only this home folder, and no Hermes."""
    environment = make_peer_environment(home)
    del environment["HERMES_HOME"]
    return environment
