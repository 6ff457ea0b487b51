"""The generated part of `docs/` on the adapters of agent SDKs.

It is made from their source, because two of the modules import an SDK.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.readme.parts import ROOT, extract_first_sentence, format_table

ADAPTERS = {
    "openai": "OpenAISession",
    "claude": "ClaudeSessionStore",
    "pydantic_ai": "PydanticConversationStore",
    "adk": "AdkSessionService",
}
"""The public class of each module of `session_core.adapters`."""

_BASE = ("shared", "HomeAdapter")
_BASE_METHODS = ("__init__", "close")
"""The methods of the base class that an application calls."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def format_adapters() -> str:
    """Return a section for each adapter: how it is made, and its methods."""
    return "\n\n".join(
        f"## session_core.adapters.{module}\n\n{_format_adapter(module, name)}"
        for module, name in ADAPTERS.items()
    )


def _format_adapter(module: str, name: str) -> str:
    kind = _find_class(module, name)
    inherited = {
        each.name: each
        for each in _list_functions(_find_class(*_BASE))
        if each.name in _BASE_METHODS
    }
    functions = inherited | {each.name: each for each in _list_functions(kind)}
    rows = sorted(
        (f"`{each.name}{_format_arguments(each)}`", _describe(each))
        for each in functions.values()
        if not each.name.startswith("_")
    )
    parts = (
        f"### {name}",
        _describe(kind),
        f"`{name}{_format_arguments(functions['__init__'])}`",
        format_table(("method", "does"), rows),
    )
    return "\n\n".join(parts)


def _find_class(module: str, name: str) -> ast.ClassDef:
    path = ROOT / "session_core" / "adapters" / f"{module}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return next(each for each in body if isinstance(each, ast.ClassDef) and each.name == name)


def _list_functions(kind: ast.ClassDef) -> Iterator[_Function]:
    for each in kind.body:
        if isinstance(each, _Function):
            yield each


def _describe(node: ast.ClassDef | _Function) -> str:
    return extract_first_sentence(ast.get_docstring(node) or "")


def _format_arguments(function: _Function) -> str:
    """Return the parameters with their defaults, without types."""
    arguments = function.args
    for each in (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    arguments.args = [each for each in arguments.args if each.arg != "self"]
    return f"({ast.unparse(arguments)})"
