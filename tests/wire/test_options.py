"""The options of `serve` take effect in a real process."""

from __future__ import annotations

import http.client
import json

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from session_core import SessionDB
from tests.security.raw_requests import HANDSHAKE, JSON, RIGHT, send_request
from tests.serve.form_users import Human
from tests.serve.planted_secrets import PLANTED, get_secret
from tests.wire.conftest import fork_command, make_environment, serve_home, start_raw_process

pytestmark = pytest.mark.anyio

OLD = 1_600_000_000


@pytest.fixture(name="home")
def _home(tmp_path):
    """A home with an old session and a secret."""
    path = tmp_path / "home"
    path.mkdir()
    with SessionDB(path / "state.db") as db:
        create = {"source": "cli", "started_at": OLD}
        db.append_message("old", "user", "hello", timestamp=OLD, create=create)
        db.end_session("old", "user_exit")
        db.append_message("s1", "user", f"it is {PLANTED['github']}", create={"source": "cli"})
    return path


@pytest.mark.requirement("wire:options")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("more", "outcome", "questions"),
    [([], "declined", 1), (["--confirm=ask"], "declined", 1), (["--confirm=never"], "applied", 0)],
)
async def test_confirm_option_controls_consent(home, mode, more, outcome, questions):
    first, *rest = fork_command(home, *more)
    server = StdioServerParameters(command=first, args=rest, env=make_environment(home))
    human = Human(action="decline")
    async with Client(stdio_client(server), mode=mode, elicitation_callback=human) as client:
        with anyio.fail_after(60):
            plan = (await client.call_tool("sessions_prune", {})).structured_content["plan"]
            answer = await client.call_tool("sessions_prune", {"plan": plan})
    assert (answer.structured_content["outcome"], len(human.asked)) == (outcome, questions)


@pytest.mark.requirement("wire:options")
@pytest.mark.parametrize(("more", "shown"), [([], False), (["--no-redact"], True)])
def test_redact_option_controls_secrets(home, more, shown):
    with start_raw_process(home, *more) as process:
        process.begin()
        arguments = {"name": "sessions_read", "arguments": {"session": "s1"}}
        answer = process.ask("tools/call", **arguments)["result"]
    text = json.dumps(answer)
    assert (get_secret(PLANTED["github"]) in text) == shown
    assert ("[redacted: " in text) == (not shown)


def request_status(port, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/health", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.requirement("wire:options")
def test_allowed_hosts_and_origins_are_accepted(home):
    names = ["--allow-host", "box.example", "--allow-host", "box.local:9"]
    pages = ["--allow-origin", "https://app.example", "--allow-origin", "http://box.local"]
    with serve_home(home, *names, *pages) as (_, port):
        for host in ("box.example", "BOX.example:8765", "box.local:9", "127.0.0.1"):
            assert request_status(port, Host=host) == 200, host
        for host in ("other.example", "box.local:8"):
            assert request_status(port, Host=host) == 421, host
        for origin in ("https://app.example", "http://box.local"):
            assert request_status(port, Origin=origin) == 200, origin
        for origin in ("http://app.example", "https://app.example.evil", "http://box.local:81"):
            assert request_status(port, Origin=origin) == 403, origin


def test_cors_allows_named_origin_only(home):
    page, request = "https://app.example", "authorization, content-type, mcp-session-id"
    beforehand = (
        "Access-Control-Request-Method: POST",
        f"Access-Control-Request-Headers: {request}",
    )
    with serve_home(home, "--allow-origin", page) as (_, port):
        host = f"Host: 127.0.0.1:{port}"

        def ask(line, *headers, body=""):
            answered = send_request(port, f"{line} HTTP/1.1", host, *headers, body=body)
            lines = answered.text.lower().partition("\r\n\r\n")[0].splitlines()[1:]
            return answered.status, dict(item.split(": ", 1) for item in lines)

        status, text = ask("OPTIONS /mcp", f"Origin: {page}", *beforehand)
        assert (status, text["access-control-allow-origin"]) == (200, page)
        assert text["access-control-allow-headers"] == request
        status, text = ask("POST /mcp", f"Origin: {page}", RIGHT, *JSON, body=HANDSHAKE)
        assert (status, text["access-control-allow-origin"]) == (200, page)
        assert "mcp-session-id" in text["access-control-expose-headers"]
        assert ask("OPTIONS /mcp", "Origin: https://evil.example", *beforehand)[0] == 403
        assert ask("OPTIONS /mcp", f"Origin: {page}")[0] == 401
        assert ask("OPTIONS /mcp", *beforehand)[0] == 401
        assert ask("POST /mcp", f"Origin: {page}", *JSON, body=HANDSHAKE)[0] == 401
        status, text = ask("POST /mcp", RIGHT, *JSON, body=HANDSHAKE)
        assert (status, "access-control-allow-origin" in text) == (200, False)


@pytest.mark.requirement("wire:options")
def test_public_server_answers_named_hosts_only(home):
    with serve_home(home, "--host", "0.0.0.0", "--allow-host", "box.example") as (_, port):
        assert request_status(port, Host="box.example") == 200
        assert request_status(port, Host=f"127.0.0.1:{port}") == 421


@pytest.mark.requirement("wire:options")
def test_store_options_select_stores(home):
    for name in ("home", "work"):
        path = home / "profiles" / name
        path.mkdir(parents=True)
        with SessionDB(path / "state.db") as db:
            db.append_message(f"of_{name}", "user", "hello", create={"source": "cli"})
    with start_raw_process(home, "--store", "hermes:work", "--store", "hermes:home") as process:
        process.begin()
        both = {"of_work", "of_home"}
        for arguments, result in (({}, both), ({"store": "hermes:home"}, {"of_home"})):
            answer = process.ask("tools/call", name="sessions_list", arguments=arguments)["result"]
            assert {row["id"] for row in answer["structuredContent"]["sessions"]} == result
        arguments = {"name": "sessions_list", "arguments": {"store": "hermes"}}
        answer = process.ask("tools/call", **arguments)["result"]
        assert answer["content"][0]["text"] == (
            "store 'hermes' is not served; valid: hermes:work, hermes:home."
        )
