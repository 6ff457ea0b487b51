"""The specification of a tool: name, description, arguments, answer and function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from session_core.ledger import StoredPlan


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool.

    `run` takes the home, the arguments and the query; a tool that changes data or takes long also
    takes the call context. A tool that merges takes a list of homes. `run` may be a coroutine
    function.
    """

    name: str
    title: str
    description: str
    arguments: type[Any]
    answers: Any
    run: Callable[..., Any]
    # Covers all served stores unless a call names one.
    merges: bool = False
    changes: bool = False
    # Also changes the labels of transcripts, which are ours.
    takes_transcripts: bool = False
    # A change accepts the title of a session, not only its id or key.
    takes_titles: bool = False
    destructive: bool = False
    idempotent: bool = True
    # The verb of the plans that this tool applies after asking the user. Empty: no plans.
    asks: str = ""
    # The type of positions in its cursors; str for positions made by the library.
    place: Any = str
    # The argument that makes a reading tool run like a change, with progress.
    takes_long: str = ""
    # All reads of the home for an answer see one moment.
    snapshot: bool = False
    # Waits for events, and ends when its client leaves.
    waits: bool = False
    # Arguments that may be passed with a plan.
    allowed_with_plan: tuple[str, ...] = ()
    # Raises for a plan that cannot be applied with the given summary.
    check: Callable[[Any, StoredPlan, str | None], object] | None = None
