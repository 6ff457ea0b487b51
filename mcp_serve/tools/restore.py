"""`sessions_restore`: what can be undone; undo it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import answer_size, plans, render, schemas
from mcp_serve import arguments as given_as
from mcp_serve.arguments import iso
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.progress import Work
from mcp_serve.render import said
from mcp_serve.tools.spec import Spec
from session_core import Applied, InvalidInput, Preview, Restored, Undone, UndoPlanned


class RestoreArguments(given_as.Listing):
    """The arguments of `sessions_restore`."""

    batch: Annotated[str, Field(max_length=100, description="Undo this one.")] | None = None
    plan: given_as.Handle | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def restore(home: Home, given: RestoreArguments, asked: Asked, work: Work) -> dict[str, Any]:
    """List what can be undone, or undo it."""
    if given.plan is not None:
        plans.check_kind(home, given.plan, "undo")
        return _applied(home, given.plan, work)
    if given.batch is None:
        return answer_size.fit(lambda limit: _batches(home, limit, asked), "batches", given.limit)
    if given.cursor is not None:
        raise InvalidInput("give a batch or a cursor, not both")
    return _restored(home, given.batch, work)


def _applied(home: Home, plan: str, work: Work) -> dict[str, Any]:
    """Take back what is planned; the removal of an import has a batch of its own."""
    found = plans.run(home, plan, work)
    if isinstance(found, Applied):
        return plans.applied(home, found, "restored", count=found.removed)
    return _undone(home, found, plan=plan)


def _restored(home: Home, batch: str, work: Work) -> dict[str, Any]:
    total = 0

    def tell(done: Restored) -> None:
        nonlocal total
        total = max(total, done.remaining + 1)
        work.tell(total - done.remaining, total)

    goes_on = any(step.undone_at is not None for step in home.ledger.steps(batch))
    found = home.maintenance_for(work.client).restore(batch, progress=tell, stop=work.is_cancelled)
    if isinstance(found, UndoPlanned):
        found = home.maintenance.planned(found.plan)
    if isinstance(found, Preview):
        return plans.preview(home, found)
    if isinstance(found, Undone):
        return _undone(home, found, batch=batch)
    tell(found)
    return _said(
        outcome=found.outcome,
        restored=found.restored,
        skipped=plans.skipped(home, [(each.what, each.why) for each in found.unfit]),
        remaining=found.remaining,
        batch=found.batch,
        bytes=asdict(found.bytes),
        warnings=[plans.WENT_ON] if goes_on else [],
    )


def _batches(home: Home, limit: int, asked: Asked) -> dict[str, Any]:
    page = home.maintenance.batches(limit, asked.place, undone=False)
    listed = [
        {
            "batch": each.id,
            "at": iso(each.at),
            "tool": render.one_line(home, each.what) or "",
            "count": each.count,
            "expires_at": iso(each.expires_at),
            **said(profile=home.profile),
        }
        for each in page.items
    ]
    return {"batches": listed, "next_cursor": asked.at(page.next_cursor)}


def _undone(home: Home, found: Any, **which: str) -> dict[str, Any]:
    title = render.one_line(home, found.lost_title)
    return _said(
        outcome="applied",
        restored=found.restored,
        skipped=[],
        remaining=0,
        warnings=[f"title {title!r} is in use by now"] if title else [],
        **which,
    )


def _said(**fields: Any) -> dict[str, Any]:
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


SPEC = Spec(
    name="sessions_restore",
    title="Restore",
    description=(
        "Undo a change. Without arguments: what can be undone, newest first. With batch: all "
        "that change removed, ended or rewrote comes back; where that would drop what was said "
        "since, it answers a plan that says so, and a call with plan does it."
    ),
    arguments=RestoreArguments,
    answers=schemas.Restored,
    run=restore,
    changes=True,
    destructive=True,
    asks="undo",
)
