"""The resources, prompts and completions of a server, imported after the first answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import Completion, ListResourcesResult

from mcp_serve import card
from mcp_serve.features import prompts
from mcp_serve.features.completions import Completions
from mcp_serve.features.resources import Resources
from mcp_serve.features.skills import SkillCatalog
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tool_dispatcher import ToolDispatcher
from mcp_serve.tool_list import read_descriptions


class ServedFeatures:
    """The resources, prompts and completions of the served stores."""

    def __init__(self, served: ServedStores) -> None:
        self._resources = Resources(served, ToolDispatcher(served))
        self._completions = Completions(served)
        described = read_descriptions(read_only=served.changes_nothing)
        self._tools = [tool["name"] for tool in described]
        self.skills = SkillCatalog(changes=not served.changes_nothing)
        self._prompts = [
            spec for spec in prompts.PROMPTS if not (spec.changes and served.changes_nothing)
        ]

    def register(self, server: MCPServer[Any]) -> None:
        """Register resources, skills, cards and prompts."""
        self._resources.register(server)
        self.skills.register(server)
        card.register_cards(server, self._tools)
        for prompt in self._prompts:
            server.add_prompt(prompt.build_prompt())

    def check_prompt(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the error of a request for one of our prompts, or None."""
        spec = next((spec for spec in self._prompts if spec.name == name), None)
        return None if spec is None else spec.check_arguments(arguments)

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the resources."""
        return await self._resources.list_page(cursor)

    async def follow_addresses(self, addresses: Sequence[str]) -> None:
        """Watch the sessions of these addresses."""
        await self._resources.follow_addresses(addresses)

    async def collect_changes(self) -> tuple[list[str], bool]:
        """Return the addresses changed since the last call, and whether lists have changed."""
        return await self._resources.collect_changes()

    async def complete_argument(self, argument: str, typed: str) -> Completion:
        """Return completions of a typed value."""
        return await self._completions.complete_argument(argument, typed)
