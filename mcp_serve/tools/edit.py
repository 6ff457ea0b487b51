"""`sessions_edit`: set title, archive, pin or reopen a session, with an undo batch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments, render, resolve, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec


class EditArguments(arguments.StoreArguments):
    """The arguments of `sessions_edit`."""

    required = ("session",)

    session: arguments.ExactSession | None = None
    title: Annotated[str, Field(max_length=500, description="Empty: no title.")] | None = None
    archived: bool | None = None
    pinned: bool | None = None
    reopen: Annotated[bool, Field(description="Mark as not ended.")] = False


def edit_session(
    home: ServedHome, arguments: EditArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Edit a session and return its list row."""
    del page_query
    edited = home.maintenance.edit(
        resolve.find_exact_session(home, arguments.session or ""),
        title=arguments.title,
        archived=arguments.archived,
        pinned=arguments.pinned,
        reopen=arguments.reopen,
        client=work.client,
    )
    return {"session": render.render_session(home, edited.session), "batch": edited.batch}


SPEC = ToolSpec(
    name="sessions_edit",
    title="Edit a session",
    description=(
        "Set the title of a session, archive or pin its conversation, or reopen it. Applies at "
        "once; sessions_restore(batch) undoes it."
    ),
    arguments=EditArguments,
    answers=schemas.EditOutput,
    run=edit_session,
    changes=True,
)
