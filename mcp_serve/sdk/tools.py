"""Tools and results of the SDK, with our own argument models, errors and short JSON schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import build_resolver_plans, find_resolved_parameters
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, TypeAdapter

from mcp_serve.answer_size import render_json
from mcp_serve.arguments import ToolArguments

Explain = Callable[[BaseException, Sequence[str]], str | None]
Run = Callable[..., Awaitable[Any]]

_UNANSWERED_MESSAGE = (
    "the client did not answer the confirmation question, and nothing was changed; call again "
    "with the same plan, or start the server with --confirm=never if the client cannot ask"
)


class StrictTool(Tool):
    """A tool whose errors are explained by us."""

    explain: Explain = Field(exclude=True)

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run the tool.

        Raises:
            ToolError: the tool failed; the message is for the model.
        """
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            cause = error.__cause__ or error
            message = self._explain_cause(cause)
            if message is None:
                raise UnexpectedToolError(
                    f"{self.name} failed because of a defect of this server; see its log on stderr"
                ) from cause
            raise ToolError(message) from cause

    def _explain_cause(self, cause: BaseException) -> str | None:
        if isinstance(cause, ToolError):  # ours raise none: the SDK rejects an answer to a question
            return _UNANSWERED_MESSAGE
        return self.explain(cause, tuple(self.fn_metadata.arg_model.model_fields))


def make_strict_tool(
    run: Run,
    *,
    name: str,
    title: str,
    description: str,
    arguments: type[ToolArguments],
    answers: Any,
    annotations: ToolAnnotations,
    meta: dict[str, Any] | None,
    explain: Explain,
    check: Callable[[Any], None],
) -> Tool:
    """Return a tool; `run` takes the context, and the arguments by name.

    `check` raises for arguments that do not go together, before the user is asked.
    """
    resolved = find_resolved_parameters(run)
    return StrictTool(
        fn=run,
        name=name,
        title=title,
        description=description,
        parameters=make_input_schema(arguments),
        fn_metadata=ToolMetadata(
            arg_model=arguments,
            output_schema=slim_schema(TypeAdapter(answers).json_schema()),
            check=check,
        ),
        is_async=True,
        context_kwarg="context",
        resolved_params=dict(resolved),
        resolver_plans=build_resolver_plans(resolved, set(arguments.model_fields)),
        annotations=annotations,
        meta=meta,
        explain=explain,
    )


class ToolMetadata(FuncMetadata):
    """Validates arguments with the model alone, and makes results; the tests validate these."""

    arg_model: Any
    check: Callable[[Any], None] = Field(exclude=True)

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for the function: those that were given, and None for the rest."""
        model: type[ToolArguments] = self.arg_model
        validated = model.read(arguments_to_validate)
        self.check(validated)
        return {
            name: value
            for name, value in dict(validated).items()
            if name in validated.model_fields_set or value is None
        }

    def convert_result(self, result: Any) -> CallToolResult | InputRequiredResult:
        """Return the result of an answer; a question to the user is one already.

        Its text and its structured content hold the same data.
        """
        if isinstance(result, InputRequiredResult):
            return result
        # Some hosts show their model the text, others the structured content.
        text = TextContent(type="text", text=render_json(result))
        return CallToolResult(content=[text], structured_content=result)


def make_input_schema(arguments: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON schema of arguments for the tool list."""
    schema = slim_schema(arguments.model_json_schema(by_alias=True), is_input=True)
    schema.pop("description", None)
    return schema | ({"required": list(arguments.required)} if arguments.required else {})


_MAX_SHOWN_LIMIT = 99_999
_NULL = {"type": "null"}


def slim_schema(schema: Mapping[str, Any], *, is_input: bool = False) -> dict[str, Any]:
    """Return a schema without parts that a model does not need.

    The schema of an input omits null, which means that an argument is not given.
    """
    slim: dict[str, Any] = _slim_part(schema, schema.get("$defs", {}), is_input=is_input)
    if not is_input and "required" in schema:
        slim["required"] = schema["required"]  # nested objects omit it
    return slim


def _slim_part(schema: Any, definitions: Mapping[str, Any], *, is_input: bool) -> Any:
    if isinstance(schema, list):
        return [_slim_part(item, definitions, is_input=is_input) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _slim_part(
            definitions[schema["$ref"].rpartition("/")[2]], definitions, is_input=is_input
        )
    slim = {
        name: {
            key: _slim_part(value, definitions, is_input=is_input) for key, value in part.items()
        }
        if name == "properties"
        else _slim_part(part, definitions, is_input=is_input)
        for name, part in schema.items()
        if name != "$defs" and (is_input or name != "required")
        if not (name == "title" and isinstance(part, str))
        if is_input or not (name == "description" and isinstance(part, str))
        if not (is_input and _is_checked_here(name, part))
        if is_input or not (name == "type" and "enum" in schema)
    }
    arms = slim.get("anyOf", ())
    variants = [arm for arm in arms if arm != _NULL]
    if _NULL not in arms or len(variants) != 1:
        return slim
    other_keys = {name: slim[name] for name in slim if name != "anyOf"}
    if is_input:
        return {**variants[0], **other_keys}
    is_simple = isinstance(variants[0].get("type"), str) and "enum" not in variants[0]
    return (
        {**variants[0], **other_keys, "type": [variants[0]["type"], "null"]} if is_simple else slim
    )


def _is_checked_here(name: str, value: Any) -> bool:
    """Return True for limits and defaults that a model need not see; errors report them."""
    if name in ("minLength", "maxLength", "maxItems"):
        return True
    return (name, value) in (("default", None), ("minimum", 0)) or (
        name == "maximum" and value > _MAX_SHOWN_LIMIT
    )
