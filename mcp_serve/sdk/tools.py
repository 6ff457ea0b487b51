"""A tool of ours: its arguments are validated, and its errors put into words, by us.

The arguments of a tool as a model, and how they are validated.

JSON schemas without what costs tokens and says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import build_resolver_plans, find_resolved_parameters
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import ToolAnnotations
from pydantic import ConfigDict, Field, TypeAdapter, model_validator

Explain = Callable[[BaseException, Sequence[str]], str | None]
Run = Callable[..., Awaitable[Any]]


class StrictTool(Tool):
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


def make_strict_tool(
    run: Run,
    *,
    name: str,
    title: str,
    description: str,
    arguments: type[ToolArguments],
    answers: Any,
    annotations: ToolAnnotations,
    explain: Explain,
    check: Callable[[Any], None],
) -> Tool:
    """Return a tool of ours; `run` takes the context, and the arguments by name.

    `check` raises for arguments that do not go together, before anybody is asked.
    """
    asked = find_resolved_parameters(run)
    return StrictTool(
        fn=run,
        name=name,
        title=title,
        description=description,
        parameters=arguments.schema_of_input(),
        fn_metadata=ToolMetadata(
            arg_model=arguments,
            output_schema=slim_schema(TypeAdapter(answers).json_schema()),
            check=check,
        ),
        is_async=True,
        context_kwarg="context",
        resolved_params=dict(asked),
        resolver_plans=build_resolver_plans(asked, set(arguments.model_fields)),
        annotations=annotations,
        explain=explain,
    )


class ToolArguments(ArgModelBase):
    """The arguments of a tool: unknown ones are an error, and null is what was not given.

    Each is of its type alone; a number without a fraction is a whole one, as JSON has it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    required: ClassVar[tuple[str, ...]] = ()
    """What a call without a cursor has to give; a cursor carries it."""

    @model_validator(mode="after")
    def _check_required(self) -> ToolArguments:
        for name in self.required:
            if getattr(self, name) is None and getattr(self, "cursor", None) is None:
                raise ValueError(f"{name} is required")
        return self

    @classmethod
    def schema_of_input(cls) -> dict[str, Any]:
        """Return the JSON schema that is listed."""
        schema: dict[str, Any] = slim_schema(cls.model_json_schema(by_alias=True), given=True)
        schema.pop("description", None)
        return schema | ({"required": list(cls.required)} if cls.required else {})

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Any:
        """Validate what a client sent."""
        return cls.model_validate(
            {
                name: _parse_list(value)
                if name in cls._find_list_fields()
                else _to_whole_number(value)
                for name, value in given.items()
                if value is not None
            }
        )

    @classmethod
    @cache
    def _find_list_fields(cls) -> frozenset[str]:
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if "list" in str(field.annotation))


class ToolMetadata(FuncMetadata):
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


def _to_whole_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_list(value: Any) -> Any:
    """Return a list that was sent as its JSON, which some hosts do."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return [value] if isinstance(value, str) else value


_MAX_SHOWN_LIMIT = 99_999
_NULL = {"type": "null"}


def slim_schema(schema: Mapping[str, Any], *, given: bool = False) -> dict[str, Any]:
    """Return a schema without what costs tokens and says nothing: the keys of answers say it all.

    Of what is `given` null is left out: it is accepted, and means what leaving it out means.
    """
    made: dict[str, Any] = _slim_part(schema, schema.get("$defs", {}), given=given)
    if not given and "required" in schema:
        made["required"] = schema["required"]  # below the root the keys are there or not as said
    return made


def _slim_part(schema: Any, known: Mapping[str, Any], *, given: bool) -> Any:
    if isinstance(schema, list):
        return [_slim_part(item, known, given=given) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _slim_part(known[schema["$ref"].rpartition("/")[2]], known, given=given)
    kept = {
        name: {each: _slim_part(value, known, given=given) for each, value in part.items()}
        if name == "properties"
        else _slim_part(part, known, given=given)
        for name, part in schema.items()
        if name != "$defs" and (given or name != "required")
        if not (name == "title" and isinstance(part, str))
        if given or not (name == "description" and isinstance(part, str))
        if not (given and _is_checked_here(name, part))
        if given or not (name == "type" and "enum" in schema)
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
        name == "maximum" and part > _MAX_SHOWN_LIMIT
    )
