"""The bundle (`.mcpb`) for hosts such as Claude Desktop.

The bundle holds the source without dependencies; the uv of the host resolves them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from mcp_serve.registry import SPECS
from release.project import Project

_INCLUDED_NAMES = ("session_core", "mcp_serve", "pyproject.toml", "README.md", "LICENSE")


def manifest(project: Project) -> dict[str, Any]:
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
        "tools": [{"name": spec.name, "description": spec.description} for spec in SPECS],
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


def write(project: Project, sdist: Path, folder: Path) -> Path:
    """Write the bundle from an sdist; return its path."""
    path = folder / f"{project.name}-{project.version}.mcpb"
    with tarfile.open(sdist) as source, ZipFile(path, "w", ZIP_DEFLATED) as bundle:
        _add(bundle, "manifest.json", json.dumps(manifest(project), indent=2).encode())
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            _, *parts = PurePosixPath(member.name).parts
            file = source.extractfile(member)
            if parts and parts[0] in _INCLUDED_NAMES and file is not None:
                _add(bundle, "/".join(parts), file.read())
    return path


def _add(bundle: ZipFile, name: str, data: bytes) -> None:
    """Add a file without a timestamp, so that bundles are reproducible."""
    entry = ZipInfo(name)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    bundle.writestr(entry, data)
