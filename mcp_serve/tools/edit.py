"""`sessions_edit`: title, archive, pin and reopen, at once, with an undo batch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import render, resolve, schemas
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.tools.spec import ToolSpec


class EditArguments(given_as.ProfileArguments):
    """The arguments of `sessions_edit`."""

    required = ("session",)

    session: given_as.ExactSession | None = None
    title: Annotated[str, Field(max_length=500, description="Empty: none.")] | None = None
    archived: bool | None = None
    pinned: bool | None = None
    reopen: Annotated[bool, Field(description="Forget that it has ended.")] = False


def edit_session(
    home: ServedHome, given: EditArguments, asked: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Edit a session and return it as a list shows it."""
    del asked
    edited = home.make_maintenance(work.client).edit(
        resolve.find_exact_session(home, given.session or ""),
        title=given.title,
        archived=given.archived,
        pinned=given.pinned,
        reopen=given.reopen,
    )
    return {"session": render.render_session(home, edited.session), "batch": edited.batch}


SPEC = ToolSpec(
    name="sessions_edit",
    title="Edit a session",
    description=(
        "Set the title of a session, archive or pin its conversation, or reopen it. Applies at "
        "once; sessions_restore(batch) takes it back."
    ),
    arguments=EditArguments,
    answers=schemas.EditOutput,
    run=edit_session,
    changes=True,
)
