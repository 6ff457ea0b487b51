"""The question to the human before a plan is applied, where the client can ask one.

It is a pure function of the stored plan, since a client of the newer era is asked in several
rounds; the plan is looked up before, so that nobody agrees to one that is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mcp.server.mcpserver import Context, Elicit
from mcp.types import ClientCapabilities
from pydantic import BaseModel, Field

from mcp_serve import answer_size, plans, render
from mcp_serve.homes import ServedHome
from mcp_serve.profiles import ServedProfiles
from mcp_serve.progress import run_in_thread
from mcp_serve.tools.spec import ToolSpec
from session_core import PlanPreview

Answer = Literal["agreed", "declined", "cancelled"]

_MAX_EXAMPLES = 5


class Consent(BaseModel):
    """What the human answers."""

    agree: bool = Field(default=True, title="Do exactly this")


def build_consent_function(
    served: ServedProfiles, spec: ToolSpec
) -> Callable[..., Awaitable[Consent | Elicit[Consent]]]:
    """Return what asks before a plan of these homes is applied by a tool.

    It takes its arguments by their names, and of those that may stand beside a plan the summary.
    """

    async def ask(
        context: Context, plan: str | None, profile: str | None
    ) -> Consent | Elicit[Consent]:
        return await ask_of_summary(context, plan, profile, None)

    async def ask_of_summary(
        context: Context, plan: str | None, profile: str | None, summary: str | None
    ) -> Consent | Elicit[Consent]:
        if plan is None or not served.options.confirm or not can_ask(context.client_capabilities):
            return Consent()
        question = await run_in_thread(_build_question, served, profile, spec, plan, summary)
        return Consent() if question is None else Elicit(question, Consent)

    return ask_of_summary if "summary" in spec.beside_plan else ask


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client shows its human a form."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def read_answer(outcome: Any) -> Answer:
    """Return what the human has answered."""
    if outcome.action == "accept":
        return "agreed" if outcome.data.agree else "declined"
    return "declined" if outcome.action == "decline" else "cancelled"


def _build_question(
    served: ServedProfiles, profile: str | None, spec: ToolSpec, plan: str, summary: str | None
) -> str | None:
    """Return what is asked; None where the plan was begun already, since then that was agreed."""
    home = served.get_home(profile or served.find_profile(plan=plan))
    plans.check_plan_kind(home, plan, spec.asks)
    if spec.check is not None:
        spec.check(home, plan, summary)
    if home.ledger.get_plan(plan).state != "planned":
        return None
    kind = home.ledger.get_plan(plan).kind
    return _format_question(home, kind, home.maintenance.get_plan(plan))


def _format_question(home: ServedHome, kind: str, found: PlanPreview) -> str:
    examples = [f"- {_format_item(home, each)}" for each in found.items[:_MAX_EXAMPLES]]
    more = [f"- and {found.count - _MAX_EXAMPLES:,} more"] if found.count > _MAX_EXAMPLES else []
    warned = [f"Note: {warning}" for warning in plans.render_warnings(home, found.warnings)]
    whose = f" in profile {render.render_line(home, home.profile)}" if home.profile else ""
    asked = f"{kind.capitalize()}{whose}: {found.count:,}?"
    return "\n".join([asked, *examples, *more, *warned])


def _format_item(home: ServedHome, each: Any) -> str:
    """Say what one thing is; a title is somebody's words, in quotation marks of its own."""
    title = render.render_line(home, each.title)
    name = answer_size.render_json(title) if title else render.render_id(each.id)
    return f"{name}: {render.render_line(home, each.why)}"
