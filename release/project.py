"""What `pyproject.toml` says of the project: the one place of its version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Project:
    """What every form of a release says of itself."""

    name: str
    version: str
    description: str
    author: str
    license: str
    keywords: tuple[str, ...]
    python: str
    registry_name: str


def project(root: Path = ROOT) -> Project:
    """Return what the file says."""
    whole: Any = tomlkit.parse((root / "pyproject.toml").read_text(encoding="utf-8")).unwrap()
    said = whole["project"]
    return Project(
        name=said["name"],
        version=said["version"],
        description=said["description"],
        author=said["authors"][0]["name"],
        license=said["license"],
        keywords=tuple(said["keywords"]),
        python=said["requires-python"],
        registry_name=whole["tool"]["release"]["registry-name"],
    )
