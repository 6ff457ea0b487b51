"""Make the tools that the SDK calls, and prepare a first call."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from mcp.server.mcpserver import Context, ElicitationResult, Resolve
from mcp.server.mcpserver.tools import Tool

from mcp_serve.arguments import refuse_arguments_with_plan
from mcp_serve.error_messages import explain_error
from mcp_serve.plain_text import shorten_text, to_plain_line
from mcp_serve.progress import CLIENT_NAME, CallContext
from mcp_serve.sdk.disconnect import run_while_connected
from mcp_serve.sdk.tools import make_strict_tool
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tool_dispatcher import ToolDispatcher, bind_call
from mcp_serve.tool_list import load_spec
from mcp_serve.tools.spec import ToolSpec
from session_core import SessionError

_MAX_CLIENT_CHARS = 60

# The first call of most clients is one of these.
_FIRST_TOOLS = ("sessions_list", "sessions_search", "sessions_read")


def load_tool(served: ServedStores, name: str) -> Tool:
    """Import the module of a tool and return the tool."""
    spec = load_spec(name)
    return make_strict_tool(
        _make_runner(spec, served),
        name=spec.name,
        arguments=spec.arguments,
        explain=explain_error,
        check=partial(refuse_arguments_with_plan, allowed=spec.allowed_with_plan),
    )


def prepare_first_call(served: ServedStores) -> None:
    """Import the modules of a first call, and open the stores by reading.

    Errors are left to the call.
    """
    first, *others = _FIRST_TOOLS
    with suppress(SessionError):
        bind_call(load_spec(first), {"limit": 1}, served)()
    for name in others:
        load_spec(name)


def _make_runner(spec: ToolSpec, served: ServedStores) -> Any:
    """Return the function that the SDK calls for a tool."""
    caller = ToolDispatcher(served)

    async def run_reading(context: Any, **arguments: Any) -> Any:
        del context
        return await caller.call_tool(spec, arguments)

    async def run_waiting(context: Any, **arguments: Any) -> Any:
        return await run_while_connected(context, partial(caller.call_tool, spec, arguments))

    async def run_changing(context: Any, **arguments: Any) -> Any:
        return await caller.run_changing_tool(spec, arguments, _make_call_context(context))

    async def run_short_or_long(context: Any, **arguments: Any) -> Any:
        run = run_changing if arguments.get(spec.takes_long) else run_reading
        return await run(context, **arguments)

    if spec.takes_long:
        return run_short_or_long
    if not spec.changes:
        return run_waiting if spec.waits else run_reading
    return _make_asking_runner(spec, caller, served) if spec.asks else run_changing


def _make_asking_runner(spec: ToolSpec, caller: ToolDispatcher, served: ServedStores) -> Any:
    """Return the function for a tool that asks the user before it applies a plan."""
    from mcp_serve import consent  # noqa: PLC0415 -- a server that only reads needs no plans

    ask = consent.build_consent_function(served, spec)

    async def run_confirmed(context: Any, answer: Any, **arguments: Any) -> Any:
        return await caller.run_confirmed_tool(
            spec, consent.read_answer(answer), arguments, _make_call_context(context)
        )

    run_confirmed.__annotations__["answer"] = Annotated[
        ElicitationResult[consent.Consent], Resolve(ask)
    ]
    return run_confirmed


def _make_call_context(context: Context[Any, Any]) -> CallContext:
    """Return the context of a call, with the name of its client for the audit log."""
    params = context.session.client_params
    name = shorten_text(to_plain_line(params.client_info.name), _MAX_CLIENT_CHARS) if params else ""
    return CallContext(f"{CLIENT_NAME}: {name}" if name else CLIENT_NAME, context.report_progress)
