"""The skills of the server: the folders of `plugin/skills/`, addressed as `skill://NAME/FILE`.

The same files are part of the Claude Code plugin, so a skill has one text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import TextResource
from mcp.types import Resource

DIRECTORY_TYPE = "inode/directory"
TEXT_TYPE = "text/markdown"

_FOLDER = Path(__file__).parents[1] / "plugin" / "skills"
_MANIFEST = "SKILL.md"
_FENCE = "---\n"

# Skills about changes; a server that changes nothing leaves them out.
_CHANGING_SKILLS = frozenset({"tidy"})


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: its manifest and its other files, by their path in the folder."""

    name: str
    frontmatter: dict[str, str]
    files: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Skill:
        """Read a skill from its folder."""
        paths = sorted(path for path in folder.rglob("*.md"))
        files = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}
        _, frontmatter, _ = files[_MANIFEST].split(_FENCE, 2)
        # Each line is a key and a plain string, so the start needs no YAML parser.
        fields = dict(line.split(": ", 1) for line in frontmatter.splitlines())
        return cls(folder.name, fields, files)

    @property
    def root(self) -> str:
        """The address of the folder."""
        return f"skill://{self.name}"

    @property
    def uri(self) -> str:
        """The address of the manifest."""
        return f"{self.root}/{_MANIFEST}"

    def render_entry(self) -> dict[str, Any]:
        """Return the entry of the skill, with a digest of each file."""
        resources = [
            {
                "uri": f"{self.root}/{path}",
                "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
                "size": len(text.encode()),
            }
            for path, text in self.files.items()
        ]
        return {"uri": self.uri, "frontmatter": self.frontmatter, "resources": resources}

    def list_resources(self) -> Iterator[TextResource]:
        """Yield the files as resources."""
        for path, text in self.files.items():
            is_manifest = path == _MANIFEST
            yield TextResource(
                uri=f"{self.root}/{path}",
                name=self.name if is_manifest else path.rpartition("/")[2],
                description=self.frontmatter["description"] if is_manifest else None,
                mime_type=TEXT_TYPE,
                text=text,
            )


class SkillCatalog:
    """The skills that a server offers."""

    def __init__(self, *, changes: bool) -> None:
        folders = sorted(path for path in _FOLDER.iterdir() if path.is_dir())
        read = [
            Skill.read(path) for path in folders if changes or path.name not in _CHANGING_SKILLS
        ]
        self._skills = {skill.uri: skill for skill in read}
        self._folders = self._collect_folders()

    def register(self, server: MCPServer[Any]) -> None:
        """Register the files with a server."""
        for skill in self._skills.values():
            for resource in skill.list_resources():
                server.add_resource(resource)

    def list_entries(self) -> list[dict[str, Any]]:
        """Return the entries of all skills."""
        return [skill.render_entry() for skill in self._skills.values()]

    def find_entry(self, uri: str) -> dict[str, Any] | None:
        """Return the entry of the skill with this manifest, or None."""
        skill = self._skills.get(uri)
        return None if skill is None else skill.render_entry()

    def list_folder(self, uri: str) -> Sequence[Resource] | None:
        """Return the files and folders directly in a folder, or None if it does not exist."""
        children = self._folders.get(uri)
        return None if children is None else list(children.values())

    def _collect_folders(self) -> dict[str, dict[str, Resource]]:
        """Return the children of each folder by address."""
        folders: dict[str, dict[str, Resource]] = {}
        for skill in self._skills.values():
            for file in skill.list_resources():
                fields = file.model_dump(include={"uri", "name", "description", "mime_type"})
                child = Resource(**fields)
                while child.uri != skill.root:
                    parent = child.uri.rpartition("/")[0]
                    folders.setdefault(parent, {})[child.uri] = child
                    name = parent.rpartition("/")[2]
                    child = Resource(uri=parent, name=name, mime_type=DIRECTORY_TYPE)
        return folders
