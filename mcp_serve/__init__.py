"""The MCP server and the command over the session core."""
