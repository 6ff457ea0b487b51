"""`sessions_restore`: what can be undone; undo it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import answer_size, plans, render, schemas
from mcp_serve import arguments as given_as
from mcp_serve.arguments import format_time
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.render import drop_empty
from mcp_serve.tools.spec import ToolSpec
from session_core import ApplyResult, InvalidInput, PlanPreview, RestoreResult, UndoPlan, UndoResult


class RestoreArguments(given_as.PageArguments):
    """The arguments of `sessions_restore`."""

    batch: Annotated[str, Field(max_length=100, description="Undo this one.")] | None = None
    plan: given_as.Handle | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def restore_changes(
    home: ServedHome, given: RestoreArguments, asked: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """List what can be undone, or undo it."""
    if given.plan is not None:
        plans.check_plan_kind(home, given.plan, "undo")
        return _apply_plan(home, given.plan, work)
    if given.batch is None:
        return answer_size.fit_answer(
            lambda limit: _list_batches(home, limit, asked), "batches", given.limit
        )
    if given.cursor is not None:
        raise InvalidInput("give a batch or a cursor, not both")
    return _restore_batch(home, given.batch, work)


def _apply_plan(home: ServedHome, plan: str, work: CallContext) -> dict[str, Any]:
    """Take back what is planned; the removal of an import has a batch of its own."""
    found = plans.run_plan(home, plan, work)
    if isinstance(found, ApplyResult):
        return plans.render_applied(home, found, "restored", count=found.removed)
    return _render_undone(home, found, plan=plan)


def _restore_batch(home: ServedHome, batch: str, work: CallContext) -> dict[str, Any]:
    total = 0

    def tell(done: RestoreResult) -> None:
        nonlocal total
        total = max(total, done.remaining + 1)
        work.report_progress(total - done.remaining, total)

    goes_on = any(step.undone_at is not None for step in home.ledger.list_steps(batch))
    found = home.make_maintenance(work.client).restore(batch, progress=tell, stop=work.is_cancelled)
    if isinstance(found, UndoPlan):
        found = home.maintenance.get_plan(found.plan)
    if isinstance(found, PlanPreview):
        return plans.render_preview(home, found)
    if isinstance(found, UndoResult):
        return _render_undone(home, found, batch=batch)
    tell(found)
    return _render_result(
        outcome=found.outcome,
        restored=found.restored,
        skipped=plans.render_skipped(home, [(each.what, each.why) for each in found.unfit]),
        remaining=found.remaining,
        batch=found.batch,
        bytes=asdict(found.bytes),
        warnings=[plans.RESUMED_NOTE] if goes_on else [],
    )


def _list_batches(home: ServedHome, limit: int, asked: PagedQuery) -> dict[str, Any]:
    page = home.maintenance.batches(limit, asked.place, undone=False)
    listed = [
        {
            "batch": each.id,
            "at": format_time(each.at),
            "tool": render.render_line(home, each.what) or "",
            "count": each.count,
            "expires_at": format_time(each.expires_at),
            **drop_empty(profile=home.profile),
        }
        for each in page.items
    ]
    return {"batches": listed, "next_cursor": asked.make_cursor(page.next_cursor)}


def _render_undone(home: ServedHome, found: Any, **which: str) -> dict[str, Any]:
    title = render.render_line(home, found.lost_title)
    return _render_result(
        outcome="applied",
        restored=found.restored,
        skipped=[],
        remaining=0,
        warnings=[f"title {title!r} is in use by now"] if title else [],
        **which,
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
        "Undo a change. Without arguments: what can be undone, newest first. With batch: all "
        "that change removed, ended or rewrote comes back; where that would drop what was said "
        "since, it answers a plan that says so, and a call with plan does it."
    ),
    arguments=RestoreArguments,
    answers=schemas.RestoreOutput,
    run=restore_changes,
    changes=True,
    destructive=True,
    asks="undo",
)
