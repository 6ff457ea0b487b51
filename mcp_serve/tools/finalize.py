"""`sessions_finalize`: plan to end sessions, then apply the plan by its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments, plan_answers, render, schemas
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores import known_values
from mcp_serve.stores.homes import ServedHome
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput
from session_core.maintenance import PlanPreview, PlanRequest

if TYPE_CHECKING:
    FinalizeWhat = str
else:
    FinalizeWhat = Literal[plan_answers.list_what_values("finalize")]


class FinalizeArguments(arguments.StoreArguments):
    """The arguments of `sessions_finalize`."""

    sessions: arguments.Sessions | None = None
    what: Annotated[FinalizeWhat, Field(description="sessions: those in sessions.")] = "sessions"
    reason: Annotated[str, Field(max_length=100)] | None = None
    start_new: Annotated[bool, Field(description="Their chats start a new session.")] = False
    project: arguments.Project | None = None
    source: Annotated[str, Field(max_length=200)] | None = None
    older_than_days: arguments.Days | None = None
    plan: arguments.Handle | None = None


def finalize_sessions(
    home: ServedHome, arguments: FinalizeArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Make a plan, or apply a plan."""
    del page_query
    if arguments.plan is not None:
        return plan_answers.apply_and_render(home, arguments.plan, "finalize", "finalized", work)
    if arguments.what == "sessions" and not arguments.sessions:
        raise InvalidInput(
            "pass the sessions to finalize, or what='expired', 'orphaned' or 'abandoned'"
        )
    matched = known_values.match_known_values([home], arguments)
    if matched.is_unknown:
        nothing = PlanPreview("nothing", None, None, 0, ())
        return plan_answers.render_preview(home, nothing) | render.join_notes(*matched.notes)
    request = PlanRequest(
        arguments.what,
        verb="finalize",
        ids=plan_answers.find_sessions(home, arguments.sessions),
        where=plan_answers.build_filter(matched.arguments),
        older_than_days=arguments.older_than_days,
        reason=arguments.reason,
        start_new=arguments.start_new,
    )
    preview = home.maintenance.plan(request)
    return plan_answers.render_preview(home, preview) | render.join_notes(*matched.notes)


SPEC = ToolSpec(
    name="sessions_finalize",
    title="Finalize sessions",
    description=(
        "End sessions: those listed, or all that are expired, abandoned (30 days) or orphaned "
        "continuations. Messages are kept; plugins are notified. The first call returns a plan "
        "and changes nothing; a second call with plan alone applies it. sessions_restore undoes "
        "it."
    ),
    arguments=FinalizeArguments,
    answers=schemas.FinalizeOutput,
    run=finalize_sessions,
    changes=True,
    asks="finalize",
)
