"""Call a tool: decode its cursor, find its home and run it in a thread."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mcp_serve import query_cursors, render
from mcp_serve.progress import CallContext, run_in_thread
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.locate import locate_store
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tools.spec import ToolSpec

if TYPE_CHECKING:
    from mcp_serve.plan_answers import Answer
    from mcp_serve.stores.served_store import ServedStore


class ToolDispatcher:
    """Calls tools on the served stores."""

    def __init__(self, served: ServedStores) -> None:
        self._served = served

    async def run_confirmed_tool(
        self, spec: ToolSpec, answer: Answer, arguments: Mapping[str, Any], work: CallContext
    ) -> dict[str, Any]:
        """Call a tool that applies plans, if the user has agreed."""
        plan = arguments.get("plan")
        if plan is None or answer == "agreed":
            return await self.run_changing_tool(spec, arguments, work)
        from mcp_serve import plan_answers  # noqa: PLC0415 -- a server that only reads needs no plans

        located = await run_in_thread(locate_store, self._served, spec, arguments)
        home = self._served.get_home(located["store"])
        plan_preview = await run_in_thread(plan_answers.render_unapplied, home, plan, answer)
        return _add_store(spec, plan_preview, home.store_name)

    async def run_changing_tool(
        self, spec: ToolSpec, arguments: Mapping[str, Any], work: CallContext
    ) -> dict[str, Any]:
        """Call a tool that changes data or takes long, and return its answer."""
        located = await run_in_thread(locate_store, self._served, spec, arguments)
        run = partial(_bind_tool(spec, located, self._served), work)
        store = None if spec.merges else self._served.get_store(located["store"]).store_name
        return _add_store(spec, await work.run_in_worker(run), store)

    async def call_tool(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool with validated arguments and return its answer."""
        if inspect.iscoroutinefunction(spec.run):
            result = await (await run_in_thread(bind_call, spec, arguments, self._served))()
        else:
            result = await run_in_thread(_call_tool, spec, arguments, self._served)
        answer: dict[str, Any] = result
        return answer


def bind_call(
    spec: ToolSpec, arguments: Mapping[str, Any], served: ServedStores
) -> Callable[..., Any]:
    """Return a function that runs a tool with validated arguments."""
    return _bind_tool(spec, locate_store(served, spec, arguments), served)


def _call_tool(spec: ToolSpec, arguments: Mapping[str, Any], served: ServedStores) -> Any:
    return bind_call(spec, arguments, served)()


def _bind_tool(
    spec: ToolSpec, located: Mapping[str, Any], served: ServedStores
) -> Callable[..., Any]:
    """Return a function that runs a tool, with its home and arguments bound."""
    validated, page_query = resolve_arguments(spec, located)
    store = validated.store
    if spec.merges:
        stores = served.get_stores() if store is None else [served.get_store(store)]
        return partial(spec.run, stores, validated, page_query)
    is_home = spec.changes and not spec.takes_transcripts
    home = served.get_home(store) if is_home else served.get_store(store)
    return partial(_run_tool, spec, home, validated, page_query)


def _run_tool(
    spec: ToolSpec, home: ServedStore, arguments: Any, page_query: PagedQuery, *work: object
) -> Any:
    """Run a tool on a home, in one snapshot if its specification asks for that."""
    with home.open_snapshot() if spec.snapshot else nullcontext():
        return spec.run(home, arguments, page_query, *work)


def _add_store(spec: ToolSpec, answer: dict[str, Any], store: str | None) -> dict[str, Any]:
    """Return an answer with its store, if the answer type has that field and it is empty."""
    is_missing = "store" in getattr(spec.answers, "__annotations__", {}) and "store" not in answer
    return answer | render.drop_empty(store=store if is_missing else None)


def resolve_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> tuple[Any, PagedQuery]:
    """Return the arguments of a call, including the arguments of its cursor, and its query."""
    defaults = {name: field.default for name, field in spec.arguments.model_fields.items()}
    # Null means not given: clients send both.
    given_arguments = {name: value for name, value in arguments.items() if value is not None}
    cursor = given_arguments.get("cursor")
    if cursor is None:
        query = {name: value for name, value in given_arguments.items() if value != defaults[name]}
        return spec.arguments.model_construct(**arguments), PagedQuery(
            spec.name, query, float(int(time.time()))
        )
    page_query = query_cursors.parse_cursor(spec.name, cursor, spec.place)
    query_cursors.check_same_arguments(page_query, given_arguments, defaults)
    free = {
        name: value
        for name, value in given_arguments.items()
        if name in query_cursors.FREE_ARGUMENTS
    }
    try:
        return spec.arguments.read({**page_query.query, **free}), page_query
    except ValidationError as error:
        raise query_cursors.make_malformed_error() from error
