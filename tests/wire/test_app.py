"""HTTP in a separate process: access checks for all transports, and a graceful shutdown."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.wire.conftest import (
    MODERN,
    TOKEN,
    fork_command,
    make_environment,
    serve_command,
    serve_home,
)


@pytest.fixture(scope="module", name="port")
def _port(served_home):
    with serve_home(served_home) as (_, port):
        yield port


def send_request(port, method, path, body=None, token=TOKEN, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["Authorization"] = f"Bearer {token}"
    if body is not None:
        sent |= {"Content-Type": "application/json"}
        sent |= {"Accept": "application/json, text/event-stream"}
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read(2000) if path != "/sse" else b""
    finally:
        connection.close()


def make_initialize_request():
    info = {"name": "raw", "version": "1"}
    arguments = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": arguments})


PATHS = [("POST", "/mcp"), ("GET", "/sse"), ("POST", "/messages/"), ("GET", "/"), ("GET", "/x")]


@pytest.mark.requirement("wire:refused")
@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
def test_every_path_requires_token(port, method, path, token):
    arguments = (token or "").encode().decode("latin-1")
    status, headers, body = send_request(
        port, method, path, make_initialize_request(), token=arguments
    )
    assert (status, headers["WWW-Authenticate"][:6]) == (401, "Bearer")
    assert b"session" not in body


@pytest.mark.requirement("wire:http")
def test_health_needs_no_token(port):
    status, _, body = send_request(port, "GET", "/health", token=None)
    assert (status, json.loads(body)) == (200, {"status": "ok"})


@pytest.mark.requirement("wire:refused")
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/", "/health"])
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80", ""]
)
def test_foreign_host_is_refused(port, path, host):
    assert send_request(port, "GET", path, Host=host)[0] == 421


@pytest.mark.requirement("wire:refused")
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/", "/health"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil", "file://"]
)
def test_foreign_origin_is_refused(port, path, origin):
    assert send_request(port, "GET", path, Origin=origin)[0] == 403


@pytest.mark.requirement("wire:refused")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1"])
def test_loopback_host_is_accepted(port, host):
    assert send_request(port, "GET", "/health", Host=host)[0] == 200


@pytest.mark.requirement("wire:refused")
def test_oversized_body_is_refused(port):
    assert send_request(port, "POST", "/mcp", "x" * 5_000_000)[0] == 413
    pieces = (b"x" * 65_536 for _ in range(80))
    assert send_request(port, "POST", "/mcp", pieces)[0] == 413


@pytest.mark.requirement("wire:http")
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("way", ["streamable", "sse"])
async def test_both_eras_call_over_http(port, mode, way):
    arguments = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=arguments) as http_client:
        if way == "sse":
            transport = sse_client(f"http://127.0.0.1:{port}/sse", headers=arguments)
        else:
            address = f"http://127.0.0.1:{port}/mcp"
            transport = streamable_http_client(address, http_client=http_client)
        async with Client(transport, mode=mode) as client:
            listed = (await client.call_tool("sessions_list", {"limit": 2})).structured_content
            assert len(listed["sessions"]) == 2
            assert len((await client.list_tools()).tools) == 11


@pytest.mark.requirement("wire:graceful")
def test_shutdown_with_open_stream_is_graceful(served_home):
    listen = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": MODERN, "notifications": {"toolsListChanged": True}},
    }
    with serve_home(served_home, serve=serve_command) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
        }
        connection.request("POST", "/mcp", json.dumps(listen), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read(500)
        assert b"acknowledged" in answer.read1(2000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        connection.close()
        assert process.stderr.read() == ""


@pytest.mark.requirement("wire:token-served")
def test_doctor_prints_token_of_served_stores(tmp_path):
    (tmp_path / "home" / "profiles" / "work").mkdir(parents=True)
    env = make_environment(tmp_path / "home")
    env.pop("MCP_SESSIONS_TOKEN", None)
    several = ["--store", "hermes:work", "--all-profiles"]
    with serve_home(tmp_path / "home", *several, token=None) as (_, port):
        verb = [*fork_command(tmp_path / "home", *several), "--token"]
        verb[verb.index("serve")] = "doctor"
        result = subprocess.run(verb, env=env, capture_output=True, text=True, check=True)
        assert (
            send_request(
                port, "POST", "/mcp", make_initialize_request(), token=result.stdout.strip()
            )[0]
            == 200
        )


@pytest.mark.requirement("wire:token-served")
def test_doctor_prints_existing_token(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    env = {
        name: value
        for name, value in make_environment(home).items()
        if name != "MCP_SESSIONS_TOKEN"
    }
    with serve_home(home, "--read-only", token=None) as (_, port):
        verb = fork_command(home)
        verb[verb.index("serve")] = "doctor"
        result = subprocess.run(
            [*verb, "--token"], env=env, capture_output=True, text=True, check=True
        )
        token = result.stdout.strip()
        assert send_request(port, "POST", "/mcp", make_initialize_request(), token=token)[0] == 200
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"token", "home.json"}
    (file,) = [path for path in kept if path.name == "token"]
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert [path.parent for path in kept] == [home / ".mcp-sessions" / "state.db"] * 2


@pytest.mark.requirement("wire:open")
@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (["--host", "0.0.0.0"], 2, "--allow-host"),
        (
            ["--host", "0.0.0.0", "--no-token", "--allow-host", "x"],
            2,
            "--no-token is allowed on loopback",
        ),
        (["--port", "99999"], 2, "must be an integer <= 65535"),
        (["--host", "256.0.0.1", "--allow-host", "x"], 1, "cannot listen"),
    ],
)
def test_public_server_requires_token(served_home, more, code, text):
    result = subprocess.run(
        [*fork_command(served_home), "--http", *more],
        env=make_environment(served_home) | {"MCP_SESSIONS_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code
    assert text in result.stderr


@pytest.mark.requirement("wire:open")
def test_loopback_server_runs_without_token(served_home):
    with serve_home(served_home, "--no-token") as (_, port):
        assert send_request(port, "POST", "/mcp", make_initialize_request(), token=None)[0] == 200
