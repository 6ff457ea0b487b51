"""A home with its maintenance, and the state that a restore must bring back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session_core import StateDatabase
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.types import ApplyResult, PlanPreview, PlanRequest, RestoreResult
from tests.faults import state
from tests.maintenance.homes import Home
from tests.postgres_home import read_tables

WORDS = ("says", "nothing_of_the_kind")


class Told:
    """The recorded calls of hooks."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str | None]] = []

    def on_session_finalize(self, session_id: str, reason: str | None) -> None:
        """Record the end of a session."""
        self.calls.append(("finalize", session_id, reason))

    def on_session_reset(self, session_id: str, reason: str | None) -> None:
        """Record the start of a new session."""
        self.calls.append(("reset", session_id, reason))


@dataclass
class Changing:
    """A home, its ledger and its maintenance."""

    home: Home
    ledger: Ledger
    maintenance: Maintenance
    hooks: Hooks
    told: Told
    root: Path

    def plan(self, what: Any = "sessions", verb: Any = "prune", **asked: Any) -> PlanPreview:
        """Make a plan of a kind."""
        return self.maintenance.plan(PlanRequest(what, verb, **asked))

    def apply(self, planned: PlanPreview, for_s: float = 60.0, **asked: Any) -> ApplyResult:
        """Apply a plan with at least one item."""
        assert planned.plan is not None
        result = self.maintenance.apply(planned.plan, for_s, **asked)
        assert isinstance(result, ApplyResult)
        return result

    def plan_and_apply(
        self, what: Any = "sessions", verb: Any = "prune", **asked: Any
    ) -> ApplyResult:
        """Make and apply a plan of a kind."""
        return self.apply(self.plan(what, verb, **asked))

    def restore(self, done: ApplyResult, for_s: float = 60.0) -> RestoreResult:
        """Restore the batch of a result."""
        restored = self.maintenance.restore(done.batch, for_s)
        assert isinstance(restored, RestoreResult)
        return restored

    def open_another(self, **more: Any) -> Maintenance:
        """Return another maintenance of the same home, as another program has."""
        more.setdefault("store", self.home.store)
        return Maintenance(self.home.db, self.ledger, clock=self.home.clock, **more)

    def sessions(self) -> set[str]:
        """Return the ids of all sessions."""
        return {item.id for item in self.home.db.admin.list_inventory()}

    def read_everything(self) -> dict[str, Any]:
        """Return the state that a restore brings back: rows, routes, files, search results."""
        if self.home.db.path is None:
            rows = read_tables(self.home.db)
        else:
            with state.open_connection(self.home.db.path) as opened:
                rows = {table: self._rows(opened, table) for table in state.list_tables(opened)}
        hits = {
            word: [hit.message_id for hit in self.home.db.search(word, limit=100).hits]
            for word in WORDS
        }
        return {"rows": rows, "files": self._files(), "routes": self._routes(), "hits": hits}

    def _rows(self, opened: Any, table: str) -> list[tuple[Any, ...]]:
        found = opened.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608 -- names that were read
        if table == "state_meta":
            found = [row for row in found if not row[0].startswith("mcp_sessions_folded")]
        return sorted(found, key=repr)

    def _files(self) -> dict[str, tuple[bytes, int, int]]:
        folder = self.home.store.sessions_dir
        if folder is None:
            return {}
        paths = (path for path in folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(folder)): (
                path.read_bytes(),
                path.stat().st_mtime_ns,
                path.stat().st_mode,
            )
            for path in paths
            if path.name not in ("sessions.json", ".sessions.lock")
        }

    def _routes(self) -> Mapping[str, Any]:
        folder = self.home.store.sessions_dir
        if folder is None:
            return self.home.db.routes.load_entries()
        path = folder / "sessions.json"
        stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return stored


@contextmanager
def live_gateway(home: Home) -> Iterator[int]:
    """A process that looks like a live gateway of a home."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "hermes", "gateway", "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        record = {"pid": process.pid, "kind": "hermes-gateway", "argv": command[3:]}
        (home.folder / "gateway.pid").write_text(json.dumps(record))
        yield process.pid


@contextmanager
def changing(home: Home, root: Path) -> Iterator[Changing]:
    """Maintain a home with a state folder of its own."""
    reports = Told()
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(home.db, root, home.clock))
        hooks = Hooks(group=None)
        hooks.register(reports)
        maintenance = Maintenance(home.db, ledger, store=home.store, hooks=hooks, clock=home.clock)
        yield Changing(home, ledger, maintenance, hooks, reports, root)


def open_ledger(db: StateDatabase, root: Path, clock: Callable[[], float]) -> Ledger:
    """Open the ledger of a home, in a state folder of the test if it has files."""
    if db.path is None:
        return Ledger.open(db, clock=clock)
    return Ledger(StateFolder(db.path, root=root), clock=clock)


def list_skip_reasons(done: ApplyResult) -> dict[str, str]:
    """Return why items were skipped, by their id."""
    return {item.id: item.why for item in done.skipped}
