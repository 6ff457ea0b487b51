"""`sessions_restore`: what can be undone; undo it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import budget, plans, rows, shapes
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.times import iso
from mcp_serve.tools.spec import Spec
from session_core import Applied, InvalidInput, Restored, UndoPlanned


class RestoreArguments(given_as.Listing):
    """The arguments of `sessions_restore`."""

    batch: Annotated[str, Field(max_length=100)] | None = None
    plan: given_as.Handle | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def restore(home: Home, given: RestoreArguments, asked: Asked) -> dict[str, Any]:
    """List what can be undone, or undo it."""
    if given.plan is not None:
        plans.check_kind(home, given.plan, "undo")
        return _undone(home, home.maintenance.apply(given.plan), given.plan)
    if given.batch is None:
        return budget.fit(lambda limit: _batches(home, limit, asked), "batches", given.limit)
    if given.cursor is not None:
        raise InvalidInput("give a batch or a cursor, not both")
    found = home.maintenance.restore(given.batch)
    if isinstance(found, UndoPlanned):
        return _planned(home, found)
    if isinstance(found, Restored):
        return _said(
            outcome=found.outcome,
            restored=found.restored,
            skipped=[
                {"id": each.what, "why": rows.one_line(home, each.why)} for each in found.unfit
            ],
            remaining=found.remaining,
            batch=found.batch,
        )
    return _undone(home, found, None, given.batch)


def _batches(home: Home, limit: int, asked: Asked) -> dict[str, Any]:
    page = home.maintenance.batches(limit, asked.place)
    listed = [
        {
            "batch": each.id,
            "at": iso(each.at),
            "tool": each.what,
            "count": each.count,
            "expires_at": iso(each.expires_at),
        }
        for each in page.items
        if each.undone_at is None and each.emptied_at is None
    ]
    return {"batches": listed, "next_cursor": asked.at(page.next_cursor)}


def _planned(home: Home, found: UndoPlanned) -> dict[str, Any]:
    said = plans.preview(home, home.maintenance.planned(found.plan))
    dropped = f"{found.messages} messages that were said since would go to the trash"
    return said | {"warnings": [*said["warnings"], dropped]}


def _undone(home: Home, found: Any, plan: str | None, batch: str | None = None) -> dict[str, Any]:
    if isinstance(found, Applied):
        return plans.applied(home, found, "removed")
    title = rows.one_line(home, found.lost_title)
    lost = [f"title {title!r} is in use by now"] if title else []
    return _said(
        outcome="applied",
        plan=plan,
        restored=found.restored,
        skipped=[],
        remaining=0,
        batch=batch,
        warnings=lost,
    )


def _said(**fields: Any) -> dict[str, Any]:
    return {
        "plan": None,
        "expires_at": None,
        "count": fields["restored"],
        "items": [],
        "protected": [],
        "bytes": plans.NO_BYTES,
        "warnings": [],
        **fields,
    }


SPEC = Spec(
    name="sessions_restore",
    title="Restore",
    description=(
        "Undo a change. Without arguments: what can be undone, newest first. With batch: all "
        "that change removed, ended or rewrote comes back; where that would drop what was said "
        "since, it answers a plan, and a call with plan does it."
    ),
    arguments=RestoreArguments,
    answers=shapes.Restored,
    run=restore,
    changes=True,
    asks="undo",
)
