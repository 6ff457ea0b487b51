"""Committing a compression, in place or as a continuation.

In place, the summary replaces a range in the same session. A continuation is a new session with the
messages before the range, the summary, and the messages after it. Both are one step of the ledger:
the step first checks that the range is still the planned range, keeps messages that were appended
after it, and returns the data for its undo.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from session_core.compression import retention
from session_core.compression.chat_messages import TokenEstimator
from session_core.compression.chat_routes import ChatRoutes
from session_core.compression.ranges import Refusal
from session_core.compression.rebuild import rebuild_messages
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
from session_core.ledger.execute import delete_step_marks, run_step
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
"""Columns that a continuation does not copy from its parent."""

_SETTINGS_MARKERS = ("_branched_from", "_delegate_from")
"""Settings that mark a session as a branch or a delegate, not a continuation."""

_COUNTER_COLUMNS = ("message_count", "tool_call_count")


def commit_in_place(db: StateDatabase, ready: PreparedCompression) -> CommittedChange:
    """Flag the range as compacted, then append the summary and copies of the later messages."""
    planned, tail = ready.planned, _list_following_messages(db, ready)
    replaced, carried = ready.list_ids(planned.start, planned.end), [row["id"] for row in tail]
    row_before: Mapping[str, Any] = db.get_session(planned.session_id) or {}
    # Messages are ordered by id, so those after the range are copied to follow the summary.
    compaction = db.rows.compact_messages(
        planned.session_id, replaced, ready.summary, carry=carried
    )
    row_after: Mapping[str, Any] = db.get_session(planned.session_id) or {}
    return CommittedChange(
        session_id=planned.session_id,
        before=compaction.before,
        after=compaction.after,
        made=compaction.ids,
        replaced=replaced,
        carried=carried,
        flags=_list_unusual_flags([*ready.rows[planned.start : planned.end], *tail]),
        counted={name: (row_before.get(name), row_after.get(name)) for name in _COUNTER_COLUMNS},
    )


def commit_continuation(
    db: StateDatabase, ready: PreparedCompression, routes: ChatRoutes
) -> CommittedChange:
    """End the session and continue it in a child with the summary in place of the range."""
    old, tail = ready.planned.session_id, [row["id"] for row in _list_following_messages(db, ready)]
    before, parent, route_rows = db.get_revision(old), db.get_session(old), routes.list_rows(old)
    if parent is None:
        raise Changed(f"session {old} was deleted by another process")
    child = f"{datetime.now():%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:8]}"  # noqa: DTZ005 -- session ids contain local time
    db.end_session(old, "compression")
    _create_child(db, parent, child)
    added_ids = [
        *db.rows.copy_messages(old, ready.list_ids(0, ready.planned.start), child).ids,
        *db.append_messages(child, ready.summary).ids,
        *db.rows.copy_messages(old, tail, child).ids,
    ]
    goal = _move_goal(db, old, child)
    routes.redirect_in_table(ready.chats, child)
    # Hermes chooses the tip among all children; the new child must be its choice.
    if db.get_compression_tip(old) != child:
        raise NotCompressed(
            "fork", f"another session would count as the continuation of {old}; use in_place"
        )
    texts = {
        (row["scope"], row["session_key"]): row["entry_json"] for row in routes.list_rows(child)
    }
    return CommittedChange(
        session_id=child,
        before=before,
        after=db.get_revision(child),
        made=added_ids,
        left=fingerprint_session(db, child),
        routes=[
            {"row": row, "left": texts[row_key]}
            for row in route_rows
            if (row_key := (row["scope"], row["session_key"])) in texts
        ],
        goal=goal,
    )


def require_range_unchanged(db: StateDatabase, ready: PreparedCompression) -> None:
    """Read the range and all messages before it again, and compare their digest.

    Raises:
        Changed: a row has changed.
    """
    if (
        digest_rows(db.get_messages(ready.planned.session_id, limit=ready.planned.end))
        != ready.digest
    ):
        raise _make_changed_error(ready)


def _list_following_messages(db: StateDatabase, ready: PreparedCompression) -> list[MessageRow]:
    """Return the live messages after the range.

    Raises:
        Changed: the range, or a message before it, has changed.
    """
    planned, expected = ready.planned, ready.revision
    revision = db.get_revision(planned.session_id)
    # With the last row of the range: its id shows that no live row before it has come or gone.
    rows = db.get_messages(planned.session_id, offset=planned.end - 1)
    # Messages that were appended since are kept, so they alone may change the revision.
    is_same = revision._replace(last_id=expected.last_id, live=expected.live) == expected
    if not is_same or not rows or rows[0]["id"] != ready.rows[planned.end - 1]["id"]:
        raise _make_changed_error(ready)
    if planned.end <= MAX_REREAD_ROWS:
        require_range_unchanged(db, ready)
    return rows[1:]


def _make_changed_error(ready: PreparedCompression) -> Changed:
    return Changed(f"session {ready.planned.session_id} was changed meanwhile; plan it again")


def _list_unusual_flags(rows: list[MessageRow]) -> list[tuple[int, int | None, int | None]]:
    """Return the flags of live rows unless they are 1 and 0.

    Some homes have NULL, or 1 and 1.
    """
    row_flags = [(row["id"], row.get("active"), row.get("compacted")) for row in rows]
    return [flags for flags in row_flags if flags[1:] != (1, 0)]


def _create_child(db: StateDatabase, parent: SessionRow, child: str) -> None:
    settings = _strip_markers(parent.get("model_config"))
    db.rows.copy_session(
        parent["id"],
        child,
        without=_OWN_COLUMNS,
        parent_session_id=parent["id"],
        model_config=settings,
    )
    if parent.get("handoff_state") is not None:
        db.rows.put_session_fields(
            parent["id"], {"handoff_state": None}
        )  # only the child is handed over
    # The parent keeps its own, and titles are unique in a home.
    if parent["title"]:
        db.set_session_title(child, db.get_next_title_in_lineage(parent["title"]))


def _move_goal(db: StateDatabase, old: str, child: str) -> str | None:
    # A goal is stored under the id of its session, and the agent continues in the child.
    goal = db.get_meta(build_goal_key(old))
    if goal is not None:
        db.set_meta(build_goal_key(child), goal)
        db.delete_meta(build_goal_key(old))
    return goal


def _strip_markers(settings: str | None) -> str | None:
    """Return the settings of a session without the markers of a branch or a delegate."""
    if settings is None:
        return None
    try:
        values = json.loads(settings)
    except ValueError:
        return settings
    if not isinstance(values, dict) or not values.keys() & set(_SETTINGS_MARKERS):
        return settings
    return json.dumps(
        {name: value for name, value in values.items() if name not in _SETTINGS_MARKERS}
    )


class CompressionCommitter:
    """Commits the compressions of one home."""

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
        planned: PlannedRange,
        row: SessionRow,
        rows: list[MessageRow],
        revision: Revision,
        summary: str,
    ) -> PreparedCompression:
        """Check a summary, and return the compression that can be committed.

        Raises:
            NotCompressed: the summary is empty, or not shorter than the range.
        """
        rebuilt = rebuild_messages(rows, planned.start, planned.end, summary, self._estimate)
        if isinstance(rebuilt, Refusal):
            raise NotCompressed(rebuilt.code, rebuilt.reason)
        report = retention.measure_retention(
            rows[planned.start : planned.end], summary, rows[planned.end :]
        )
        chats = self._routes.find_chats([row["id"]])
        digest = digest_rows(rows[: planned.end])
        return PreparedCompression(planned, row, rows, revision, rebuilt, report, chats, digest)

    def commit_compression(self, plan: str, ready: PreparedCompression) -> CompressionResult:
        """Run the step of a plan, and call the hooks before and after it.

        Raises:
            Changed: the range has changed.
            NotCompressed: Hermes would not recognise the new session as the continuation.
        """
        batch = self._ledger.begin_plan(plan).batch_id
        # Outside of the step, since a hook may take seconds and a step holds the lock.
        self._call_hook("before_compression", ready, ready.planned.session_id, len(ready.rows))
        try:
            stored = run_step(
                self._db,
                self._ledger,
                batch,
                before=partial(self._collect_trash, ready),
                change=partial(self._apply_change, ready, batch),
                members=[ready.planned.session_id],
                within=partial(self._open_transaction, ready),
            )
        except (Changed, NotCompressed):
            self._ledger.close_plan(plan)
            raise
        finish_plan(self._ledger, plan, stored)
        delete_step_marks(self._db, self._ledger)
        result = CompressionResult.from_json(stored["compressed"])
        self._call_hook("after_compression", ready, result.session_id, result.after.live)
        return result

    @contextmanager
    def _open_transaction(self, ready: PreparedCompression) -> Iterator[None]:
        # A long range is read before the transaction, which would hold the lock too long.
        if ready.planned.end > MAX_REREAD_ROWS:
            require_range_unchanged(self._db, ready)
        if ready.planned.shape == "in_place":
            yield
            return
        with self._routes.open_transaction(ready.chats):
            yield
            # Routes in a file follow the commit; see ChatRoutes.redirect_in_table.
            self._routes.redirect_in_file(ready.chats)

    def _collect_trash(self, ready: PreparedCompression, db: StateDatabase) -> Iterator[TrashItem]:
        """Yield the session row, which the step changes. The messages stay in the session."""
        yield TrashItem("session", db.get_session(ready.planned.session_id))

    def _apply_change(
        self, ready: PreparedCompression, batch: str, db: StateDatabase
    ) -> dict[str, Any]:
        if ready.planned.shape == "in_place":
            change = commit_in_place(db, ready)
        else:
            change = commit_continuation(db, ready, self._routes)
        result = CompressionResult(
            session_id=change.session_id,
            old_session_id=ready.planned.session_id,
            shape=ready.planned.shape,
            batch=batch,
            tokens_before=ready.rebuilt.tokens_before,
            tokens_after=ready.rebuilt.tokens_after,
            rows=len(change.replaced) + len(change.carried) + len(change.made),
            retention=ready.retention,
            before=Revision(*change.before),
            after=Revision(*change.after),
        )
        return {"compressed": result.to_json(), "done": asdict(change)}

    def _call_hook(
        self, hook: str, ready: PreparedCompression, session_id: str, count: int
    ) -> None:
        self._hooks().call(
            hook,
            session_id=session_id,
            platform=ready.row["source"],
            reason="compression",
            old_session_id=ready.planned.session_id,
            new_session_id=session_id,
            in_place=ready.planned.shape == "in_place",
            message_count=count,
        )
