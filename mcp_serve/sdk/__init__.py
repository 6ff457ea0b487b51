"""The adapter to the MCP SDK and to the differences between protocol versions.

Only `private` touches private names of the SDK; `tests/serve/test_private.py` fails if they change.
"""
