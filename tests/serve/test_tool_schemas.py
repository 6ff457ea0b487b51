"""The schemas of the tool list."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


def walk_schema(schema):
    """Yield a schema and all schemas within it."""
    inner = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict):
        yield schema
    for item in inner:
        if isinstance(item, (dict, list)):
            yield from walk_schema(item)


@pytest.mark.requirement("serving:surface")
async def test_schemas_have_no_references(tools):
    for name, tool in tools.items():
        for schema in (tool.input_schema, tool.output_schema):
            assert schema["type"] == "object"
            assert schema["properties"]
            for part in walk_schema(schema):
                assert "$ref" not in part, name
                if part.get("type") == "object":
                    assert part.get("properties") or part.get("additionalProperties"), (name, part)
                if part.get("type") == "array":
                    assert part["items"], (name, part)
