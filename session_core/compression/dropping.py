"""What goes where a continuation is taken back: it and what came of it, all in the trash first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from session_core.compression.past import Past, beside
from session_core.compression.records import Undone
from session_core.compression.routes import Led, Routes
from session_core.compression.work import fingerprint, goal_key
from session_core.errors import Changed
from session_core.ledger.records import Kept
from session_core.state.contract import StateDatabase

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Doomed:
    """The sessions that go, the continuation first, each with what it is now."""

    sessions: dict[str, dict[str, str]]
    detached: tuple[str, ...]
    """Sessions that lose their parent."""

    def changed(self, past: Past) -> tuple[str, ...]:
        """Return by name what of the continuation is not what the compression has left."""
        now, then = self.sessions.get(past.done.session_id), past.done.left
        if now is None:
            return ()
        return tuple(sorted(n for n in now.keys() | then.keys() if now.get(n) != then.get(n)))

    def drops_nothing(self, past: Past) -> bool:
        """Whether all that goes is what the compression has made, if it is not gone already."""
        return self.sessions.keys() <= {past.done.session_id} and not self.changed(past)


def look(db: StateDatabase, past: Past) -> Doomed:
    """Return a continuation, what continues it, and the delegates of both.

    Raises:
        Conflict: the session that it came from is not there any more.
    """
    past.require_old(db)
    sessions, detached = _descent(db, past.done.session_id)
    return Doomed({each: fingerprint(db, each) for each in sessions}, tuple(detached))


def kept(doomed: Doomed, past: Past, db: StateDatabase) -> Iterator[Kept]:
    """Yield all rows that will be deleted or changed, with columns that we know nothing of."""
    yield Kept("parent", db.get_session(past.old))
    for each in doomed.sessions:
        yield Kept("session", db.get_session(each))
        for message in db.get_messages(each, include_inactive=True):
            yield Kept("message", message)
        for table, rows in db.belongings(each).items():
            for row in rows:
                yield Kept(table, row)
        yield from beside(db, [*db.session_images(each), db.message_images(each, None, _ALL)[0]])
        for row in db.routing_rows(each):
            yield Kept("gateway_routing", row)
        goal = db.get_meta(goal_key(each))
        if goal is not None:
            yield Kept("state_meta", {"key": goal_key(each), "value": goal})
    for each in doomed.detached:
        yield Kept("detached", db.get_session(each))


def drop(doomed: Doomed, past: Past, routes: Routes, led: Led, db: StateDatabase) -> dict[str, Any]:
    """Delete what has gone on, and go on with what it came from.

    Raises:
        Changed: it is not what was looked at.
    """
    if look(db, past) != doomed:
        raise Changed("the conversation has gone on meanwhile; undo again")
    row = dict(db.get_session(past.old) or {})
    texts = {_named(found): found["entry_json"] for found in routes.rows(past.done.session_id)}
    routes.lead(led, past.old)
    for route in past.done.routes:
        if texts.get(_named(route["row"])) == route["left"]:
            db.put_routing_row(route["row"])
    dropped = sum(db.message_count(each) for each in doomed.sessions)
    for each in doomed.sessions:
        db.delete_meta(goal_key(each))
    db.delete_sessions(list(reversed(doomed.sessions)))
    if past.done.goal is not None and db.get_meta(goal_key(past.old)) is None:
        db.set_meta(goal_key(past.old), past.done.goal)
    lost_title = _put_back(db, past, row)
    restored = db.revision(past.old).live
    return asdict(Undone(past.old, restored, dropped, lost_title))


def _descent(db: StateDatabase, child: str) -> tuple[list[str], list[str]]:
    """Return the sessions that go with a continuation, and those that lose their parent."""
    if db.get_session(child) is None:
        return [], []
    chain = db.get_compression_lineage(child)
    found, detached = chain[chain.index(child) :], list[str]()
    for each in found:
        for row in db.children(each):
            if row["id"] in found:
                continue
            delegate = db.link_kind(row["id"]) == "delegate"
            (found if delegate else detached).append(row["id"])
    return found, detached


def _put_back(db: StateDatabase, past: Past, row: dict[str, Any]) -> str | None:
    """Make the session what it was before it was ended; return the title that it cannot have.

    A route that is led back tells its session about the chat, of which that may have known nothing.
    """
    if row["end_reason"] == "compression":
        row |= {name: past.row[name] for name in ("ended_at", "end_reason")}
    lost = None
    for name in ("title", "handoff_state"):
        if name in row and row[name] is None:
            row[name] = past.row[name]
    if row["title"] is not None:
        holder = db.get_session_by_title(row["title"])
        if holder is not None and holder["id"] != past.old:
            lost, row["title"] = row["title"], None
    now: dict[str, Any] = {**(db.get_session(past.old) or {})}
    db.put_session_fields(past.old, {k: v for k, v in row.items() if now.get(k) != v})
    return lost


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["scope"], row["session_key"]
