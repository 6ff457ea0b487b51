"""`sessions_prune`: plan a removal, then apply the plan by its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from mcp_serve import arguments, plan_answers, render, schemas
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores import known_values
from mcp_serve.stores.homes import ServedHome
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, SessionFilter
from session_core.maintenance import PlanPreview, PlanRequest

if TYPE_CHECKING:
    PruneWhat = str
else:
    PruneWhat = Literal[plan_answers.list_what_values("prune")]


class PruneArguments(arguments.StoreArguments):
    """The arguments of `sessions_prune`."""

    what: Annotated[PruneWhat, Field(description="all: everything but trash.")] = "sessions"
    sessions: (
        Annotated[
            arguments.Sessions,
            Field(description="Ids, prefixes or session keys; for trash: batches."),
        ]
        | None
    ) = None
    project: arguments.Project | None = None
    source: Annotated[str, Field(max_length=200)] | None = None
    older_than_days: arguments.Days | None = None
    end_reason: Annotated[str, Field(max_length=200)] | None = None
    min_messages: arguments.Count | None = None
    max_messages: arguments.Count | None = None
    keep: (
        Annotated[
            list[Annotated[str, Field(max_length=500)]],
            Field(max_length=200, description="Stay: each an id, or words in a message or title."),
        ]
        | None
    ) = None
    plan: arguments.Handle | None = None
    cursor: Annotated[arguments.Cursor, Field(description="More items of a plan.")] | None = None

    def build_filter(self, now: float) -> SessionFilter:
        """Return the session filter of the arguments."""
        del now
        return plan_answers.build_filter(self)


def prune_sessions(
    home: ServedHome, arguments: PruneArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Make a plan, list more of its items, or apply it."""
    if arguments.plan is not None and page_query.place is not None:
        plan = plan_answers.load_plan(home, arguments.plan, "prune")
        return plan_answers.render_more_items(home, plan.handle, page_query)
    if arguments.plan is not None:
        return plan_answers.apply_and_render(home, arguments.plan, "prune", "removed", work)
    matched = known_values.match_known_values([home], arguments)
    if matched.is_unknown:
        nothing = PlanPreview("nothing", None, None, 0, ())
        return plan_answers.render_preview(home, nothing) | render.join_notes(*matched.notes)
    preview = home.maintenance.plan(_build_request(home, matched.arguments, page_query.now))
    return plan_answers.render_first_items(home, preview, page_query) | render.join_notes(
        *matched.notes
    )


def _build_request(home: ServedHome, arguments: PruneArguments, now: float) -> PlanRequest:
    session_filter = arguments.build_filter(now)
    if arguments.what == "index" and (arguments.sessions or session_filter != SessionFilter()):
        raise InvalidInput("what='index' takes no sessions and no filter; pass it alone")
    if arguments.what == "trash" and session_filter != SessionFilter():
        raise InvalidInput("what='trash' takes no filter; its sessions are batch handles")
    is_trash = arguments.what == "trash" and arguments.sessions is not None
    return PlanRequest(
        arguments.what,
        ids=tuple(arguments.sessions or ())
        if is_trash
        else plan_answers.find_sessions(home, arguments.sessions),
        where=session_filter,
        older_than_days=arguments.older_than_days,
        keep=tuple(arguments.keep or ()),
    )


SPEC = ToolSpec(
    name="sessions_prune",
    title="Prune sessions",
    description=(
        "Remove old or useless data: ended sessions (90 days without activity, or "
        "older_than_days), empty ghosts, dead routes, orphaned rows, index bloat, or the trash. "
        "The first call changes nothing and returns a plan: totals, items with reasons, protected "
        "sessions, bytes freed. Show it to the user; a second call with plan alone applies exactly "
        "that. sessions_restore undoes it for 30 days (not what=trash)."
    ),
    arguments=PruneArguments,
    answers=schemas.PruneOutput,
    run=prune_sessions,
    changes=True,
    destructive=True,
    asks="prune",
    allowed_with_plan=("cursor",),
    place=NonNegativeInt,
)
