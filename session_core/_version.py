"""The version of the installed package, which only its metadata states."""

from __future__ import annotations

from importlib import metadata

__version__ = metadata.version("mcp-sessions")
