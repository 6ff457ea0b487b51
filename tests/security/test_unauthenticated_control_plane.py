"""Unauthenticated control plane: only `/health` answers without the token of the home."""

from __future__ import annotations

import base64
import json

import pytest

from mcp_serve.http.auth import load_or_create_token
from session_core import Denied, StateFolder
from tests.security.raw_requests import HANDSHAKE, JSON, RIGHT, send_request
from tests.wire.conftest import TOKEN

PATHS = (
    *(("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("PUT", "/mcp"), ("HEAD", "/mcp")),
    *(("OPTIONS", "/mcp"), ("GET", "/sse"), ("POST", "/sse"), ("POST", "/messages/")),
    *(("POST", "/messages/?session_id=0"), ("GET", "/"), ("GET", "/docs"), ("GET", "/../mcp")),
    *(("POST", "/mcp/"), ("POST", "//mcp"), ("POST", "/MCP"), ("GET", "/health/"), ("POST", "/x")),
    *(
        ("GET", "/healthz"),
        ("GET", "/health/../mcp"),
        ("GET", "/.well-known/oauth-protected-resource"),
    ),
)
WRONG = (
    (),
    ("Authorization:",),
    ("Authorization: Bearer",),
    ("Authorization: Bearer ",),
    (f"Authorization: Bearer {TOKEN[:-1]}",),
    (f"Authorization: Bearer {TOKEN}x",),
    (f"Authorization: Bearer {TOKEN.upper()}",),
    (f"Authorization: Basic {base64.b64encode(TOKEN.encode()).decode()}",),
    (f"Authorization: {TOKEN}",),
    (f"X-Authorization: Bearer {TOKEN}",),
    (f"Cookie: token={TOKEN}",),
    ("Authorization: Bearer x", f"Authorization: Bearer {TOKEN}"),
    ("Authorization: Bearer \xfc\xff",),
)


@pytest.mark.requirement("security:token")
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_only_health_answers_without_token(port, method, path):
    answered = send_request(port, f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *JSON)
    assert answered.status == 401
    assert "www-authenticate: bearer" in answered.text.lower()
    assert "session" not in answered.text.partition("\r\n\r\n")[2]


@pytest.mark.requirement("security:token")
@pytest.mark.parametrize("arguments", WRONG, ids=range(len(WRONG)))
def test_only_bearer_token_is_accepted(port, arguments):
    headers = (f"Host: 127.0.0.1:{port}", *arguments, *JSON)
    answered = send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE)
    assert answered.status in (400, 401)
    assert "mcp-sessions" not in answered.text.partition("\r\n\r\n")[2]


@pytest.mark.requirement("security:token")
@pytest.mark.parametrize("name", ["token", "access_token", "authorization"])
def test_token_in_query_is_refused(port, name):
    line = f"POST /mcp?{name}={TOKEN} HTTP/1.1"
    answered = send_request(port, line, f"Host: 127.0.0.1:{port}", *JSON, body=HANDSHAKE)
    assert answered.status == 401


@pytest.mark.requirement("security:token")
def test_valid_token_is_accepted(port):
    headers = (f"Host: 127.0.0.1:{port}", RIGHT, *JSON)
    answered = send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE)
    assert answered.status == 200
    assert TOKEN not in answered.text


def test_health_returns_only_status(port):
    answered = send_request(port, "GET /health HTTP/1.1", f"Host: 127.0.0.1:{port}")
    head, _, body = answered.text.partition("\r\n\r\n")
    assert (answered.status, json.loads(body)) == (200, {"status": "ok"})
    assert "server:" not in head.lower()


@pytest.mark.requirement("security:token")
def test_homes_have_distinct_random_tokens(tmp_path, monkeypatch):
    monkeypatch.delenv("MCP_SESSIONS_TOKEN", raising=False)
    homes = [StateFolder(tmp_path / name / "state.db") for name in ("one", "two", "three")]
    created = {load_or_create_token(folder) for folder in homes}
    assert len(created) == 3
    assert all(len(token) >= 43 for token in created)
    assert load_or_create_token(homes[0]) in created
    kept = list(tmp_path.rglob("token"))
    assert [oct(path.stat().st_mode & 0o777) for path in kept] == ["0o600"] * 3
    assert {oct(path.parent.stat().st_mode & 0o777) for path in kept} == {"0o700"}


@pytest.mark.requirement("security:token")
@pytest.mark.parametrize("token", ["x", "short", "tokentokentoken", "ü" * 40])
def test_guessable_token_is_refused(tmp_path, monkeypatch, token):
    monkeypatch.setenv("MCP_SESSIONS_TOKEN", token)
    with pytest.raises(Denied):
        load_or_create_token(StateFolder(tmp_path / "state.db"))
