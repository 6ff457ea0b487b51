"""Compression under faults: both shapes and both undos, on homes with routes and a ledger.

`compression_sweep` lets every write of `COMPRESSION_MUTATIONS` fail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from session_core.compression.compressor import Compressor
from session_core.compression.types import UndoResult
from session_core.config import GatewayConfig
from session_core.errors import Conflict
from session_core.ledger.ledger import Ledger
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import ledger, routes
from tests.faults.ledger import KEPT, AdjacentStateFolder
from tests.faults.mutations import NOW_S
from tests.faults.routes import CHAT

LATER_S = 1000.0
"""Time after which the lock of a crashed process has expired."""

FAULTY_FILES = (
    *routes.FAULTY_FILES,
    *(name for name in ledger.FAULTY_FILES if name.startswith(KEPT)),
)
"""Files whose calls fail: those of the home, of its routes and of the ledger."""

CompressionShape = Literal["in_place", "continuation"]


class CompressionHome:
    """A home with its routes, its ledger and a compressor, closed together."""

    def __init__(self, home: Path, *, later: bool = False) -> None:
        now = NOW_S + LATER_S * later
        with ExitStack() as stack:
            self.db = SessionDB(home / "state.db", patience_s=2.0, clock=lambda: now)
            stack.callback(self.db.close)
            self.ledger = Ledger(
                AdjacentStateFolder(home / "state.db", root=home / KEPT),
                clock=lambda: now,
                patience_s=2.0,
            )
            stack.callback(self.ledger.close)
            self.store = SessionStore(
                home / routes.SESSIONS_FOLDER,
                config=GatewayConfig(),
                db=self.db,
                now=lambda: datetime.fromtimestamp(now),  # noqa: DTZ006 -- local, as stored
            )
            stack.callback(self.store.close)
            self.compressor = Compressor(self.db, self.ledger, store=self.store, clock=lambda: now)
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Close all parts, even if one of them fails."""
        self._closing.close()

    def find_latest_id(self, what: str) -> str:
        """Return the id of the newest plan or batch."""
        sql = {"plan": "SELECT handle FROM plans ORDER BY rowid DESC",
               "batch": "SELECT id FROM batches ORDER BY rowid DESC"}[what]  # fmt: skip
        found: str = self.ledger._file.read(lambda rows: rows.fetch_value(sql))
        return found


CompressionAction = Callable[[CompressionHome], object]


@dataclass(frozen=True, slots=True)
class CompressionMutation:
    """One change, the home for it, and its repetition after a fault."""

    name: str
    act: CompressionAction
    again: CompressionAction
    prepare: CompressionAction
    kind: Literal["own", "hermes", "older"]
    """`older` is a Hermes home whose routes are only in the file."""
    undoes: bool
    opens: type[CompressionHome] = CompressionHome
    files: tuple[str, ...] = field(default=FAULTY_FILES, repr=False)


# -- mutations ---------------------------------------------------------------------------------


def _make_plan_action(shape: CompressionShape) -> CompressionAction:
    return lambda opened: opened.compressor.plan(CHAT, keep_last=2, shape=shape)


def _apply_plan(opened: CompressionHome) -> object:
    return opened.compressor.apply(opened.find_latest_id("plan"))


def _make_compress_action(shape: CompressionShape) -> CompressionAction:
    return lambda opened: opened.compressor.compress(CHAT, keep_last=2, shape=shape)


def _make_retry_action(shape: CompressionShape) -> CompressionAction:
    def again(opened: CompressionHome) -> None:
        """Skip a session that is compressed already, because a second run would be refused."""
        if not is_compressed(opened):
            _make_compress_action(shape)(opened)

    return again


def is_compressed(opened: CompressionHome) -> bool:
    """Return whether the conversation begins with a summary."""
    rows = opened.db.get_messages(opened.db.get_compression_tip(CHAT))
    return any("CONTEXT SUMMARY" in str(row["content"]) for row in rows)


def _undo_batch(opened: CompressionHome) -> UndoResult:
    return opened.compressor.undo(opened.find_latest_id("batch"))


def _retry_undo(opened: CompressionHome) -> None:
    batch = _find_first_batch(opened)
    try:
        opened.compressor.undo(batch)
    except Conflict:
        assert opened.ledger.get_batch(batch).undone_at is not None


def _find_first_batch(opened: CompressionHome) -> str:
    found: str = opened.ledger._file.read(
        lambda rows: rows.fetch_value("SELECT id FROM batches ORDER BY rowid")
    )
    return found


def _plan_continuation_undo(opened: CompressionHome) -> None:
    """Compress into a continuation, append to it, and plan the undo."""
    tip = opened.compressor.compress(CHAT, keep_last=2, shape="continuation").session_id
    opened.db.append_message(tip, "user", "needle since")
    assert _undo_batch(opened).outcome == "planned"


def _apply_undo_plan(opened: CompressionHome) -> object:
    return opened.compressor.apply_undo(opened.find_latest_id("plan"))


def _list_mutations() -> list[CompressionMutation]:
    found = []
    for kind, shapes in _SHAPES_BY_KIND.items():
        for shape in shapes:
            label, do = f"{shape}, {kind}", _make_compress_action(shape)
            found += [
                CompressionMutation(
                    f"compressor.apply, {label}",
                    _apply_plan,
                    _apply_plan,
                    _make_plan_action(shape),
                    kind,
                    undoes=False,
                ),
                CompressionMutation(
                    f"compressor.undo, {label}", _undo_batch, _retry_undo, do, kind, undoes=True
                ),
            ]
        found.append(
            CompressionMutation(
                f"compressor.apply_undo, {kind}",
                _apply_undo_plan,
                _apply_undo_plan,
                _plan_continuation_undo,
                kind,
                undoes=True,
            )
        )
    again = _make_retry_action("continuation")
    do = _make_compress_action("continuation")
    found.append(
        CompressionMutation("compressor.compress", do, again, lambda _: None, "own", undoes=False)
    )
    return found


_SHAPES_BY_KIND: dict[Literal["own", "hermes", "older"], tuple[CompressionShape, ...]] = {
    "own": ("in_place", "continuation"),
    "hermes": ("in_place", "continuation"),
    "older": ("continuation",),
}
"""In place moves no route, so it is the same with and without a routing table."""

COMPRESSION_MUTATIONS = {one.name: one for one in _list_mutations()}


# -- homes -------------------------------------------------------------------------------------


def build_home(home: Path, mutation: CompressionMutation) -> None:
    """Build a home with a chat that is long enough, up to just before the change."""
    routes.build_home(home, mutation.kind)
    (home / KEPT).mkdir()
    opened = CompressionHome(home)
    try:
        opened.store.repair_routes()
        opened.db.append_messages(CHAT, _build_messages())
        opened.db.set_session_title(CHAT, "Trip")
        mutation.prepare(opened)
    finally:
        opened.close()


def _build_messages() -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    long = " They went along the river and looked for the ferry, quay_17." * 6
    said: list[dict[str, Any]] = [
        {"role": "user", "content": f"needle first.{long}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": f"needle found.{long}", "tool_call_id": "call_1"},
        {"role": "assistant", "content": f"it is there.{long}"},
    ]
    for number in range(3):
        text = f"needle {number} 针在草堆里.{long}"
        said += [{"role": "user", "content": text}, {"role": "assistant", "content": long}]
    return [{**one, "timestamp": NOW_S - 9000 + at} for at, one in enumerate(said)]
