"""Ask the user before a plan is applied, if the client can show a form.

The question depends on the stored plan only, since newer clients answer in a separate request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver import Context, Elicit
from mcp.types import ClientCapabilities
from pydantic import BaseModel, Field

from mcp_serve import answer_size, plan_answers, render
from mcp_serve.progress import run_in_thread
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tools.spec import ToolSpec
from session_core.maintenance import PlanPreview

_MAX_EXAMPLES = 5


class Consent(BaseModel):
    """The answer of the user."""

    agree: bool = Field(default=True, title="Do exactly this")


def build_consent_function(
    served: ServedStores, spec: ToolSpec
) -> Callable[..., Awaitable[Consent | Elicit[Consent]]]:
    """Return the function that asks before a tool applies a plan of these homes."""

    # The SDK passes arguments by name, so the function has only those that go with a plan.
    async def ask(
        context: Context, plan: str | None, store: str | None
    ) -> Consent | Elicit[Consent]:
        return await ask_of_summary(context, plan, store, None)

    async def ask_of_summary(
        context: Context, plan: str | None, store: str | None, summary: str | None
    ) -> Consent | Elicit[Consent]:
        # For a client that cannot ask, passing the handle is the consent.
        if plan is None or not served.options.confirm or not can_ask(context.client_capabilities):
            return Consent()
        question = await run_in_thread(_build_question, served, store, spec, plan, summary)
        return Consent() if question is None else Elicit(question, Consent)

    async def ask_unless_paged(
        context: Context, plan: str | None, store: str | None, cursor: str | None
    ) -> Consent | Elicit[Consent]:
        # With a cursor the call only lists items.
        return await ask_of_summary(context, None if cursor else plan, store, None)

    if "cursor" in spec.allowed_with_plan:
        return ask_unless_paged
    return ask_of_summary if "summary" in spec.allowed_with_plan else ask


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Return True if a client can show a form to its user."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def read_answer(outcome: Any) -> plan_answers.Answer:
    """Return the answer of the user."""
    if outcome.action == "accept":
        return "agreed" if outcome.data.agree else "declined"
    return "declined" if outcome.action == "decline" else "cancelled"


def _build_question(
    served: ServedStores, store: str | None, spec: ToolSpec, plan: str, summary: str | None
) -> str | None:
    """Return the question, or None if an earlier call has started the plan with consent."""
    home = served.get_home(store or served.find_store(plan=plan))
    # Check first, so that the user is not asked about a plan that cannot be applied.
    stored = plan_answers.load_plan(home, plan, spec.asks)
    if spec.check is not None:
        spec.check(home, stored, summary)
    if stored.state != "planned":
        return None
    return _format_question(home, stored.kind, PlanPreview.from_plan(stored))


def _format_question(home: ServedHome, kind: str, preview: PlanPreview) -> str:
    examples = [f"- {_format_item(home, item)}" for item in preview.items[:_MAX_EXAMPLES]]
    remainder = (
        [f"- and {preview.count - _MAX_EXAMPLES:,} more"] if preview.count > _MAX_EXAMPLES else []
    )
    notes = [f"Note: {warning}" for warning in plan_answers.render_warnings(home, preview.warnings)]
    location = f" in store {render.render_line(home, home.store_name)}" if home.store_name else ""
    question = f"{kind.capitalize()}{location}: {preview.count:,}?"
    return "\n".join([question, *examples, *remainder, *notes])


def _format_item(home: ServedHome, item: Any) -> str:
    """Return a line for an item, with its stored title quoted as JSON."""
    title = render.render_line(home, item.title)
    name = answer_size.render_json(title) if title else render.render_id(item.id)
    return f"{name}: {render.render_line(home, item.why)}"
