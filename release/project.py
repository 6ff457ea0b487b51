"""Project metadata from `pyproject.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parents[1]


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


def project(root: Path = ROOT) -> Project:
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
