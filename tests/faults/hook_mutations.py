"""Changes that end the session of a chat, in a store whose hooks record their calls.

The sweep of hooks makes every write of these changes fail, in the home and in the marks next to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from session_core import ExpiryWatcher, Hooks, SessionRuntime
from session_core.config import GatewayConfig, SessionResetPolicy
from session_core.ledger.hermes_delivery_marks import PersistentMarks
from tests.faults import routes
from tests.faults.ledger import KEPT, AdjacentStateFolder
from tests.faults.routes import (
    CHAT,
    OLD,
    OTHER,
    SESSIONS_FOLDER,
    RouteHome,
    RouteHomeKind,
    build_key,
    build_source,
)

HOOK_LOG_NAME = "told.txt"
"""What the hooks were told, a line each; its writes are never made to fail."""

FAULTY_FILES = (
    *routes.FAULTY_FILES,
    *(KEPT, *(f"{KEPT}/marks.db{end}" for end in ("", "-wal", "-shm", "-journal"))),
)

HookLines = list[tuple[str, str]]


class HookedRouteHome(RouteHome):
    """A store with hooks, and with delivery marks for a Hermes home."""

    def __init__(self, home: Path, *, later: bool = False) -> None:
        super().__init__(home, later=later)
        policy = SessionResetPolicy(mode="idle", idle_minutes=60)
        self.store.config = GatewayConfig(default_reset_policy=policy)
        self._log = home / HOOK_LOG_NAME
        hooks = Hooks(group=None, report=lambda *_: None)
        hooks.add("on_session_finalize", lambda session_id: self._log_hook("finalize", session_id))
        hooks.add("on_session_reset", lambda session_id: self._log_hook("reset", session_id))
        self.store.hooks = hooks
        if self.db is not None and self.db.kind == "hermes":
            folder = AdjacentStateFolder(home / "state.db", root=home / KEPT)
            self.store.marks = PersistentMarks(folder, SESSIONS_FOLDER, report=lambda *_: None)

    def run_expiry_tick(self) -> None:
        """Let a watcher look at all entries."""
        runtime = SessionRuntime(self.store, lambda _: None, db=self.db)  # type: ignore[arg-type, return-value]
        ExpiryWatcher(runtime, report=lambda *_: None).tick()

    def _log_hook(self, hook: str, session_id: str) -> None:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{hook} {session_id}\n".encode())
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class HookMutation:
    """One change that ends the session of a chat."""

    name: str
    act: Callable[[HookedRouteHome], object]
    kind: RouteHomeKind
    chat: str = CHAT
    by_clock: bool = False
    """Whether it is due: where it did not come about, the next start does it."""
    files: tuple[str, ...] = field(default=FAULTY_FILES, repr=False)
    opens: type[HookedRouteHome] = HookedRouteHome


def read_hook_log(home: Path) -> HookLines:
    """Return the recorded hook calls, in order."""
    path = home / HOOK_LOG_NAME
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(hook, session_id) for hook, session_id in (line.split() for line in lines)]


def _make_mutations(
    name: str, act: Callable[[HookedRouteHome], object], chat: str, *kinds: RouteHomeKind
) -> list[HookMutation]:
    by_clock = name == "expiry"
    return [HookMutation(f"told {name}, {kind}", act, kind, chat, by_clock) for kind in kinds]


HOOK_MUTATIONS = {
    mutation.name: mutation
    for mutation in (
        *_make_mutations(
            "reset",
            lambda opened: opened.store.reset_session(build_key(CHAT)),
            CHAT,
            "own",
            "hermes",
            "older",
            "file",
        ),
        *_make_mutations(
            "arrival",
            lambda opened: opened.store.get_or_create_session(build_source(OLD)),
            OLD,
            "own",
            "hermes",
        ),
        *_make_mutations(
            "resume",
            lambda opened: opened.store.switch_session(build_key(CHAT), OTHER),
            CHAT,
            "own",
            "hermes",
        ),
        *_make_mutations("expiry", HookedRouteHome.run_expiry_tick, OLD, "own", "hermes"),
    )
}
