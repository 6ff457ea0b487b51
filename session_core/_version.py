"""The version of the installed package; it is stated in its metadata only."""

from __future__ import annotations

from importlib import metadata

__version__ = metadata.version("mcp-sessions")
