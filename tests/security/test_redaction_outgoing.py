"""Errors repeat no secret from arguments or storage, and no terminal escape."""

from __future__ import annotations

import json

import pytest
from mcp import Client, MCPError

from mcp_serve import server
from mcp_serve.redaction.redaction import clean_text
from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.serve.planted_secrets import PLANTED, get_secret
from tests.thorough import take_share

pytestmark = pytest.mark.anyio

ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[31m\x9b31m\u202e"


@pytest.fixture(name="client", params=["auto", "legacy"])
async def _client(request, home_path):
    served = ServedStores(ServerOptions(home=str(home_path)))
    async with Client(server.create_server(served), mode=request.param, cache=None) as client:
        yield client
    served.close()


async def collect_errors(client, passed: str) -> list[str]:
    """Return the errors for a text passed in every place that accepts one."""
    tools = [tool.name for tool in (await client.list_tools()).tools]
    calls = [
        *((client.call_tool, tool, {passed: 1}) for tool in tools),
        *((client.call_tool, tool, {"cursor": passed, "plan": passed}) for tool in tools),
        (client.call_tool, "sessions_read", {"session": passed}),
        (client.call_tool, "sessions_list", {"store": passed}),
        (client.call_tool, "sessions_list", {"since": passed}),
        (client.call_tool, "sessions_search", {"query": "x", "roles": [passed]}),
        (client.call_tool, "sessions_compress", {"session": passed}),
        (client.call_tool, "sessions_prune", {"what": passed}),
        (client.call_tool, "sessions_restore", {"batch": passed}),
        (client.call_tool, passed, {}),
        (client.get_prompt, passed, {}),
        (client.get_prompt, "find_session", {passed: "x"}),
        (client.read_resource, "sessions://" + passed),
        (client.read_resource, f"session://{passed}"),
        (client.read_resource, f"session:///{passed}/messages"),
    ]
    errors = []
    for call, *arguments in calls:
        try:
            answer = await call(*arguments)
        except (MCPError, ValueError) as error:
            errors.append(f"{error!r} {getattr(error, 'error', '')!r}")
        else:
            if getattr(answer, "is_error", False):
                errors.append(json.dumps(answer.model_dump(mode="json"), ensure_ascii=False))
    return errors


@pytest.mark.requirement("hostile:errors")
@pytest.mark.parametrize("kind", take_share(PLANTED, 3))
async def test_errors_repeat_no_passed_secret(client, kind):
    errors = await collect_errors(client, PLANTED[kind])
    assert len(errors) > 15
    assert [error for error in errors if get_secret(PLANTED[kind])[:12] in error] == []


@pytest.mark.requirement("hostile:errors")
async def test_errors_repeat_no_escape(client):
    errors = await collect_errors(client, f"name{ESCAPES}")
    assert len(errors) > 15
    for error in errors:
        assert not set(error) & {"\x1b", "\x07", "\x9b", "\u202e"}


@pytest.mark.requirement("hostile:errors")
async def test_unexpected_failure_hides_details(client, home_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("internal state \x1b[31m")

    monkeypatch.setattr("mcp_serve.features.prompts.shorten_text", fail)
    with pytest.raises(MCPError, match="defect of this server") as failure:
        await client.get_prompt("compress_session", {"session": "x"})
    assert "internal" not in repr(failure.value.error)


@pytest.mark.requirement("hostile:errors")
@pytest.mark.parametrize("cut", [16, 40, 60])
def test_cut_secret_is_redacted(cut):
    secret = "AKIA" + "IOSFODNN7EXAMPLQ"
    token = "ghp_" + "a1B2" * 9
    for item in (secret, token):
        text = f"unknown name '{item[:cut]}'"
        assert item[:8] not in clean_text(text, {"name": [item]})


@pytest.mark.requirement("hostile:errors")
def test_clean_leaves_ordinary_words():
    text = "password is not a valid argument"
    assert clean_text(text, {"name": "password=hunter2hunter2"}) == text
