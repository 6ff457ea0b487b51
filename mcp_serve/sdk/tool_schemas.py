"""The description of a tool for clients, with short JSON schemas of its arguments and answers.

A running server reads the descriptions from `mcp_serve/tool_list.json`, which is made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp.types
from pydantic import TypeAdapter

from mcp_serve.arguments import ToolArguments
from mcp_serve.card import make_tool_meta
from mcp_serve.tools.spec import ToolSpec


def describe_tool(spec: ToolSpec) -> dict[str, Any]:
    """Return the entry of a tool in the tool list."""
    listed = mcp.types.Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=make_input_schema(spec.arguments),
        output_schema=slim_schema(TypeAdapter(spec.answers).json_schema()),
        annotations=mcp.types.ToolAnnotations(
            title=spec.title,
            read_only_hint=not spec.changes,
            destructive_hint=spec.destructive,
            idempotent_hint=spec.idempotent,
            open_world_hint=False,
        ),
        _meta=make_tool_meta(spec.name),
    )
    return listed.model_dump(mode="json", by_alias=True, exclude_none=True)


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
    """Return True for limits and defaults that a model need not see, since errors report them."""
    if name in ("minLength", "maxLength", "maxItems"):
        return True
    return (name, value) in (("default", None), ("minimum", 0)) or (
        name == "maximum" and value > _MAX_SHOWN_LIMIT
    )
