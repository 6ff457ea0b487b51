"""The server of the command line with the fixtures of the suite added.

Factory, middleware, app and access checks are the same: the tools, resources and prompts of the
suite are registered on the server that the command has created.
"""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import MCPServer

from mcp_serve import server
from mcp_serve.cli.main import main
from mcp_serve.stores.stores import ServedStores
from tests.conformance import content_tools, context_tools, elicitation_tools

_plain = server.create_server


def _create(served: ServedStores) -> MCPServer[Any]:
    created = _plain(served)
    content_tools.register_contents(created)
    elicitation_tools.register_elicitation(created)
    context_tools.register_context_tools(created)
    return created


if __name__ == "__main__":
    server.create_server = _create
    sys.exit(main())
