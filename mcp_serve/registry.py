"""What a client sees of a server, imported behind the first answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from mcp.server.mcpserver import Context, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.tools import Tool
from mcp.types import Completion, ListResourcesResult, ToolAnnotations

from mcp_serve import consent, plans, prompts
from mcp_serve.completions import Completions
from mcp_serve.dispatch import Caller
from mcp_serve.errors import explain
from mcp_serve.homes import CLIENT
from mcp_serve.profiles import Served
from mcp_serve.progress import Work
from mcp_serve.render import plain, shorten
from mcp_serve.resources import Resources
from mcp_serve.sdk.disconnect import unless_left
from mcp_serve.sdk.tools import strict_tool
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
from mcp_serve.tools.spec import Spec

SPECS: tuple[Spec, ...] = (
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
"""The tools in the order in which they are listed."""

_CLIENT_CHARACTERS = 60


class Surface:
    """The tools, resources, prompts and completions of what is served."""

    def __init__(self, served: Served) -> None:
        self._caller = Caller(served)
        self._resources = Resources(served, self._caller)
        self._completions = Completions(served)
        read_only = served.options.read_only
        shown = [spec for spec in SPECS if not (spec.changes and read_only)]
        self.tools: Sequence[Tool] = [
            _tool(spec, self._caller, consent.asking(served, spec)) for spec in shown
        ]
        self._prompts = [each for each in prompts.ALL if not (each.changes and read_only)]

    def register(self, server: MCPServer[Any]) -> None:
        """Add resources and prompts."""
        self._resources.register(server)
        for prompt in self._prompts:
            prompt.register(server)

    def check_prompt(self, name: str, given: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a request for a prompt of ours."""
        found = next((each for each in self._prompts if each.name == name), None)
        return None if found is None else found.check(given)

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""
        return await self._resources.page(cursor)

    async def follow(self, addresses: Sequence[str]) -> None:
        """Look from now on also at what somebody wants to be told of."""
        await self._resources.follow(addresses)

    async def changes(self) -> tuple[list[str], bool]:
        """Return the addresses of what has changed since it was asked, and whether lists have."""
        return await self._resources.changes()

    async def complete(self, argument: str, typed: str) -> Completion:
        """Return what somebody may be typing."""
        return await self._completions.of(argument, typed)


def _run(spec: Spec, caller: Caller, ask: Any) -> Any:
    """Return what the SDK calls for a tool; one that applies plans asks the human first."""

    async def call(context: Any, **given: Any) -> Any:
        del context
        return await caller.call(spec, given)

    async def wait(context: Any, **given: Any) -> Any:
        return await unless_left(context, partial(caller.call, spec, given))

    async def change(context: Any, **given: Any) -> Any:
        return await caller.change(spec, given, _work(context))

    async def apply(context: Any, asked: Any, **given: Any) -> Any:
        return await caller.apply(spec, consent.answer_of(asked), given, _work(context))

    async def look(context: Any, **given: Any) -> Any:
        return await (change if given.get(spec.takes_long) else call)(context, **given)

    if spec.takes_long:
        return look
    if not spec.changes:
        return wait if spec.waits else call
    if not spec.asks:
        return change
    apply.__annotations__["asked"] = Annotated[ElicitationResult[consent.Consent], Resolve(ask)]
    return apply


def _work(context: Context[Any, Any]) -> Work:
    """Return the work of a call; the log says of which client it is."""
    params = context.session.client_params
    name = shorten(plain(params.client_info.name), _CLIENT_CHARACTERS) if params else ""
    return Work(f"{CLIENT}: {name}" if name else CLIENT, context.report_progress)


def _tool(spec: Spec, caller: Caller, ask: Any) -> Tool:
    run = _run(spec, caller, ask)
    return strict_tool(
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
        explain=explain,
        check=partial(plans.check_alone, beside=spec.beside_plan),
    )
