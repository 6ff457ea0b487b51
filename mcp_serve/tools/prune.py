"""`sessions_prune`: plan a removal, then apply the plan by its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments, plans, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, SessionFilter
from session_core.maintenance import PlanRequest

if TYPE_CHECKING:
    PruneWhat = str
else:
    PruneWhat = Literal[plans.list_whats("prune")]


class PruneArguments(arguments.StoreArguments):
    """The arguments of `sessions_prune`."""

    what: Annotated[PruneWhat, Field(description="all: everything but trash.")] = "sessions"
    sessions: (
        Annotated[
            arguments.Sessions, Field(description="Full ids or session keys; for trash: batches.")
        ]
        | None
    ) = None
    project: arguments.Project | None = None
    source: Annotated[str, Field(max_length=200)] | None = None
    older_than_days: arguments.Days | None = None
    end_reason: Annotated[str, Field(max_length=200)] | None = None
    min_messages: arguments.Count | None = None
    max_messages: arguments.Count | None = None
    plan: arguments.Handle | None = None

    def build_filter(self, now: float) -> SessionFilter:
        """Return the session filter of the arguments."""
        del now
        return plans.build_filter(self)


def prune_sessions(
    home: ServedHome, arguments: PruneArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Make a plan, or apply one."""
    if arguments.plan is not None:
        return plans.apply_plan(home, arguments.plan, "prune", "removed", work)
    session_filter = arguments.build_filter(page_query.now)
    if arguments.what == "index" and (arguments.sessions or session_filter != SessionFilter()):
        raise InvalidInput("what='index' takes no sessions and no filter; pass it alone")
    if arguments.what == "trash" and session_filter != SessionFilter():
        raise InvalidInput("what='trash' takes no filter; its sessions are batch handles")
    is_trash = arguments.what == "trash" and arguments.sessions is not None
    request = PlanRequest(
        arguments.what,
        ids=tuple(arguments.sessions or ())
        if is_trash
        else plans.find_sessions(home, arguments.sessions),
        where=session_filter,
        older_than_days=arguments.older_than_days,
    )
    return plans.render_preview(home, home.maintenance.plan(request))


SPEC = ToolSpec(
    name="sessions_prune",
    title="Prune sessions",
    description=(
        "Remove old or useless data: ended sessions (90 days without activity, or "
        "older_than_days), empty ghosts, dead routes, orphaned rows, index bloat, or the trash. "
        "The first call changes nothing and returns a plan: items with reasons, protected "
        "sessions, bytes freed. Show it to the user; a second call with plan alone applies "
        "exactly that. sessions_restore undoes it for 30 days (not what=trash)."
    ),
    arguments=PruneArguments,
    answers=schemas.PruneOutput,
    run=prune_sessions,
    changes=True,
    destructive=True,
    asks="prune",
)
