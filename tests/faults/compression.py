"""Compression under faults: its two shapes and both ways back, on homes with routes and a ledger.

`COMPRESSIONS` is what `compression_sweep` fails at every write of all three.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from session_core.compression.compressor import Compressor
from session_core.compression.types import UndoPlanned
from session_core.config import GatewayConfig
from session_core.errors import Conflict
from session_core.ledger.ledger import Ledger
from session_core.routing.store import SessionStore
from session_core.state.sqlite.database import SessionDB
from tests.faults import ledger, routes
from tests.faults.ledger import KEPT, Beside
from tests.faults.mutations import NOW
from tests.faults.routes import CHAT

LATER_S = 1000.0
"""After a crash the lock runs out."""

FILES = (*routes.FILES, *(name for name in ledger.FILES if name.startswith(KEPT)))
"""The files whose calls are made to fail: those of the home, of its routes and of the ledger."""

Shape = Literal["in_place", "continuation"]


class Opened:
    """A home with its routes, its ledger and a compressor, closed together."""

    def __init__(self, home: Path, *, later: bool = False) -> None:
        now = NOW + LATER_S * later
        with ExitStack() as stack:
            self.db = SessionDB(home / "state.db", patience_s=2.0, clock=lambda: now)
            stack.callback(self.db.close)
            self.ledger = Ledger(
                Beside(home / "state.db", root=home / KEPT), clock=lambda: now, patience_s=2.0
            )
            stack.callback(self.ledger.close)
            self.store = SessionStore(
                home / routes.FOLDER,
                config=GatewayConfig(),
                db=self.db,
                now=lambda: datetime.fromtimestamp(now),  # noqa: DTZ006 -- local, as stored
            )
            stack.callback(self.store.close)
            self.compressor = Compressor(self.db, self.ledger, store=self.store, clock=lambda: now)
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Close all of it, whatever fails."""
        self._closing.close()

    def noted(self, what: str) -> str:
        """Return the last plan, or the last batch, that there is."""
        sql = {"plan": "SELECT handle FROM plans ORDER BY rowid DESC",
               "batch": "SELECT id FROM batches ORDER BY rowid DESC"}[what]  # fmt: skip
        found: str = self.ledger._file.read(lambda rows: rows.value(sql))
        return found


Act = Callable[[Opened], object]


@dataclass(frozen=True, slots=True)
class Compression:
    """One change, the home that it is tried on, and how it is done once more after a fault."""

    name: str
    act: Act
    again: Act
    prepare: Act
    kind: Literal["own", "hermes", "older"]
    """`older` is a home of Hermes whose routes are in the file alone."""
    undoes: bool
    opens: type[Opened] = Opened
    files: tuple[str, ...] = field(default=FILES, repr=False)


# -- what is done ------------------------------------------------------------------------------


def _plan(shape: Shape) -> Act:
    return lambda opened: opened.compressor.plan(CHAT, keep_last=2, shape=shape)


def _apply(opened: Opened) -> object:
    return opened.compressor.apply(opened.noted("plan"))


def _compress(shape: Shape) -> Act:
    return lambda opened: opened.compressor.compress(CHAT, keep_last=2, shape=shape)


def _compress_again(shape: Shape) -> Act:
    def again(opened: Opened) -> None:
        """Where it was done there is nothing to win any more, or another session is compressed."""
        if not is_compressed(opened):
            _compress(shape)(opened)

    return again


def is_compressed(opened: Opened) -> bool:
    """Whether the conversation begins with a summary by now."""
    rows = opened.db.get_messages(opened.db.get_compression_tip(CHAT))
    return any("CONTEXT SUMMARY" in str(row["content"]) for row in rows)


def _undo(opened: Opened) -> object:
    return opened.compressor.undo(opened.noted("batch"))


def _undo_again(opened: Opened) -> None:
    batch = _first_batch(opened)
    try:
        opened.compressor.undo(batch)
    except Conflict:
        assert opened.ledger.batch(batch).undone_at is not None


def _first_batch(opened: Opened) -> str:
    found: str = opened.ledger._file.read(
        lambda rows: rows.value("SELECT id FROM batches ORDER BY rowid")
    )
    return found


def _go_on(opened: Opened) -> None:
    """Compress into a continuation, say something there, and plan to take that back."""
    tip = opened.compressor.compress(CHAT, keep_last=2, shape="continuation").session_id
    opened.db.append_message(tip, "user", "needle since")
    assert isinstance(_undo(opened), UndoPlanned)


def _apply_undo(opened: Opened) -> object:
    return opened.compressor.apply_undo(opened.noted("plan"))


def _all() -> list[Compression]:
    found = []
    for kind, shapes in _KINDS.items():
        for shape in shapes:
            label, do = f"{shape}, {kind}", _compress(shape)
            found += [
                Compression(
                    f"compressor.apply, {label}", _apply, _apply, _plan(shape), kind, undoes=False
                ),
                Compression(f"compressor.undo, {label}", _undo, _undo_again, do, kind, undoes=True),
            ]
        found.append(
            Compression(
                f"compressor.apply_undo, {kind}",
                _apply_undo,
                _apply_undo,
                _go_on,
                kind,
                undoes=True,
            )
        )
    again = _compress_again("continuation")
    do = _compress("continuation")
    found.append(Compression("compressor.compress", do, again, lambda _: None, "own", undoes=False))
    return found


_KINDS: dict[Literal["own", "hermes", "older"], tuple[Shape, ...]] = {
    "own": ("in_place", "continuation"),
    "hermes": ("in_place", "continuation"),
    "older": ("continuation",),
}
"""In place no route is moved, so that it is the same with and without their table."""

COMPRESSIONS = {one.name: one for one in _all()}


# -- homes -------------------------------------------------------------------------------------


def build(home: Path, mutation: Compression) -> None:
    """Make a home with a chat in which enough was said, up to just before the change."""
    routes.build(home, mutation.kind)
    (home / KEPT).mkdir()
    opened = Opened(home)
    try:
        opened.store.check_against_state()
        opened.db.append_messages(CHAT, _said())
        opened.db.set_session_title(CHAT, "Trip")
        mutation.prepare(opened)
    finally:
        opened.close()


def _said() -> list[dict[str, Any]]:
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
    return [{**one, "timestamp": NOW - 9000 + at} for at, one in enumerate(said)]
