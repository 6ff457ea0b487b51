"""Extensions of the protocol: skills (SEP-2640) and apps.

Their contents are loaded after the first answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mcp import MCPError
from mcp.server.extension import Extension, MethodBinding
from mcp.types import INVALID_PARAMS, PaginatedRequestParams, ReadResourceRequestParams, Resource

# The skills are constant while the server runs.
_CACHE_HINT = {"ttlMs": 300_000, "cacheScope": "private"}


class SkillSource(Protocol):
    """The skills that a server offers."""

    def list_entries(self) -> list[dict[str, Any]]:
        """Return the entries of all skills."""

    def find_entry(self, uri: str) -> dict[str, Any] | None:
        """Return the entry of the skill with this manifest, or None."""

    def list_folder(self, uri: str) -> Sequence[Resource] | None:
        """Return the files and folders directly in a folder, or None if it does not exist."""


class AppsExtension(Extension):
    """Cards for hosts that show them.

    The tools name the cards, and the resources contain them.
    """

    identifier = "io.modelcontextprotocol/ui"


class SkillsExtension(Extension):
    """`skills/list`, `skills/get` and `resources/directory/read`."""

    identifier = "io.modelcontextprotocol/skills"

    def __init__(self, get_skills: Callable[[], SkillSource]) -> None:
        self._get_skills = get_skills

    def settings(self) -> dict[str, Any]:
        """Return the advertised settings."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of the extension."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list_skills),
            MethodBinding("skills/get", ReadResourceRequestParams, self._get_skill),
            MethodBinding("resources/directory/read", ReadResourceRequestParams, self._read_folder),
        )

    async def _list_skills(
        self, context: Any, params: PaginatedRequestParams | None
    ) -> dict[str, Any]:
        del context
        if params is not None and params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "invalid cursor; the list has one page")
        return {"skills": self._get_skills().list_entries(), **_CACHE_HINT}

    async def _get_skill(self, context: Any, params: ReadResourceRequestParams) -> dict[str, Any]:
        del context
        entry = self._get_skills().find_entry(params.uri)
        if entry is None:
            raise _make_unknown_error("skill", params.uri)
        return {"skill": entry, **_CACHE_HINT}

    async def _read_folder(self, context: Any, params: ReadResourceRequestParams) -> dict[str, Any]:
        del context
        children = self._get_skills().list_folder(params.uri)
        if children is None:
            raise _make_unknown_error("folder of a skill", params.uri)
        listed = [
            child.model_dump(mode="json", by_alias=True, exclude_none=True) for child in children
        ]
        return {"resources": listed, **_CACHE_HINT}


def _make_unknown_error(kind: str, uri: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"no {kind} {uri!r:.200}", {"uri": uri})
