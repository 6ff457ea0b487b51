"""Formats of transcripts, one module for each agent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from session_core.transcripts.roots import AnyFormat

_MODULES = ("claude_code", "codex", "gemini", "qwen", "copilot", "opencode", "openclaw")


def load_formats() -> list[AnyFormat]:
    """Return the instances of all formats."""
    modules = (import_module(f"session_core.transcripts.formats.{name}") for name in _MODULES)
    return [reader for module in modules for reader in module.FORMATS]
