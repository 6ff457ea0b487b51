"""Tools as clients see them, which load the tool that runs at their first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.types import ToolAnnotations
from pydantic import Field

from mcp_serve.sdk.lazy import load_in_thread


class ListedTool(Tool):
    """A tool as clients see it.

    Its first call loads the tool that runs.
    """

    load: Callable[[], Tool] = Field(exclude=True)
    _loaded: Tool | None = None

    @classmethod
    def from_description(cls, description: Mapping[str, Any], load: Callable[[], Tool]) -> Tool:
        """Return a tool from its entry in the tool list."""
        return cls(
            fn=load,
            name=description["name"],
            title=description["title"],
            description=description["description"],
            parameters=description["inputSchema"],
            fn_metadata=ListedMetadata(output_schema=description["outputSchema"]),
            is_async=True,
            context_kwarg=None,
            annotations=ToolAnnotations(**description["annotations"]),
            meta=description.get("_meta"),
            load=load,
        )

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False
    ) -> Any:
        """Run the tool.

        Raises:
            ToolError: the tool failed; the message is for the model.
        """
        if self._loaded is None:
            self._loaded = await load_in_thread(self.load)
        return await self._loaded.run(arguments, context, convert_result)


class ListedMetadata(FuncMetadata):
    """The schema of the answers of a listed tool."""

    arg_model: Any = None
