"""How a tool is called: its cursor opened, its home found, its work done in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from mcp.types import CallToolResult

from mcp_serve import answers, cursors, plans
from mcp_serve.consent import Answer
from mcp_serve.cursors import Asked
from mcp_serve.served import Served
from mcp_serve.tools.spec import Spec

_THREADS = 8


class Caller:
    """Calls the tools on what is served."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._threads: CapacityLimiter | None = None

    async def apply(self, spec: Spec, answer: Answer, given: Mapping[str, Any]) -> CallToolResult:
        """Call a tool that applies plans, if the human has agreed."""
        plan = given.get("plan")
        if plan is None or answer == "agreed":
            return await self.call(spec, given)
        home = self._served.home(given.get("profile"))
        return answers.both(await self._in_thread(partial(plans.not_applied, home, plan, answer)))

    async def call(self, spec: Spec, given: Mapping[str, Any]) -> CallToolResult:
        """Call a tool with validated arguments and return its result."""
        return answers.both(await self.ask(spec, given))

    async def ask(self, spec: Spec, given: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return what it answers."""
        arguments, asked = _opened(spec, given, self._served)
        home = self._served.home(arguments.profile)
        run = partial(spec.run, home, arguments, asked)
        if inspect.iscoroutinefunction(spec.run):
            found = await run()
        else:
            found = await self._in_thread(run)
        answer: dict[str, Any] = found
        return answer

    async def _in_thread(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._threads = self._threads or CapacityLimiter(_THREADS)
        return await to_thread.run_sync(work, limiter=self._threads)


def _opened(spec: Spec, given: Mapping[str, Any], served: Served) -> tuple[Any, Asked]:
    """Return the arguments of a call, with those of its cursor, and where it goes on."""
    defaults = {name: field.default for name, field in spec.arguments.model_fields.items()}
    chosen = {name: value for name, value in given.items() if value is not None}
    cursor = chosen.get("cursor")
    if cursor is None:
        now = float(int(served.home(given.get("profile")).now()))
        query = {name: value for name, value in chosen.items() if value != defaults[name]}
        query["profile"] = chosen.get("profile") or served.names[0]
        return spec.arguments.model_construct(**given), Asked(spec.name, query, now)
    asked = cursors.opened(spec.name, cursor)
    cursors.check_same(asked, chosen, defaults)
    free = {name: value for name, value in chosen.items() if name in cursors.FREE}
    return spec.arguments.read({**asked.query, **free}), asked
