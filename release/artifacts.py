"""The artifacts that are made from the project metadata and the sdist.

The bundle (`.mcpb`) for hosts such as Claude Desktop holds the source without dependencies; the uv
of the host resolves them. `server.json` is the entry of the registry of MCP servers.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import tomlkit

from mcp_serve.tool_list import load_specs

ROOT = Path(__file__).parents[1]

_INCLUDED_NAMES = ("session_core", "mcp_serve", "pyproject.toml", "README.md", "LICENSE")
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


@dataclass(frozen=True, slots=True)
class Project:
    """Metadata that all release artifacts share."""

    name: str
    version: str
    description: str
    author: str
    license: str
    keywords: tuple[str, ...]
    python: str
    registry_name: str


def read_project(root: Path = ROOT) -> Project:
    """Return the metadata of the project."""
    document: Any = tomlkit.parse((root / "pyproject.toml").read_text(encoding="utf-8")).unwrap()
    fields = document["project"]
    return Project(
        name=fields["name"],
        version=fields["version"],
        description=fields["description"],
        author=fields["authors"][0]["name"],
        license=fields["license"],
        keywords=tuple(fields["keywords"]),
        python=fields["requires-python"],
        registry_name=document["tool"]["release"]["registry-name"],
    )


def make_manifest(project: Project) -> dict[str, Any]:
    """Return the manifest of the bundle."""
    return {
        "manifest_version": "0.4",
        "name": project.name,
        "display_name": "Sessions",
        "version": project.version,
        "description": project.description,
        "author": {"name": project.author},
        "license": project.license,
        "keywords": list(project.keywords),
        "server": {
            "type": "uv",
            "entry_point": "mcp_serve/cli/main.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", project.name, "serve"],
                "env": {"MCP_SESSIONS_HOME": "${user_config.home}"},
            },
        },
        "tools": [{"name": spec.name, "description": spec.description} for spec in load_specs()],
        "compatibility": {
            "platforms": ["linux", "darwin", "win32"],
            "runtimes": {"python": project.python},
        },
        "user_config": {
            "home": {
                "type": "directory",
                "title": "Home",
                "description": "The folder of state.db; empty: that of Hermes, or one of its own.",
                "required": False,
                "default": "",
            }
        },
    }


def write_bundle(project: Project, sdist: Path, folder: Path) -> Path:
    """Write the bundle from an sdist, and return its path."""
    path = folder / f"{project.name}-{project.version}.mcpb"
    with tarfile.open(sdist) as source, ZipFile(path, "w", ZIP_DEFLATED) as bundle:
        _add_file(bundle, "manifest.json", json.dumps(make_manifest(project), indent=2).encode())
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            _, *parts = PurePosixPath(member.name).parts
            file = source.extractfile(member)
            if parts and parts[0] in _INCLUDED_NAMES and file is not None:
                _add_file(bundle, "/".join(parts), file.read())
    return path


def _add_file(bundle: ZipFile, name: str, data: bytes) -> None:
    """Add a file without a timestamp, so that bundles are reproducible."""
    entry = ZipInfo(name)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    bundle.writestr(entry, data)


def make_registry_entry(project: Project) -> dict[str, Any]:
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


def write_registry_entry(project: Project, folder: Path) -> Path:
    """Write the entry to a folder, and return its path."""
    path = folder / "server.json"
    path.write_text(json.dumps(make_registry_entry(project), indent=2) + "\n", encoding="utf-8")
    return path
