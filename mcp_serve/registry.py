"""The tools, resources, prompts and completions of a server, imported after the first answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from mcp.server.mcpserver import Context, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.tools import Tool
from mcp.types import Completion, ListResourcesResult, ToolAnnotations

from mcp_serve import card, consent, plans, prompts
from mcp_serve.completions import Completions
from mcp_serve.dispatch import ToolDispatcher
from mcp_serve.errors import explain_error
from mcp_serve.homes import CLIENT_NAME
from mcp_serve.plain_text import shorten_text, to_plain_line
from mcp_serve.progress import CallContext
from mcp_serve.resources import Resources
from mcp_serve.sdk.disconnect import run_while_connected
from mcp_serve.sdk.tools import make_strict_tool
from mcp_serve.skills import SkillCatalog
from mcp_serve.stores import ServedStores
from mcp_serve.tools import (
    compress,
    edit,
    events,
    finalize,
    prune,
    read,
    restore,
    routes,
    search,
    stats,
)
from mcp_serve.tools import list as tools_list
from mcp_serve.tools.spec import ToolSpec

# The tools in the order of the tool list.
SPECS: tuple[ToolSpec, ...] = (
    tools_list.SPEC,
    read.SPEC,
    search.SPEC,
    stats.SPEC,
    routes.SPEC,
    events.SPEC,
    edit.SPEC,
    finalize.SPEC,
    compress.SPEC,
    prune.SPEC,
    restore.SPEC,
)

_MAX_CLIENT_CHARS = 60


class ServedSurface:
    """The tools, resources, prompts and completions of the served homes."""

    def __init__(self, served: ServedStores) -> None:
        self._caller = ToolDispatcher(served)
        self._resources = Resources(served, self._caller)
        self._completions = Completions(served)
        read_only = served.options.read_only or not served.home_names
        shown = [spec for spec in SPECS if not (spec.changes and read_only)]
        self.tools: Sequence[Tool] = [
            _make_tool(spec, self._caller, consent.build_consent_function(served, spec))
            for spec in shown
        ]
        self.skills = SkillCatalog(changes=not read_only)
        self._prompts = [spec for spec in prompts.PROMPTS if not (spec.changes and read_only)]

    def register(self, server: MCPServer[Any]) -> None:
        """Register resources, skills, cards and prompts."""
        self._resources.register(server)
        self.skills.register(server)
        card.register_cards(server, [tool.name for tool in self.tools])
        for prompt in self._prompts:
            prompt.register(server)

    def check_prompt(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the error of a request for one of our prompts, or None."""
        spec = next((spec for spec in self._prompts if spec.name == name), None)
        return None if spec is None else spec.check_arguments(arguments)

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""
        return await self._resources.list_page(cursor)

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Watch the sessions of these addresses."""
        await self._resources.follow_addresses(addresses)

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses changed since the last call, and whether lists have changed."""
        return await self._resources.collect_changes()

    async def complete_argument(self, argument: str, typed: str) -> Completion:
        """Return completions of a typed value."""
        return await self._completions.complete_argument(argument, typed)


def _make_runner(spec: ToolSpec, caller: ToolDispatcher, ask: Any) -> Any:
    """Return the function that the SDK calls for a tool; it asks before applying a plan."""

    async def call(context: Any, **arguments: Any) -> Any:
        del context
        return await caller.call_tool(spec, arguments)

    async def wait(context: Any, **arguments: Any) -> Any:
        return await run_while_connected(context, partial(caller.call_tool, spec, arguments))

    async def change(context: Any, **arguments: Any) -> Any:
        return await caller.run_change(spec, arguments, _make_call_context(context))

    async def apply(context: Any, answer: Any, **arguments: Any) -> Any:
        return await caller.apply_plan(
            spec, consent.read_answer(answer), arguments, _make_call_context(context)
        )

    async def look(context: Any, **arguments: Any) -> Any:
        return await (change if arguments.get(spec.takes_long) else call)(context, **arguments)

    if spec.takes_long:
        return look
    if not spec.changes:
        return wait if spec.waits else call
    if not spec.asks:
        return change
    apply.__annotations__["answer"] = Annotated[ElicitationResult[consent.Consent], Resolve(ask)]
    return apply


def _make_call_context(context: Context[Any, Any]) -> CallContext:
    """Return the context of a call; the audit log names its client."""
    params = context.session.client_params
    name = shorten_text(to_plain_line(params.client_info.name), _MAX_CLIENT_CHARS) if params else ""
    return CallContext(f"{CLIENT_NAME}: {name}" if name else CLIENT_NAME, context.report_progress)


def _make_tool(spec: ToolSpec, caller: ToolDispatcher, ask: Any) -> Tool:
    run = _make_runner(spec, caller, ask)
    return make_strict_tool(
        run,
        name=spec.name,
        title=spec.title,
        description=spec.description,
        arguments=spec.arguments,
        answers=spec.answers,
        annotations=ToolAnnotations(
            title=spec.title,
            read_only_hint=not spec.changes,
            destructive_hint=spec.destructive,
            idempotent_hint=spec.idempotent,
            open_world_hint=False,
        ),
        meta=card.make_tool_meta(spec.name),
        explain=explain_error,
        check=partial(plans.check_plan_alone, allowed=spec.allowed_with_plan),
    )
