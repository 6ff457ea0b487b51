"""`sessions_edit`: set title, archive, pin or reopen sessions, with one undo batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from mcp_serve import answer_size, arguments, render, schemas
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores import session_lookup
from mcp_serve.stores.served_store import EditValues, ServedStore
from mcp_serve.tools.spec import ToolSpec

# Characters of an answer for the rows; the other fields are short.
_FOR_ROWS = 18_000


class EditArguments(arguments.StoreArguments):
    """The arguments of `sessions_edit`."""

    required = ("sessions",)

    sessions: (
        Annotated[
            list[arguments.Session],
            Field(min_length=1, max_length=100, description="One or several: one undo."),
        ]
        | None
    ) = None
    title: (
        Annotated[str, Field(max_length=500, description="Of one session. Empty: no title.")] | None
    ) = None
    archived: bool | None = None
    pinned: bool | None = None
    reopen: Annotated[bool, Field(description="Mark as not ended.")] = False

    def get_values(self) -> EditValues:
        """Return the values that an edit sets."""
        return EditValues(
            title=self.title, archived=self.archived, pinned=self.pinned, reopen=self.reopen
        )


def edit_sessions(
    store: ServedStore, arguments: EditArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Edit sessions and return their list rows."""
    del page_query
    edited = store.edit_sessions(
        find_edited_ids(store, arguments.sessions or ()), arguments.get_values(), work.client
    )
    pins = store.list_own_pins()
    rows = [render.render_session(store, row, pins) for row in edited.sessions]
    fitting = answer_size.take_fitting_rows(rows, _FOR_ROWS)
    hidden = len(rows) - len(fitting)
    note = f"{hidden:,} more were edited; call sessions_list for their rows." if hidden else None
    return {"sessions": fitting, "batch": edited.batch, **render.drop_empty(note=note)}


def find_edited_ids(store: ServedStore, references: Sequence[str]) -> list[str]:
    """Return the ids of the referenced sessions, each once.

    Raises:
        InvalidInput: several sessions match a reference.
        NotFound: no session matches one.
    """
    return list(
        dict.fromkeys(session_lookup.find_session(store, reference).id for reference in references)
    )


SPEC = ToolSpec(
    name="sessions_edit",
    title="Edit sessions",
    description=(
        "Set the title of a session; archive, pin or reopen up to 100. Also for sessions of other "
        "agents, whose files stay unchanged. Applies at once; sessions_restore(batch) undoes it."
    ),
    arguments=EditArguments,
    answers=schemas.EditOutput,
    run=edit_sessions,
    changes=True,
    takes_transcripts=True,
    takes_titles=True,
)
