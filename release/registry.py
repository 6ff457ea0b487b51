"""The entry of the registry of MCP servers: `server.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from release.project import Project

_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def entry(project: Project) -> dict[str, Any]:
    """Return the registry entry."""
    return {
        "$schema": _SCHEMA,
        "name": project.registry_name,
        "title": "Sessions",
        "description": project.description,
        "version": project.version,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": project.name,
                "version": project.version,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "serve"}],
                "environmentVariables": [
                    {
                        "name": "MCP_SESSIONS_HOME",
                        "description": "The folder of state.db; else that of Hermes, or its own.",
                        "format": "filepath",
                        "isRequired": False,
                    }
                ],
            }
        ],
    }


def write(project: Project, folder: Path) -> Path:
    """Write the entry to a folder; return its path."""
    path = folder / "server.json"
    path.write_text(json.dumps(entry(project), indent=2) + "\n", encoding="utf-8")
    return path
