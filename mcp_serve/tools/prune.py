"""`sessions_prune`: plan what is to go, then exactly that by its handle."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import plans, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, PlanRequest, SessionFilter


class PruneArguments(given_as.ProfileArguments):
    """The arguments of `sessions_prune`."""

    what: Annotated[
        Literal["sessions", "ghosts", "routes", "orphans", "index", "trash", "all"],
        Field(description="all: everything but trash."),
    ] = "sessions"
    sessions: (
        Annotated[
            given_as.Sessions, Field(description="Full ids or session keys; of trash: batches.")
        ]
        | None
    ) = None
    project: given_as.Project | None = None
    source: Annotated[str, Field(max_length=200)] | None = None
    older_than_days: given_as.Days | None = None
    end_reason: Annotated[str, Field(max_length=200)] | None = None
    min_messages: given_as.Count | None = None
    max_messages: given_as.Count | None = None
    plan: given_as.Handle | None = None

    def build_filter(self, now: float) -> SessionFilter:
        """Return which sessions are asked for."""
        del now
        return plans.build_filter(self)


def prune_sessions(
    home: ServedHome, given: PruneArguments, asked: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Plan, or apply what was planned."""
    if given.plan is not None:
        return plans.apply_plan(home, given.plan, "prune", "removed", work)
    where = given.build_filter(asked.now)
    if given.what == "index" and (given.sessions or where != SessionFilter()):
        raise InvalidInput("what='index' is of no session: give no sessions and no filter")
    if given.what == "trash" and where != SessionFilter():
        raise InvalidInput(
            "what='trash' is of no session: give no filter; its sessions are batch handles"
        )
    is_trash = given.what == "trash" and given.sessions is not None
    wanted = PlanRequest(
        given.what,
        ids=tuple(given.sessions or ()) if is_trash else plans.find_sessions(home, given.sessions),
        where=where,
        older_than_days=given.older_than_days,
    )
    return plans.render_preview(home, home.maintenance.plan(wanted))


SPEC = ToolSpec(
    name="sessions_prune",
    title="Prune sessions",
    description=(
        "Remove what is old or of no use: ended sessions (90 days without activity unless "
        "older_than_days), empty ghosts, dead routes, orphaned rows, index bloat, or the trash. "
        "The first call changes nothing and answers a plan: what would go and why, what is "
        "protected, bytes freed. Show it to the user; a second call with plan alone does exactly "
        "that. sessions_restore brings it back for 30 days (not what=trash)."
    ),
    arguments=PruneArguments,
    answers=schemas.PruneOutput,
    run=prune_sessions,
    changes=True,
    destructive=True,
    asks="prune",
)
