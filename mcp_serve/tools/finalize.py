"""`sessions_finalize`: plan which sessions end, then exactly that by its handle."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import plans, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, PlanRequest


class FinalizeArguments(given_as.ProfileArguments):
    """The arguments of `sessions_finalize`."""

    sessions: given_as.Sessions | None = None
    what: Annotated[
        Literal["sessions", "expired", "orphaned", "abandoned"],
        Field(description="sessions: those that are listed."),
    ] = "sessions"
    reason: Annotated[str, Field(max_length=100)] | None = None
    start_new: Annotated[bool, Field(description="Their chats begin afresh.")] = False
    project: given_as.Project | None = None
    source: Annotated[str, Field(max_length=200)] | None = None
    older_than_days: given_as.Days | None = None
    plan: given_as.Handle | None = None


def finalize_sessions(
    home: ServedHome, given: FinalizeArguments, asked: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Plan, or apply what was planned."""
    del asked
    if given.plan is not None:
        return plans.apply_plan(home, given.plan, "finalize", "finalized", work)
    if given.what == "sessions" and not given.sessions:
        raise InvalidInput(
            "name the sessions to finalize, or give what='expired', 'orphaned' or 'abandoned'"
        )
    wanted = PlanRequest(
        given.what,
        verb="finalize",
        ids=plans.find_sessions(home, given.sessions),
        where=plans.build_filter(given),
        older_than_days=given.older_than_days,
        reason=given.reason,
        start_new=given.start_new,
    )
    return plans.render_preview(home, home.maintenance.plan(wanted))


SPEC = ToolSpec(
    name="sessions_finalize",
    title="Finalize sessions",
    description=(
        "End sessions: those that are listed, or all that expired, were abandoned (30 days) or are "
        "orphaned continuations. Messages stay; plugins are told. The first call answers a plan, "
        "changing nothing; a second call with plan alone does exactly that. sessions_restore takes "
        "it back."
    ),
    arguments=FinalizeArguments,
    answers=schemas.FinalizeOutput,
    run=finalize_sessions,
    changes=True,
    asks="finalize",
)
