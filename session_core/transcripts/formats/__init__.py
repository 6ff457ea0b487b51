"""Formats of transcripts, one module for each agent."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from session_core.transcripts.roots import AnyFormat

_STORES = {
    "claude_code": ("claude-code",),
    "codex": ("codex",),
    "gemini": ("gemini", "antigravity"),
    "qwen": ("qwen",),
    "copilot": ("copilot",),
    "opencode": ("opencode",),
    "openclaw": ("openclaw",),
}
"""The stores of each module. A module is imported only if one of its stores is wanted."""


def load_formats(stores: Collection[str] | None = None) -> list[AnyFormat]:
    """Load the formats of these stores, or of all stores."""
    names = [
        name
        for name, its_stores in _STORES.items()
        if stores is None or not set(its_stores).isdisjoint(stores)
    ]
    modules = (import_module(f"session_core.transcripts.formats.{name}") for name in names)
    readers = [reader for module in modules for reader in module.FORMATS]
    return [reader for reader in readers if stores is None or reader.store in stores]
