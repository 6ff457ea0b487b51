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
from mcp_serve.cursors import Asked
from mcp_serve.profiles import Served
from mcp_serve.progress import Work, in_thread
from mcp_serve.tools.spec import Spec


class Caller:
    """Calls the tools on what is served."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def apply(
        self, spec: Spec, answer: Answer, given: Mapping[str, Any], work: Work
    ) -> CallToolResult:
        """Call a tool that applies plans, if the human has agreed."""
        plan = given.get("plan")
        if plan is None or answer == "agreed":
            return await self.change(spec, given, work)
        home = self._served.home(await self._profile_of(given))
        found = await in_thread(plans.not_applied, home, plan, answer)
        return render.both(_with_profile(spec, found, home.profile))

    async def change(self, spec: Spec, given: Mapping[str, Any], work: Work) -> CallToolResult:
        """Call a tool that changes something or takes long, and return its result."""
        whose = {**given, "profile": await self._profile_of(given)}
        run = partial(self._opened(spec, whose), work)
        profile = self._served.home(whose["profile"]).profile
        return render.both(_with_profile(spec, await work.run(run), profile))

    async def call(self, spec: Spec, given: Mapping[str, Any]) -> CallToolResult:
        """Call a tool with validated arguments and return its result."""
        return render.both(await self.ask(spec, given))

    async def ask(self, spec: Spec, given: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return what it answers."""
        run = self._opened(spec, given)
        if inspect.iscoroutinefunction(spec.run):
            found = await run()
        else:
            found = await in_thread(run)
        answer: dict[str, Any] = found
        return answer

    async def _profile_of(self, given: Mapping[str, Any]) -> str | None:
        """Return the profile that a call names, else that of the plan or batch that it passes."""
        handles = {name: given[name] for name in ("plan", "batch") if given.get(name) is not None}
        profile: str | None = given.get("profile")
        if profile is not None or not handles:
            return profile
        return await in_thread(partial(self._served.profile_of, **handles))

    def _opened(self, spec: Spec, given: Mapping[str, Any]) -> Callable[..., Any]:
        """Return what is called, with its home and its arguments."""
        arguments, asked = opened(spec, given, self._served)
        return partial(spec.run, self._served.home(arguments.profile), arguments, asked)


def _with_profile(spec: Spec, found: dict[str, Any], profile: str | None) -> dict[str, Any]:
    """Return an answer with the profile that it is of, where it has a place for that."""
    fields = getattr(spec.answers, "__annotations__", {})
    return found | render.said(profile=profile if "profile" in fields else None)


def opened(spec: Spec, given: Mapping[str, Any], served: Served) -> tuple[Any, Asked]:
    """Return the arguments of a call, with those of its cursor, and where it goes on."""
    defaults = {name: field.default for name, field in spec.arguments.model_fields.items()}
    chosen = {name: value for name, value in given.items() if value is not None}
    cursor = chosen.get("cursor")
    if cursor is None:
        now = float(int(served.home(given.get("profile")).now()))
        query = {name: value for name, value in chosen.items() if value != defaults[name]}
        query["profile"] = chosen.get("profile") or served.names[0]
        return spec.arguments.model_construct(**given), Asked(spec.name, query, now)
    asked = cursors.opened(spec.name, cursor, spec.place)
    cursors.check_same(asked, chosen, defaults)
    free = {name: value for name, value in chosen.items() if name in cursors.FREE}
    try:
        return spec.arguments.read({**asked.query, **free}), asked
    except ValidationError as error:
        raise cursors.malformed() from error
