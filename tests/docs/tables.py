"""The generated parts of `docs/`: tools, shapes, verbs, errors, settings, names of the library."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from mcp_serve.cli.command_errors import get_exit_code
from mcp_serve.cli.main import VERBS, build_parser
from mcp_serve.tool_list import load_specs
from mcp_serve.tools.spec import ToolSpec
from session_core import GatewayConfig, SessionDB, SessionResetPolicy, errors
from session_core.config import _VALID_VALUES
from tests.docs.adapters import format_adapters
from tests.public_names import find_member, list_public_names, list_values
from tests.readme.parts import PART_MAKERS, extract_first_sentence, format_table

_MODULE_PATTERN = re.compile(r"(?:\w+\.)+(?=\w)")
_NULL_SCHEMA = {"type": "null"}
_UNBOUNDED_VALUE = 2**31
"""Larger bounds are limits of JSON and SQLite and are not shown."""

_COMMON_OPTIONS = {"help", "home", "store", "all_profiles", "json"}
"""Options that most verbs have; the page lists them once."""


def format_tools() -> str:
    """Return a section for each tool: effect, arguments, answer."""
    return "\n\n".join(map(_format_tool, load_specs()))


def _format_tool(spec: ToolSpec) -> str:
    schema = TypeAdapter(spec.answers).json_schema()
    return "\n\n".join(
        (
            f"## {spec.name}",
            spec.description,
            _describe_effect(spec),
            "Arguments:",
            _format_arguments(spec),
            "Answer:",
            _format_keys(schema),
        )
    )


def _describe_effect(spec: ToolSpec) -> str:
    if not spec.changes:
        return "Reads only."
    words = ["Changes data"]
    if spec.destructive:
        words.append("may remove data")
    if spec.asks:
        words.append("asks the user before it applies a plan, if the client supports it")
    return f"{'; '.join(words)}. Not available with `--read-only`."


def _format_arguments(spec: ToolSpec) -> str:
    schema = spec.arguments.model_json_schema()
    required = schema.get("required", ())
    rows = (
        (
            f"`{name}`",
            _format_type(part),
            _format_default(part, required=name in required),
            _describe_argument(part),
        )
        for name, part in schema["properties"].items()
    )
    return format_table(("argument", "type", "default", "meaning"), rows)


def _describe_argument(part: Mapping[str, Any]) -> str:
    arms = (part, *part.get("anyOf", ()))
    return next((arm["description"] for arm in arms if "description" in arm), "")


def _format_default(part: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    value = part.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def _format_type(part: Mapping[str, Any]) -> str:
    """Return a JSON schema as text, with values, bounds and links to shapes."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    arms = [arm for arm in part.get("anyOf", ()) if arm != _NULL_SCHEMA]
    if arms:
        return " or ".join(map(_format_type, arms))
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        return f"list of {_format_type(part['items'])}"
    if part.get("type") == "object":
        return f"object of {_format_type(part['additionalProperties'])}"
    return f"{part.get('type', 'any')}{_format_bounds(part)}"


def _format_bounds(part: Mapping[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    if high is not None and high < _UNBOUNDED_VALUE:
        return f", {low:g} to {high:g}"
    return "" if low is None else f" >= {low:g}"


def _format_keys(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        (f"`{name}`{'' if name in required else ' ?'}", _format_type(part) + _is_nullable(part))
        for name, part in schema["properties"].items()
    )
    return format_table(("key", "type"), rows)


def _is_nullable(part: Mapping[str, Any]) -> str:
    return " or null" if _NULL_SCHEMA in part.get("anyOf", ()) else ""


def format_shapes() -> str:
    """Return a section for each shape that an answer of a tool holds."""
    known: dict[str, Mapping[str, Any]] = {}
    for spec in load_specs():
        known |= TypeAdapter(spec.answers).json_schema().get("$defs", {})
    return "\n\n".join(f"### {name}\n\n{_format_keys(known[name])}" for name in sorted(known))


def format_verbs() -> str:
    """Return a section for each verb of the command: usage, options, examples."""
    return "\n\n".join(map(_format_verb, VERBS))


def _format_verb(name: str) -> str:
    parser = _find_subparsers(build_parser([name]))[name]
    parts = [f"## {name}", str(parser.description), *_list_parser_parts(parser, name)]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts)


def _list_parser_parts(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Yield the options of a verb, and of each verb below it."""
    rows = [
        (_format_option(action), action.help or "")
        for action in parser._actions
        if action.dest not in _COMMON_OPTIONS and not isinstance(action, argparse._SubParsersAction)
    ]
    if rows:
        yield format_table((f"`{name}`", "meaning"), rows)
    common = [f"`--{dest.replace('_', '-')}`" for dest in _list_common_options(parser)]
    if common:
        yield f"Also takes {', '.join(common)}."
    for below, each in _find_subparsers(parser).items():
        yield from _list_parser_parts(each, f"{name} {below}")


def _list_common_options(parser: argparse.ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions if action.dest in _COMMON_OPTIONS - {"help"}]


def _find_subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    actions = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return next((action.choices for action in actions), {})


def _format_option(action: argparse.Action) -> str:
    """Return an option with its value as a user types it."""
    value = ""
    if action.nargs != 0:
        choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
        value = str(action.metavar or choices or action.dest.upper())
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if not names:
        return f"`{value}`"
    return f"{names} `{value}`" if value else names


def format_common_options() -> str:
    """Return the options that stand before or after a verb."""
    rows = [
        (_format_option(action), action.help or "")
        for action in build_parser([])._actions
        if action.option_strings
    ]
    return format_table(("option", "meaning"), rows)


def format_error_codes() -> str:
    """Return the exit code of the command for each error of the library."""
    kinds = [kind for kind in vars(errors).values() if _is_error_class(kind)]
    rows = ((f"`{kind.__name__}`", str(get_exit_code(_create_error(kind)))) for kind in kinds)
    return format_table(("error", "exit code"), rows)


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.SessionError)


def _create_error(kind: type[errors.SessionError]) -> errors.SessionError:
    """Return an error of this kind without its arguments, which its exit code does not need."""
    return kind.__new__(kind)


def format_gateway_settings() -> str:
    """Return the settings of `GatewayConfig`."""
    return _format_settings(GatewayConfig)


def format_reset_policy() -> str:
    """Return the settings of `SessionResetPolicy`."""
    return _format_settings(SessionResetPolicy)


def _format_settings(model: type[BaseModel]) -> str:
    defaults = model().model_dump(mode="json")
    rows = (
        (f"`{name}`", f"`{json.dumps(value)}`", _VALID_VALUES[name])
        for name, value in defaults.items()
    )
    return format_table(("setting", "default", "valid values"), rows)


_ENGINE_METHODS = {
    name.rpartition(".")[2]: find_member(SessionDB, name) for name in list_public_names(SessionDB)
}


def format_library() -> str:
    """Return a section for each public module of the library with its names."""
    return "\n\n".join(
        f"## {module}\n\n" + "\n\n".join(map(_format_public_name, values, values.values()))
        for module, values in list_values().items()
    )


def _format_public_name(name: str, value: Any) -> str:
    parts = [f"### {name}"]
    is_class = inspect.isclass(value) and get_origin(value) is None  # as of Python 3.11
    if inspect.isfunction(value) or is_class:
        parts.append(extract_first_sentence(inspect.getdoc(value) or ""))
    if inspect.isfunction(value):
        parts.append(f"`{name}{_format_signature(value)}`")
    if get_origin(value) is Literal:
        parts.append(f"One of {', '.join(f'`{choice}`' for choice in get_args(value))}.")
    if get_origin(value) is Callable:
        parts.append(f"`{re.sub(_MODULE_PATTERN, '', str(value))}`")
    if is_class:
        parts.append(_format_fields(value))
        methods = list(_list_methods(value))
        parts.append(format_table(("method", "does"), methods) if methods else "")
    return "\n\n".join(part for part in parts if part)


def _format_fields(kind: type) -> str:
    """Return the public fields of a dataclass or a typed mapping in one line."""
    names = getattr(kind, "__annotations__", ()) if issubclass(kind, dict) else ()
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
    public = [f"`{name}`" for name in names if not name.startswith("_")]
    return f"Fields: {', '.join(public)}." if public else ""


def _list_methods(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the methods of a class of ours, those of its bases included."""
    if issubclass(kind, (BaseModel, str, tuple)):
        return
    for name in sorted(dir(kind)):
        value = inspect.getattr_static(kind, name)
        method = getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        if not method.__module__.startswith("session_core."):
            continue
        value = getattr(kind, name)
        # The protocol leaves obvious methods to the documentation of its engine.
        text = inspect.getdoc(value) or inspect.getdoc(_ENGINE_METHODS.get(name, value))
        does = extract_first_sentence(text or "")
        yield f"`{name}{_format_signature(method)}`", does


def _format_signature(function: Callable[..., Any]) -> str:
    """Return the parameters of a function with their defaults, without types."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"<\w[^<>]* at 0x[0-9a-f]+>", "…", text)  # a marker for "not given"


DOCS_PART_MAKERS: dict[str, Callable[[], str]] = {
    **PART_MAKERS,
    "tool_reference": format_tools,
    "shapes": format_shapes,
    "verbs": format_verbs,
    "common_options": format_common_options,
    "error_codes": format_error_codes,
    "gateway_settings": format_gateway_settings,
    "reset_policy": format_reset_policy,
    "library": format_library,
    "adapters": format_adapters,
}
