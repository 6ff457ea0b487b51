"""The folder of a sample home: made for the demo, and gone when that is told to end."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp_serve.cli import sample
from session_core import SessionDB


@dataclass(frozen=True, slots=True)
class SampleHome:
    """A home in a folder of its own."""

    folder: Path

    @property
    def path(self) -> Path:
        """The home itself."""
        return self.folder / "home"

    @property
    def serving(self) -> list[str]:
        """What follows the name of the command to serve it; nobody is there to be asked."""
        return ["serve", "--home", str(self.path), "--confirm=never"]

    @property
    def command(self) -> list[str]:
        """What starts a server of it, in whatever environment this is."""
        return [sys.executable, "-m", "mcp_serve.cli.main", *self.serving]

    def build(self) -> str:
        """Fill it; return what is in it."""
        clock = sample.Clock()
        self.path.mkdir()
        with SessionDB(self.path / "state.db", clock=clock) as db:
            sample.build(db, clock)
            sample.route(self.path, db, clock)
            return f"{db.message_count():,} messages, {db.sizes().db / 1e6:.1f} MB"


@contextmanager
def sample_home(*, keep: bool) -> Iterator[SampleHome]:
    """Have a folder for one; it is removed also where the process is told to end."""
    before = {each: signal.signal(each, _interrupt) for each in _endings()}
    folder = Path(tempfile.mkdtemp(prefix="mcp-sessions-demo-"))
    try:
        yield SampleHome(folder)
    finally:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        for each, handler in before.items():
            signal.signal(each, handler)


def _endings() -> list[signal.Signals]:
    return [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]


def _interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
