"""How a tool is called: its cursor opened, its home found, its work done in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcp.types import CallToolResult
from pydantic import ValidationError

from mcp_serve import cursors, plans, render
from mcp_serve.consent import Answer
from mcp_serve.cursors import PagedQuery
from mcp_serve.profiles import ServedProfiles
from mcp_serve.progress import CallContext, run_in_thread
from mcp_serve.tools.spec import ToolSpec


class ToolDispatcher:
    """Calls the tools on what is served."""

    def __init__(self, served: ServedProfiles) -> None:
        self._served = served

    async def apply_plan(
        self, spec: ToolSpec, answer: Answer, given: Mapping[str, Any], work: CallContext
    ) -> CallToolResult:
        """Call a tool that applies plans, if the human has agreed."""
        plan = given.get("plan")
        if plan is None or answer == "agreed":
            return await self.run_change(spec, given, work)
        home = self._served.get_home(await self._find_profile(given))
        found = await run_in_thread(plans.render_unapplied, home, plan, answer)
        return render.make_tool_result(_add_profile(spec, found, home.profile))

    async def run_change(
        self, spec: ToolSpec, given: Mapping[str, Any], work: CallContext
    ) -> CallToolResult:
        """Call a tool that changes something or takes long, and return its result."""
        whose = {**given, "profile": await self._find_profile(given)}
        run = partial(self._bind_call(spec, whose), work)
        profile = self._served.get_home(whose["profile"]).profile
        return render.make_tool_result(_add_profile(spec, await work.run(run), profile))

    async def call_tool(self, spec: ToolSpec, given: Mapping[str, Any]) -> CallToolResult:
        """Call a tool with validated arguments and return its result."""
        return render.make_tool_result(await self.get_answer(spec, given))

    async def get_answer(self, spec: ToolSpec, given: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return what it answers."""
        run = self._bind_call(spec, given)
        if inspect.iscoroutinefunction(spec.run):
            found = await run()
        else:
            found = await run_in_thread(run)
        answer: dict[str, Any] = found
        return answer

    async def _find_profile(self, given: Mapping[str, Any]) -> str | None:
        """Return the profile that a call names, else that of the plan or batch that it passes."""
        handles = {name: given[name] for name in ("plan", "batch") if given.get(name) is not None}
        profile: str | None = given.get("profile")
        if profile is not None or not handles:
            return profile
        return await run_in_thread(partial(self._served.find_profile, **handles))

    def _bind_call(self, spec: ToolSpec, given: Mapping[str, Any]) -> Callable[..., Any]:
        """Return what is called, with its home and its arguments."""
        arguments, asked = resolve_arguments(spec, given, self._served)
        return partial(spec.run, self._served.get_home(arguments.profile), arguments, asked)


def _add_profile(spec: ToolSpec, found: dict[str, Any], profile: str | None) -> dict[str, Any]:
    """Return an answer with the profile that it is of, where it has a place for that."""
    fields = getattr(spec.answers, "__annotations__", {})
    return found | render.drop_empty(profile=profile if "profile" in fields else None)


def resolve_arguments(
    spec: ToolSpec, given: Mapping[str, Any], served: ServedProfiles
) -> tuple[Any, PagedQuery]:
    """Return the arguments of a call, with those of its cursor, and where it goes on."""
    defaults = {name: field.default for name, field in spec.arguments.model_fields.items()}
    chosen = {name: value for name, value in given.items() if value is not None}
    cursor = chosen.get("cursor")
    if cursor is None:
        now = float(int(served.get_home(given.get("profile")).now()))
        query = {name: value for name, value in chosen.items() if value != defaults[name]}
        query["profile"] = chosen.get("profile") or served.names[0]
        return spec.arguments.model_construct(**given), PagedQuery(spec.name, query, now)
    asked = cursors.parse_cursor(spec.name, cursor, spec.place)
    cursors.check_same_arguments(asked, chosen, defaults)
    free = {name: value for name, value in chosen.items() if name in cursors.FREE_ARGUMENTS}
    try:
        return spec.arguments.read({**asked.query, **free}), asked
    except ValidationError as error:
        raise cursors.make_malformed_error() from error
