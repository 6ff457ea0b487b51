"""DNS rebinding and browsers: a page with its own host name or origin has no access."""

from __future__ import annotations

import pytest

from mcp_serve.http.auth import AccessRules
from session_core import InvalidInput
from tests.security.raw_requests import HANDSHAKE, JSON, RIGHT, send_request

PATHS = (
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages/"),
    ("GET", "/health"),
    ("OPTIONS", "/mcp"),
    ("GET", "/"),
)
EVERY = pytest.mark.parametrize(("method", "path"), PATHS)


@pytest.mark.requirement("security:rebinding")
@EVERY
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.", "127.0.0.1@evil.example", "0"]
)
def test_rebound_host_is_refused_despite_token(port, method, path, host):
    answered = send_request(port, f"{method} {path} HTTP/1.1", f"Host: {host}", RIGHT, *JSON)
    assert answered.status == 421
    assert "mcp-session" not in answered.text.lower().partition("\r\n\r\n")[0]


@pytest.mark.requirement("security:rebinding")
@EVERY
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost.evil:8765"],
)
def test_foreign_origin_is_refused_despite_token(port, method, path, origin):
    headers = (f"Host: 127.0.0.1:{port}", f"Origin: {origin}", RIGHT, *JSON)
    assert send_request(port, f"{method} {path} HTTP/1.1", *headers).status == 403


@EVERY
def test_answers_carry_no_cors_permission(port, method, path):
    headers = (f"Host: 127.0.0.1:{port}", "Origin: https://evil.example", *JSON)
    answered = send_request(port, f"{method} {path} HTTP/1.1", *headers)
    assert "access-control-allow" not in answered.text.lower()


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: 127.0.0.1", "Host: evil.example"),
        ("Host: evil.example", "Host: 127.0.0.1"),
        ("Host: evil.example", "X-Forwarded-Host: 127.0.0.1"),
        ("Host: evil.example", "Forwarded: host=127.0.0.1"),
        ("Host:",),
    ],
    ids=range(5),
)
def test_second_host_header_is_refused(port, headers):
    line = "POST /mcp HTTP/1.1"
    assert send_request(port, line, *headers, RIGHT, *JSON, body=HANDSHAKE).status in (400, 421)


def test_second_origin_header_is_refused(port):
    origins = (f"Origin: http://127.0.0.1:{port}", "Origin: https://evil.example")
    headers = (f"Host: 127.0.0.1:{port}", *origins, RIGHT, *JSON)
    assert send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE).status == 403


def test_absolute_request_target_is_refused(port):
    line = "POST http://evil.example/mcp HTTP/1.1"
    answered = send_request(port, line, "Host: evil.example", RIGHT, *JSON, body=HANDSHAKE)
    assert answered.status in (400, 404, 421)


def test_own_host_is_answered(port):
    headers = (f"Host: 127.0.0.1:{port}", RIGHT, *JSON)
    assert send_request(port, "POST /mcp HTTP/1.1", *headers, body=HANDSHAKE).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
@pytest.mark.parametrize(("token", "names"), [(None, ["x"]), ("t" * 32, []), (None, [])])
def test_public_address_requires_token_and_host(host, token, names):
    with pytest.raises(InvalidInput):
        AccessRules.from_address(host, names, [], token)
