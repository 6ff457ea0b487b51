"""Everything that touches the SDK beyond its public names, and where its eras differ.

What is private there is touched in this file alone, and `tests/serve/test_sdk.py` fails when it
changes.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol

import anyio
from anyio import to_thread
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import build_resolver_plans, find_resolved_parameters
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import (
    INVALID_PARAMS,
    Completion,
    ListResourcesResult,
    PaginatedRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    ToolAnnotations,
    UnsubscribeRequestParams,
)
from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from mcp_serve.subscriptions import Subscriptions

Explain = Callable[[BaseException, Sequence[str]], str | None]
Run = Callable[..., Awaitable[Any]]
Next = Callable[[ServerRequestContext[Any, Any]], Awaitable[Any]]

_HANDSHAKE = frozenset({"initialize", "server/discover", "ping"})

_LOG = logging.getLogger(__name__)

_HUGE = 10**9
_NULL = {"type": "null"}

_LOOK_S = 0.1
"""How often changes are looked for, where anybody wants to be told."""

_LET_IT_OUT_S = 0.02
"""So long the loop has to itself for writing its first answer, before imports take their turns."""


class Arguments(ArgModelBase):
    """The arguments of a tool: unknown ones are an error, and null is what was not given."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    required: ClassVar[tuple[str, ...]] = ()
    """What a call without a cursor has to give; a cursor carries it."""

    @model_validator(mode="after")
    def _all_there(self) -> Arguments:
        for name in self.required:
            if getattr(self, name) is None and getattr(self, "cursor", None) is None:
                raise ValueError(f"{name} is required")
        return self

    @classmethod
    def schema_of_input(cls) -> dict[str, Any]:
        """Return the JSON schema that is listed."""
        schema: dict[str, Any] = slim(cls.model_json_schema(by_alias=True), given=True)
        schema.pop("description", None)
        return schema | ({"required": list(cls.required)} if cls.required else {})

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Any:
        """Validate what a client sent."""
        return cls.model_validate(
            {
                name: _parsed(value) if name in cls._lists() else value
                for name, value in given.items()
                if value is not None
            }
        )

    @classmethod
    def _lists(cls) -> set[str]:
        fields = cls.model_fields.items()
        return {name for name, field in fields if "list" in str(field.annotation)}


class _Metadata(FuncMetadata):
    """Validates by `Arguments` alone; results are validated by the tests."""

    check: Callable[[Any], None] = Field(exclude=True)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them: those that were given, and nulls."""
        model: Any = self.arg_model
        read = model.read(arguments_to_validate)
        self.check(read)
        return {
            name: value
            for name, value in read.model_dump_one_level().items()
            if name in read.model_fields_set or value is None
        }


class Strict(Tool):
    """A tool whose errors are put into words by us."""

    explain: Explain = Field(exclude=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run the tool.

        Raises:
            ToolError: in the words that the model is to read.
        """
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            cause = error.__cause__ or error
            said = self.explain(cause, tuple(self.fn_metadata.arg_model.model_fields))
            if said is None:
                raise UnexpectedToolError(
                    f"{self.name} failed, which is a defect of this server; "
                    "its log on stderr says more"
                ) from cause
            raise ToolError(said) from cause


def strict_tool(
    run: Run,
    *,
    name: str,
    title: str,
    description: str,
    arguments: type[Arguments],
    answers: Any,
    annotations: ToolAnnotations,
    explain: Explain,
    check: Callable[[Any], None],
) -> Tool:
    """Return a tool of ours; `run` takes the context, and the arguments by name.

    `check` raises for arguments that do not go together, before anybody is asked.
    """
    asked = find_resolved_parameters(run)
    return Strict(
        fn=run,
        name=name,
        title=title,
        description=description,
        parameters=arguments.schema_of_input(),
        fn_metadata=_Metadata(
            arg_model=arguments,
            output_schema=slim(TypeAdapter(answers).json_schema()),
            check=check,
        ),
        is_async=True,
        context_kwarg="context",
        resolved_params=dict(asked),
        resolver_plans=build_resolver_plans(asked, set(arguments.model_fields)),
        annotations=annotations,
        explain=explain,
    )


def slim(schema: Mapping[str, Any], *, given: bool = False) -> dict[str, Any]:
    """Return a schema without what costs tokens and says nothing: the keys of answers say it all.

    Of what is `given` null is left out: it is accepted, and means what leaving it out means.
    """
    made: dict[str, Any] = _slim(schema, schema.get("$defs", {}), given=given)
    if not given and "required" in schema:
        made["required"] = schema["required"]  # below the root the keys are there or not as said
    return made


def _slim(schema: Any, known: Mapping[str, Any], *, given: bool) -> Any:
    if isinstance(schema, list):
        return [_slim(item, known, given=given) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _slim(known[schema["$ref"].rpartition("/")[2]], known, given=given)
    kept = {
        name: {each: _slim(value, known, given=given) for each, value in part.items()}
        if name == "properties"
        else _slim(part, known, given=given)
        for name, part in schema.items()
        if name != "$defs" and (given or name != "required")
        if not (name == "title" and isinstance(part, str))
        if given or not (name == "description" and isinstance(part, str))
        if not (given and _is_checked_here(name, part))
    }
    arms = kept.get("anyOf", ())
    others = [arm for arm in arms if arm != _NULL]
    if _NULL not in arms or len(others) != 1:
        return kept
    rest = {name: kept[name] for name in kept if name != "anyOf"}
    if given:
        return {**others[0], **rest}
    simple = isinstance(others[0].get("type"), str) and "enum" not in others[0]
    return {**others[0], **rest, "type": [others[0]["type"], "null"]} if simple else kept


def _is_checked_here(name: str, part: Any) -> bool:
    """Whether a part of a schema is no news to a model: what is wrong is said when it is sent."""
    if name in ("minLength", "maxLength", "maxItems"):
        return True
    return (name, part) in (("default", None), ("minimum", 0)) or (
        name == "maximum" and part > _HUGE
    )


class Surface(Protocol):
    """What a client sees of a server."""

    tools: Sequence[Tool]

    def register(self, server: MCPServer[Any]) -> None:
        """Add resources and prompts."""

    def check_prompt(self, name: str, given: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a request for a prompt."""

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""

    async def complete(self, argument: str, typed: str) -> Completion:
        """Return what somebody may be typing."""

    async def changes(self) -> tuple[list[str], bool]:
        """Return the addresses of what has changed since it was asked, and whether lists have."""


class Late:
    """The surface of a server: loaded in a thread behind the first answer, or when it is needed."""

    def __init__(self, load: Callable[[], Surface], subscriptions: Subscriptions) -> None:
        self._load = load
        self.subscriptions = subscriptions
        self._publishing = anyio.Lock()
        self.surface: Surface | None = None
        self._begun = anyio.Event()
        self._lock = anyio.Lock()
        self._loaded = False
        self._wrong: str | None = None
        self.server: MCPServer[Any] | None = None

    async def ready(self) -> None:
        """Return when it is there."""
        if self._loaded:
            return
        async with self._lock:
            if not self._loaded and self.server is not None:
                surface = await to_thread.run_sync(self._load)
                known = self.server._tool_manager._tools
                known.update({tool.name: tool for tool in surface.tools})
                surface.register(self.server)
                self.surface, self._loaded = surface, True

    async def soon(self) -> None:
        """Load it once the first answer is out."""
        await self._begun.wait()
        await anyio.sleep(_LET_IT_OUT_S)
        await self.ready()

    async def publish(self) -> None:
        """Tell those who want to be told of what changes; one task of the process does."""
        async with self._publishing:
            await self._begun.wait()
            await self.ready()
            while True:
                await anyio.sleep(_LOOK_S)
                if self.surface is not None and self.subscriptions.wanted:
                    await self._tell(self.surface)

    async def _tell(self, surface: Surface) -> None:
        """Tell of what has changed; what goes wrong here ends nobody else's calls."""
        try:
            addresses, list_changed = await surface.changes()
            if addresses:
                await self.subscriptions.tell(addresses, list_changed=list_changed)
        except Exception:  # noqa: BLE001 -- the edge: a task that fails would end the server
            before, self._wrong = self._wrong, traceback.format_exc()
            if before != self._wrong:
                _LOG.exception("changes could not be told")

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
        """Let nothing but the handshake pass before it is there, and no unknown tool at all."""
        context = ctx
        if context.method in _HANDSHAKE:
            self._begun.set()
            return await call_next(context)
        if context.request_id is None:
            if context.method == "notifications/initialized":
                self.subscriptions.note(context)
            return await call_next(context)
        await self.ready()
        wrong = self._refusal(context.method, context.params or {})
        if wrong is not None:
            raise MCPError(INVALID_PARAMS, wrong)
        return await call_next(context)

    def _refusal(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a request that the SDK would answer otherwise."""
        name = params.get("name")
        if self.server is None or self.surface is None or not isinstance(name, str):
            return None
        if method == "tools/call" and self.server._tool_manager.get_tool(name) is None:
            known = ", ".join(tool.name for tool in self.server._tool_manager.list_tools())
            return f"no tool {name!r:.80}; there are {known}"
        if method == "prompts/get":
            prompts = self.server._prompt_manager.list_prompts()
            if name not in [prompt.name for prompt in prompts]:
                known = ", ".join(prompt.name for prompt in prompts)
                return f"no prompt {name!r:.80}; there are {known}"
            given = params.get("arguments")
            return self.surface.check_prompt(name, given if isinstance(given, Mapping) else {})
        return None


def server(
    name: str,
    *,
    title: str,
    version: str,
    instructions: str,
    load: Callable[[], Surface],
    **options: Any,
) -> MCPServer[Any]:
    """Return a server whose surface is loaded late."""
    subscriptions = Subscriptions()
    late = Late(load, subscriptions)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.soon)
            tasks.start_soon(late.publish)
            yield
            tasks.cancel_scope.cancel()

    made: MCPServer[Any] = MCPServer(
        name,
        title=title,
        version=version,
        instructions=instructions,
        lifespan=lifespan,
        middleware=[late.__call__],
        log_level="WARNING",
        subscriptions=subscriptions.bus,
        **options,
    )
    late.server = made
    _subscribe(made, subscriptions)
    _page_resources(made, late)
    _complete(made, late)
    _advertise_changes(made)
    return made


def closing_streams(made: MCPServer[Any]) -> Callable[[], None]:
    """Return what ends the open streams of the newer era: nothing else would before a client."""
    entry = made._lowlevel_server.get_request_handler("subscriptions/listen")
    listen: Any = None if entry is None else entry.handler
    close: Callable[[], None] = listen.close
    return close


def _subscribe(made: MCPServer[Any], subscriptions: Subscriptions) -> None:
    """Serve subscriptions in both eras: the SDK has none for the older one."""
    add = made._lowlevel_server.add_request_handler
    add("resources/subscribe", SubscribeRequestParams, subscriptions.subscribe)
    add("resources/unsubscribe", UnsubscribeRequestParams, subscriptions.unsubscribe)
    add("subscriptions/listen", SubscriptionsListenRequestParams, subscriptions.listen)


def _page_resources(made: MCPServer[Any], late: Late) -> None:
    """List resources a page at a time: the handler of the SDK returns all of them."""

    async def listed(_: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        surface = late.surface
        if surface is None:  # what a test has registered alone
            return ListResourcesResult(resources=await made.list_resources())
        page = await surface.list_resources(params.cursor if params else None)
        if page.next_cursor is None:
            page.resources.extend(await made.list_resources())
        return page

    made._lowlevel_server.add_request_handler("resources/list", PaginatedRequestParams, listed)


def _complete(made: MCPServer[Any], late: Late) -> None:
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        del ref, context
        if late.surface is None:
            return Completion(values=[])
        return await late.surface.complete(argument.name, argument.value)

    register: Any = made.completion
    register()(complete)


def _advertise_changes(made: MCPServer[Any]) -> None:
    """Say in the older handshake too that lists change: the SDK says so in the newer one alone."""
    low = made._lowlevel_server
    plain = low.create_initialization_options

    every = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)

    def options(notifications: NotificationOptions | None = None, *given: Any, **more: Any) -> Any:
        return plain(notifications or every, *given, **more)

    vars(low)["create_initialization_options"] = options


def _parsed(value: Any) -> Any:
    """Return a list that was sent as its JSON, which some hosts do."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return [value] if isinstance(value, str) else value
