"""Completions: ids, titles, sources, session keys and projects."""

from __future__ import annotations

import pytest
from mcp.types import PromptReference, ResourceTemplateReference

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("many_sessions")]


@pytest.mark.requirement("faces:completions")
async def test_completion_offers_ids_and_titles(client):
    prompt = PromptReference(name="catch_up")
    by_title = await client.complete(prompt, {"name": "session", "value": "the p"})
    assert by_title.completion.values == ["The plan"]
    template = ResourceTemplateReference(uri="session://{session_id}")
    by_id = await client.complete(template, {"name": "session_id", "value": "s/0"})
    assert by_id.completion.total == 10
    assert (await client.complete(prompt, {"name": "nope", "value": ""})).completion.values == []


@pytest.mark.requirement("faces:completions")
async def test_completion_offers_sources_keys_projects(client, routed_home):
    prompt = PromptReference(name="catch_up")
    route = ResourceTemplateReference(uri="route://{session_key}")
    for ref, argument, typed, result in (
        (prompt, "source", "tele", ["telegram"]),
        (prompt, "source", "", ["telegram", "cli"]),
        (prompt, "project", "FERRY", ["/srv/ferry"]),
        (route, "session_key", "telegram", [routed_home.session_key]),
        (route, "session_key", "nobody", []),
    ):
        answer = (await client.complete(ref, {"name": argument, "value": typed})).completion
        assert (answer.values, answer.total, answer.has_more) == (result, len(result), False)
