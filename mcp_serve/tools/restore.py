"""`sessions_restore`: list undoable changes, or undo one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import answer_size, arguments, plans, render, schemas
from mcp_serve.arguments import format_time
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.render import drop_empty
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput
from session_core.compression import UndoPlan, UndoResult
from session_core.ledger import StoredPlan
from session_core.maintenance import ApplyResult, PlanPreview, RestoreResult


class RestoreArguments(arguments.PageArguments):
    """The arguments of `sessions_restore`."""

    batch: Annotated[str, Field(max_length=100, description="Change to undo.")] | None = None
    plan: arguments.Handle | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def restore_changes(
    home: ServedHome, arguments: RestoreArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """List undoable changes, or undo one."""
    if arguments.plan is not None:
        return _apply_plan(home, plans.load_plan(home, arguments.plan, SPEC.asks), work)
    if arguments.batch is None:
        return answer_size.fit_answer(
            lambda limit: _list_batches(home, limit, page_query), "batches", arguments.limit
        )
    if arguments.cursor is not None:
        raise InvalidInput("pass a batch or a cursor, not both")
    return _restore_batch(home, arguments.batch, work)


def _apply_plan(home: ServedHome, plan: StoredPlan, work: CallContext) -> dict[str, Any]:
    """Apply an undo plan; undoing an import removes sessions and has a batch of its own."""
    result = plans.run_plan(home, plan, work)
    if isinstance(result, ApplyResult):
        return plans.render_applied(home, plan, result, "restored", count=result.removed)
    return _render_undone(home, result, plan=plan.handle)


def _restore_batch(home: ServedHome, batch: str, work: CallContext) -> dict[str, Any]:
    total = 0

    def report(progress: RestoreResult) -> None:
        nonlocal total
        total = max(total, progress.remaining + 1)
        work.report_progress(total - progress.remaining, total)

    is_resumed = any(step.undone_at is not None for step in home.ledger.list_steps(batch))
    result = home.maintenance.restore(
        batch, client=work.client, progress=report, stop=work.is_cancelled
    )
    if isinstance(result, UndoPlan):
        result = home.maintenance.get_plan(result.plan)
    if isinstance(result, PlanPreview):
        return plans.render_preview(home, result)
    if isinstance(result, UndoResult):
        return _render_undone(home, result, batch=batch)
    report(result)
    return _render_result(
        outcome=result.outcome,
        restored=result.restored,
        skipped=plans.render_skipped(home, [(item.what, item.why) for item in result.unfit]),
        remaining=result.remaining,
        batch=result.batch,
        bytes=asdict(result.bytes),
        warnings=[plans.RESUMED_NOTE] if is_resumed else [],
    )


def _list_batches(home: ServedHome, limit: int, page_query: PagedQuery) -> dict[str, Any]:
    page = home.maintenance.batches(limit, page_query.place, undone=False)
    rows = [
        {
            "batch": batch.id,
            "at": format_time(batch.at),
            "tool": render.render_line(home, batch.what) or "",
            "count": batch.count,
            "expires_at": format_time(batch.expires_at),
            **drop_empty(store=home.store_name),
        }
        for batch in page.items
    ]
    return {"batches": rows, "next_cursor": page_query.make_cursor(page.next_cursor)}


def _render_undone(home: ServedHome, result: Any, **handle: str) -> dict[str, Any]:
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
        "bytes": plans.NO_BYTES,
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
    destructive=True,
    asks="restore",
)
