"""The generated parts of `docs/`: tools, shapes, verbs, errors, settings, names of the library."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

import session_core
from mcp_serve.cli.errors import code_of
from mcp_serve.cli.main import VERBS, parser_of
from mcp_serve.registry import SPECS
from mcp_serve.tools.spec import Spec
from session_core import GatewayConfig, SessionResetPolicy, errors
from session_core.config import _VALID
from tests.readme.parts import MADE, first_sentence, table

_NULL = {"type": "null"}
_BOUNDLESS = 2**31
"""A larger bound is technical: it says which numbers JSON and SQLite can store."""

_COMMON = {"help", "home", "profile", "all_profiles", "json"}
"""Options that most verbs take; the page lists them once."""


def tools() -> str:
    """Return a section for each tool: effect, arguments, answer."""
    return "\n\n".join(map(_tool, SPECS))


def _tool(spec: Spec) -> str:
    schema = TypeAdapter(spec.answers).json_schema()
    return "\n\n".join(
        (
            f"## {spec.name}",
            spec.description,
            _effect(spec),
            "Arguments:",
            _arguments(spec),
            "Answer:",
            _keys(schema),
        )
    )


def _effect(spec: Spec) -> str:
    if not spec.changes:
        return "Reads only."
    words = ["Changes data"]
    if spec.destructive:
        words.append("may remove data")
    if spec.asks:
        words.append("asks the user before it applies a plan, if the client supports it")
    return f"{'; '.join(words)}. Not available with `--read-only`."


def _arguments(spec: Spec) -> str:
    schema = spec.arguments.model_json_schema()
    required = schema.get("required", ())
    rows = (
        (f"`{name}`", _type(part), _default(part, required=name in required), _meaning(part))
        for name, part in schema["properties"].items()
    )
    return table(("argument", "type", "default", "meaning"), rows)


def _meaning(part: Mapping[str, Any]) -> str:
    arms = (part, *part.get("anyOf", ()))
    return next((arm["description"] for arm in arms if "description" in arm), "")


def _default(part: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    value = part.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def _type(part: Mapping[str, Any]) -> str:
    """Return a JSON schema as text, with values, bounds and links to shapes."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    arms = [arm for arm in part.get("anyOf", ()) if arm != _NULL]
    if arms:
        return " or ".join(map(_type, arms))
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        return f"list of {_type(part['items'])}"
    if part.get("type") == "object":
        return f"object of {_type(part['additionalProperties'])}"
    return f"{part.get('type', 'any')}{_bounds(part)}"


def _bounds(part: Mapping[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    if high is not None and high < _BOUNDLESS:
        return f", {low:g} to {high:g}"
    return "" if low is None else f" >= {low:g}"


def _keys(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        (f"`{name}`{'' if name in required else ' ?'}", _type(part) + _nullable(part))
        for name, part in schema["properties"].items()
    )
    return table(("key", "type"), rows)


def _nullable(part: Mapping[str, Any]) -> str:
    return " or null" if _NULL in part.get("anyOf", ()) else ""


def shapes() -> str:
    """Return a section for each shape that an answer of a tool holds."""
    known: dict[str, Mapping[str, Any]] = {}
    for spec in SPECS:
        known |= TypeAdapter(spec.answers).json_schema().get("$defs", {})
    return "\n\n".join(f"### {name}\n\n{_keys(known[name])}" for name in sorted(known))


def verbs() -> str:
    """Return a section for each verb of the command: usage, options, examples."""
    return "\n\n".join(map(_verb, VERBS))


def _verb(name: str) -> str:
    parser = _subparsers(parser_of([name]))[name]
    parts = [f"## {name}", str(parser.description), *_parser_parts(parser, name)]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts)


def _parser_parts(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Yield the options of a verb, and of each verb below it."""
    rows = [
        (_spelling(action), action.help or "")
        for action in parser._actions
        if action.dest not in _COMMON and not isinstance(action, argparse._SubParsersAction)
    ]
    if rows:
        yield table((f"`{name}`", "meaning"), rows)
    common = [f"`--{dest.replace('_', '-')}`" for dest in _common(parser)]
    if common:
        yield f"Also takes {', '.join(common)}."
    for below, each in _subparsers(parser).items():
        yield from _parser_parts(each, f"{name} {below}")


def _common(parser: argparse.ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions if action.dest in _COMMON - {"help"}]


def _subparsers(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    actions = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return next((action.choices for action in actions), {})


def _spelling(action: argparse.Action) -> str:
    """Return an option with its value as a user types it."""
    value = ""
    if action.nargs != 0:
        choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
        value = str(action.metavar or choices or action.dest.upper())
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if not names:
        return f"`{value}`"
    return f"{names} `{value}`" if value else names


def common_options() -> str:
    """Return the options that stand before or after a verb."""
    rows = [
        (_spelling(action), action.help or "")
        for action in parser_of([])._actions
        if action.option_strings
    ]
    return table(("option", "meaning"), rows)


def error_codes() -> str:
    """Return the exit code of the command for each error of the library."""
    kinds = [kind for kind in vars(errors).values() if _is_error(kind)]
    rows = ((f"`{kind.__name__}`", str(code_of(_instance(kind)))) for kind in kinds)
    return table(("error", "exit code"), rows)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.SessionError)


def _instance(kind: type[errors.SessionError]) -> errors.SessionError:
    """Return an error of this kind without its arguments, which its exit code does not need."""
    return kind.__new__(kind)


def gateway_settings() -> str:
    """Return the settings of `GatewayConfig`."""
    return _settings(GatewayConfig)


def reset_policy() -> str:
    """Return the settings of `SessionResetPolicy`."""
    return _settings(SessionResetPolicy)


def _settings(model: type[BaseModel]) -> str:
    defaults = model().model_dump(mode="json")
    rows = (
        (f"`{name}`", f"`{json.dumps(value)}`", _VALID[name]) for name, value in defaults.items()
    )
    return table(("setting", "default", "valid values"), rows)


def library() -> str:
    """Return a section for each package of the library with its public names."""
    packages: dict[str, list[str]] = {}
    for name in sorted(session_core.__all__):
        package = session_core._LATER[name][0].partition(".")[0]
        packages.setdefault(package, []).append(name)
    return "\n\n".join(
        f"## {package}\n\n" + "\n\n".join(_public(name) for name in names)
        for package, names in sorted(packages.items())
    )


def _public(name: str) -> str:
    value = getattr(session_core, name)
    parts = [f"### {name}"]
    if inspect.isfunction(value) or inspect.isclass(value):
        parts.append(first_sentence(inspect.getdoc(value) or ""))
    if inspect.isfunction(value):
        parts.append(f"`{name}{_signature(value)}`")
    if inspect.isclass(value):
        parts.append(_fields(value))
        methods = list(_methods(value))
        parts.append(table(("method", "does"), methods) if methods else "")
    return "\n\n".join(part for part in parts if part)


def _fields(kind: type) -> str:
    """Return the public fields of a dataclass or a typed mapping in one line."""
    names = getattr(kind, "__annotations__", ()) if issubclass(kind, dict) else ()
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
    public = [f"`{name}`" for name in names if not name.startswith("_")]
    return f"Fields: {', '.join(public)}." if public else ""


def _methods(kind: type) -> Iterator[tuple[str, str]]:
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
        does = first_sentence(inspect.getdoc(getattr(kind, name)) or "")
        yield f"`{name}{_signature(method)}`", does


def _signature(function: Callable[..., Any]) -> str:
    """Return the parameters of a function with their defaults, without types."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"<\w[^<>]* at 0x[0-9a-f]+>", "…", text)  # a marker for "not given"


MAKERS: dict[str, Callable[[], str]] = {
    **MADE,
    "tool_reference": tools,
    "shapes": shapes,
    "verbs": verbs,
    "common_options": common_options,
    "error_codes": error_codes,
    "gateway_settings": gateway_settings,
    "reset_policy": reset_policy,
    "library": library,
}
