"""`sessions_restore`: list undoable changes, or undo a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import answer_size, arguments, plan_answers, render, schemas
from mcp_serve.arguments import format_time
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.render import drop_empty
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.merging import merge_newest
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput
from session_core.compression import UndoResult
from session_core.ledger import Batch, Labels, StoredPlan
from session_core.maintenance import RestoreResult
from session_core.types import Page


class RestoreArguments(arguments.PageArguments):
    """The arguments of `sessions_restore`."""

    batch: Annotated[str, Field(max_length=100, description="Change to undo.")] | None = None
    plan: arguments.Handle | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def restore_changes(
    stores: Sequence[ServedStore],
    arguments: RestoreArguments,
    page_query: PagedQuery,
    work: CallContext,
) -> dict[str, Any]:
    """List the undoable changes of the stores, or undo a change of the first store."""
    if arguments.plan is None and arguments.batch is None:
        return list_batches(stores, arguments, page_query)
    if arguments.cursor is not None:
        raise InvalidInput("pass a batch or a cursor, not both")
    store = stores[0]
    if isinstance(store, ServedHome):
        answer = _restore_in_home(store, arguments, work)
    else:
        answer = _restore_labels(store, arguments.batch or arguments.plan or "", work)
    return answer | drop_empty(store=answer.get("store", store.store_name))


def _restore_in_home(
    home: ServedHome, arguments: RestoreArguments, work: CallContext
) -> dict[str, Any]:
    if arguments.plan is not None:
        return _apply_plan(home, plan_answers.load_plan(home, arguments.plan, SPEC.asks), work)
    return _restore_batch(home, arguments.batch or "", work)


def _restore_labels(store: ServedStore, batch: str, work: CallContext) -> dict[str, Any]:
    """Undo an edit of labels at once."""
    labels = get_labels(store)
    restored = labels.restore(batch, client=work.client)
    reason = "was edited again since"
    return _render_result(
        outcome="applied",
        restored=len(restored.restored),
        skipped=[
            {"id": render.render_id(session_id), "why": reason} for session_id in restored.skipped
        ],
        remaining=0,
        batch=batch,
        warnings=[],
    ) | drop_empty(store=store.find_shown_store(restored.store))


def get_labels(store: ServedStore) -> Labels:
    """Return the labels of a transcript store."""
    from mcp_serve.stores.transcripts import ServedTranscripts  # noqa: PLC0415 -- only if one is served

    if not isinstance(store, ServedTranscripts):
        raise TypeError(f"{store.name} has no labels")
    return store.labels


def _apply_plan(home: ServedHome, plan: StoredPlan, work: CallContext) -> dict[str, Any]:
    """Apply an undo plan.

    Undoing an import removes sessions and has a batch of its own.
    """
    result = plan_answers.run_plan(home, plan, work)
    if result.undone is not None:
        return _render_undone(home, result.undone, plan=plan.handle)
    return plan_answers.render_applied(home, plan, result, "restored", count=result.removed)


def _restore_batch(home: ServedHome, batch: str, work: CallContext) -> dict[str, Any]:
    total = 0

    def report(progress: RestoreResult) -> None:
        nonlocal total
        total = max(total, progress.remaining + 1)
        work.report_progress(total - progress.remaining, total)

    # Read before the restore, which undoes the remaining steps.
    is_resumed = any(step.undone_at is not None for step in home.ledger.list_steps(batch))
    result = home.maintenance.restore(
        batch, client=work.client, progress=report, stop=work.is_cancelled
    )
    if result.plan is not None:
        return plan_answers.render_preview(home, result.plan)
    if result.undone is not None:
        return _render_undone(home, result.undone, batch=batch)
    report(result)
    return _render_result(
        outcome=result.outcome,
        restored=result.restored,
        skipped=plan_answers.render_skipped(home, [(item.what, item.why) for item in result.unfit]),
        remaining=result.remaining,
        batch=result.batch,
        bytes=asdict(result.bytes),
        warnings=[plan_answers.RESUMED_NOTE] if is_resumed else [],
    )


def list_batches(
    stores: Sequence[ServedStore], arguments: RestoreArguments, page_query: PagedQuery
) -> dict[str, Any]:
    """Return the newest batches of the stores.

    Each store has a position in the cursor.
    """

    def fetch(limit: int) -> dict[str, Any]:
        page = merge_newest(stores, _read_batches, limit, page_query.place)
        return {
            "batches": [_render_batch(store, batch) for store, batch in page.rows],
            "next_cursor": page_query.make_cursor(page.places or None),
            **render.join_notes(page.parts.explain_failures()),
        }

    return answer_size.fit_answer(fetch, "batches", arguments.limit)


def _read_batches(store: ServedStore, limit: int, cursor: str | None) -> Page[Batch]:
    return store.list_batches(limit, cursor)


def _render_batch(store: ServedStore, batch: Batch) -> dict[str, Any]:
    name = store.store_name if batch.store is None else store.find_shown_store(batch.store)
    return {
        "batch": batch.id,
        "at": format_time(batch.at),
        "tool": render.render_line(store, batch.what) or "",
        "count": batch.count,
        "expires_at": format_time(batch.expires_at),
        **drop_empty(store=name),
    }


def _render_undone(home: ServedHome, result: UndoResult, **handle: str) -> dict[str, Any]:
    title = render.render_line(home, result.lost_title)
    return _render_result(
        outcome="applied",
        restored=result.restored,
        skipped=[],
        remaining=0,
        warnings=[f"title {title!r} is now used by another session; it was not restored"]
        if title
        else [],
        **handle,
    )


def _render_result(**fields: Any) -> dict[str, Any]:
    return {
        "plan": None,
        "expires_at": None,
        "count": fields["restored"],
        "items": [],
        "protected": [],
        "bytes": plan_answers.NO_BYTES,
        "batch": None,
        **fields,
    }


SPEC = ToolSpec(
    name="sessions_restore",
    title="Restore",
    description=(
        "Undo a change. Without arguments: list undoable changes, newest first. With batch: "
        "restore all that it removed, ended or rewrote; if that would drop newer messages, it "
        "returns a plan with a warning, and a call with plan applies it."
    ),
    arguments=RestoreArguments,
    answers=schemas.RestoreOutput,
    run=restore_changes,
    changes=True,
    takes_transcripts=True,
    merges=True,
    destructive=True,
    asks="restore",
    place=dict[str, str],
)
