"""The two shapes: what changes in the transaction of a compression.

How a summary takes the place of a range: in the same session, or in one that goes on from it.

Both run in one step of the ledger, check first that the range is still what was planned, and take
along whatever was said behind it. What a step returns says how it is undone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from session_core.compression import retention
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.ranges import Refusal
from session_core.compression.rebuild import rebuild_messages
from session_core.compression.routes import ChatRoutes
from session_core.compression.types import (
    MAX_REREAD_ROWS,
    CommittedChange,
    CompressionResult,
    NotCompressed,
    PlannedRange,
    PreparedCompression,
    build_goal_key,
    digest_rows,
    fingerprint_session,
    finish_plan,
)
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.execute import clear_marks, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import TrashItem
from session_core.state.protocol import StateDatabase
from session_core.types import MessageRow, Revision, SessionRow

_OWN_COLUMNS = frozenset(
    {
        *("ended_at", "end_reason", "expiry_finalized", "title", "rewind_count"),
        *("message_count", "tool_call_count", "api_call_count"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *("reasoning_tokens", "estimated_cost_usd", "actual_cost_usd"),
        *("cost_status", "cost_source", "pricing_version"),
    }
)
"""What a session that goes on has of its own; everything else is as in its parent."""

_SETTINGS_MARKERS = ("_branched_from", "_delegate_from")
"""What in the settings of a session says that it is no continuation."""

_COUNTER_COLUMNS = ("message_count", "tool_call_count")


def commit_in_place(db: StateDatabase, ready: PreparedCompression) -> CommittedChange:
    """Flag the range as compacted and put the summary, and copies of what follows, behind it."""
    work, tail = ready.work, _list_following_messages(db, ready)
    replaced, carried = ready.list_ids(work.start, work.end), [row["id"] for row in tail]
    counted = db.get_session(work.session_id) or {}
    done = db.compact_messages(work.session_id, replaced, ready.summary, carry=carried)
    now = db.get_session(work.session_id) or {}
    return CommittedChange(
        session_id=work.session_id,
        before=done.before,
        after=done.after,
        made=done.ids,
        replaced=replaced,
        carried=carried,
        flags=_list_odd_flags([*ready.rows[work.start : work.end], *tail]),
        counted={name: (counted.get(name), now.get(name)) for name in _COUNTER_COLUMNS},
    )


def commit_continuation(
    db: StateDatabase, ready: PreparedCompression, routes: ChatRoutes
) -> CommittedChange:
    """End the session and go on in a child with its head, the summary and what follows."""
    old, tail = ready.work.session_id, [row["id"] for row in _list_following_messages(db, ready)]
    before, parent, led = db.get_revision(old), db.get_session(old), routes.list_rows(old)
    if parent is None:
        raise Changed(f"session {old} was deleted meanwhile")
    child = f"{datetime.now():%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"  # noqa: DTZ005 -- local, as everywhere in ids
    db.end_session(old, "compression")
    _make_child(db, parent, child)
    made = [
        *db.copy_messages(old, ready.list_ids(0, ready.work.start), child).ids,
        *db.append_messages(child, ready.summary).ids,
        *db.copy_messages(old, tail, child).ids,
    ]
    goal = _move_goal(db, old, child)
    routes.redirect_table(ready.led, child)
    if db.get_compression_tip(old) != child:
        raise NotCompressed(
            "fork", f"another session would be taken for what continues {old}: use in_place"
        )
    texts = {
        (row["scope"], row["session_key"]): row["entry_json"] for row in routes.list_rows(child)
    }
    return CommittedChange(
        session_id=child,
        before=before,
        after=db.get_revision(child),
        made=made,
        left=fingerprint_session(db, child),
        routes=[
            {"row": row, "left": texts[named]}
            for row in led
            if (named := (row["scope"], row["session_key"])) in texts
        ],
        goal=goal,
    )


def require_unchanged(db: StateDatabase, ready: PreparedCompression) -> None:
    """Read the range and what is before it again, row by row.

    Raises:
        Changed: it is not what it was.
    """
    if digest_rows(db.get_messages(ready.work.session_id, limit=ready.work.end)) != ready.seen:
        raise _make_changed_error(ready)


def _list_following_messages(db: StateDatabase, ready: PreparedCompression) -> list[MessageRow]:
    """Return the live messages behind the range.

    Raises:
        Changed: the range, or what is before it, is not what it was.
    """
    work, then = ready.work, ready.revision
    now = db.get_revision(work.session_id)
    rows = db.get_messages(work.session_id, offset=work.end - 1)
    same = now._replace(last_id=then.last_id, live=then.live) == then
    if not same or not rows or rows[0]["id"] != ready.rows[work.end - 1]["id"]:
        raise _make_changed_error(ready)
    if work.end <= MAX_REREAD_ROWS:
        require_unchanged(db, ready)
    return rows[1:]


def _make_changed_error(ready: PreparedCompression) -> Changed:
    return Changed(f"session {ready.work.session_id} was changed meanwhile; plan it again")


def _list_odd_flags(rows: list[MessageRow]) -> list[tuple[int, int | None, int | None]]:
    """Return the flags of live rows that are not 1 and 0: some homes have NULL, or both."""
    found = [(row["id"], row.get("active"), row.get("compacted")) for row in rows]
    return [flags for flags in found if flags[1:] != (1, 0)]


def _make_child(db: StateDatabase, parent: SessionRow, child: str) -> None:
    settings = _strip_markers(parent.get("model_config"))
    db.copy_session(
        parent["id"],
        child,
        without=_OWN_COLUMNS,
        parent_session_id=parent["id"],
        model_config=settings,
    )
    if parent.get("handoff_state") is not None:
        db.put_session_fields(parent["id"], {"handoff_state": None})  # or both are handed over
    if parent["title"]:
        db.set_session_title(child, db.get_next_title_in_lineage(parent["title"]))


def _move_goal(db: StateDatabase, old: str, child: str) -> str | None:
    goal = db.get_meta(build_goal_key(old))
    if goal is not None:
        db.set_meta(build_goal_key(child), goal)
        db.delete_meta(build_goal_key(old))
    return goal


def _strip_markers(settings: str | None) -> str | None:
    """Return the settings of a session without what says that it is a branch or a delegate."""
    if settings is None:
        return None
    try:
        found = json.loads(settings)
    except ValueError:
        return settings
    if not isinstance(found, dict) or not found.keys() & set(_SETTINGS_MARKERS):
        return settings
    return json.dumps(
        {name: value for name, value in found.items() if name not in _SETTINGS_MARKERS}
    )


class CompressionCommitter:
    """Puts summaries in their place."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: ChatRoutes,
        hooks: Callable[[], Hooks],
        estimate: TokenEstimator,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._routes = routes
        self._hooks = hooks
        self._estimate = estimate

    def prepare_commit(
        self,
        work: PlannedRange,
        row: SessionRow,
        rows: list[MessageRow],
        revision: Revision,
        summary: str,
    ) -> PreparedCompression:
        """Return what would be committed, checked.

        Raises:
            NotCompressed: the summary is none, or is not shorter.
        """
        made = rebuild_messages(rows, work.start, work.end, summary, self._estimate)
        if isinstance(made, Refusal):
            raise NotCompressed(made.code, made.reason)
        report = retention.measure_retention(rows[work.start : work.end], summary, rows[work.end :])
        led = self._routes.find_chats([row["id"]])
        seen = digest_rows(rows[: work.end])
        return PreparedCompression(work, row, rows, revision, made, report, led, seen)

    def commit(self, plan: str, ready: PreparedCompression) -> CompressionResult:
        """Run the step of a plan, and tell the hooks before and after it.

        Raises:
            Changed: the range is not what it was.
            NotCompressed: what it would come to is not what continues the session.
        """
        batch = self._ledger.begin_plan(plan)
        self._call_hook("before_compression", ready, ready.work.session_id, len(ready.rows))
        try:
            stored = run_step(
                self._db,
                self._ledger,
                batch.id,
                before=partial(self._collect_trash, ready),
                change=partial(self._apply_change, ready, batch.id),
                members=[ready.work.session_id],
                within=partial(self._open_transaction, ready),
            )
        except (Changed, NotCompressed):
            self._ledger.close_plan(plan)
            raise
        finish_plan(self._ledger, plan, stored)
        clear_marks(self._db, self._ledger)
        done = CompressionResult.from_json(stored["compressed"])
        self._call_hook("after_compression", ready, done.session_id, done.after.live)
        return done

    @contextmanager
    def _open_transaction(self, ready: PreparedCompression) -> Iterator[None]:
        if ready.work.end > MAX_REREAD_ROWS:
            require_unchanged(self._db, ready)
        if ready.work.shape == "in_place":
            yield
            return
        with self._routes.open_transaction(ready.led):
            yield
            self._routes.redirect_file(ready.led)

    def _collect_trash(self, ready: PreparedCompression, db: StateDatabase) -> Iterator[TrashItem]:
        """Yield what the step is about to change; the messages themselves all stay."""
        yield TrashItem("session", db.get_session(ready.work.session_id))

    def _apply_change(
        self, ready: PreparedCompression, batch: str, db: StateDatabase
    ) -> dict[str, Any]:
        if ready.work.shape == "in_place":
            done = commit_in_place(db, ready)
        else:
            done = commit_continuation(db, ready, self._routes)
        compressed = CompressionResult(
            session_id=done.session_id,
            old_session_id=ready.work.session_id,
            shape=ready.work.shape,
            batch=batch,
            tokens_before=ready.made.tokens_before,
            tokens_after=ready.made.tokens_after,
            rows=len(done.replaced) + len(done.carried) + len(done.made),
            retention=ready.retention,
            before=Revision(*done.before),
            after=Revision(*done.after),
        )
        return {"compressed": compressed.to_json(), "done": asdict(done)}

    def _call_hook(
        self, hook: str, ready: PreparedCompression, session_id: str, count: int
    ) -> None:
        self._hooks().call(
            hook,
            session_id=session_id,
            platform=ready.row["source"],
            reason="compression",
            old_session_id=ready.work.session_id,
            new_session_id=session_id,
            in_place=ready.work.shape == "in_place",
            message_count=count,
        )
