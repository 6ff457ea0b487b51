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
from mcp_serve.homes import Home
from mcp_serve.profiles import Served
from mcp_serve.progress import in_thread
from mcp_serve.tools.spec import Spec
from session_core import Preview

Answer = Literal["agreed", "declined", "cancelled"]

_EXAMPLES = 5


class Consent(BaseModel):
    """What the human answers."""

    agree: bool = Field(default=True, title="Do exactly this")


def asking(served: Served, spec: Spec) -> Callable[..., Awaitable[Consent | Elicit[Consent]]]:
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
        question = await in_thread(_question, served, profile, spec, plan, summary)
        return Consent() if question is None else Elicit(question, Consent)

    return ask_of_summary if "summary" in spec.beside_plan else ask


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client shows its human a form."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def answer_of(outcome: Any) -> Answer:
    """Return what the human has answered."""
    if outcome.action == "accept":
        return "agreed" if outcome.data.agree else "declined"
    return "declined" if outcome.action == "decline" else "cancelled"


def _question(
    served: Served, profile: str | None, spec: Spec, plan: str, summary: str | None
) -> str | None:
    """Return what is asked; None where the plan was begun already, since then that was agreed."""
    home = served.home(profile or served.profile_of(plan=plan))
    plans.check_kind(home, plan, spec.asks)
    if spec.check is not None:
        spec.check(home, plan, summary)
    if home.ledger.plan(plan).state != "planned":
        return None
    kind = home.ledger.plan(plan).kind
    return _words(home, kind, home.maintenance.planned(plan))


def _words(home: Home, kind: str, found: Preview) -> str:
    examples = [f"- {_named(home, each)}" for each in found.items[:_EXAMPLES]]
    more = [f"- and {found.count - _EXAMPLES:,} more"] if found.count > _EXAMPLES else []
    warned = [f"Note: {warning}" for warning in plans.warned(home, found.warnings)]
    whose = f" in profile {render.one_line(home, home.profile)}" if home.profile else ""
    asked = f"{kind.capitalize()}{whose}: {found.count:,}?"
    return "\n".join([asked, *examples, *more, *warned])


def _named(home: Home, each: Any) -> str:
    """Say what one thing is; a title is somebody's words, in quotation marks of its own."""
    title = render.one_line(home, each.title)
    name = answer_size.render(title) if title else render.name(each.id)
    return f"{name}: {render.one_line(home, each.why)}"
