"""Access rules over HTTP: host names, origins, tokens."""

from __future__ import annotations

import pytest

from mcp_serve.http.auth import AccessRules
from session_core import InvalidInput

HOST = "127.0.0.1:8765"


TOKEN = "a-token-of-the-tests"


def make_rules(token=TOKEN, origins=()):
    return AccessRules.from_address("127.0.0.1", [], origins, token)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:9"])
def test_local_page_is_allowed_with_token(origin):
    assert make_rules().is_allowed_page(origin, HOST)
    assert not make_rules(token=None).is_allowed_page(origin, HOST)


@pytest.mark.requirement("wire:pages")
def test_tokenless_server_allows_own_pages():
    open_door = make_rules(token=None, origins=["http://localhost:3000/"])
    assert open_door.is_allowed_page(f"http://{HOST}", HOST)
    assert open_door.is_allowed_page("http://localhost:3000", HOST)
    assert not open_door.is_allowed_page("http://localhost:3001", HOST)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://", "http://", ""])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_foreign_page_is_refused(origin, token):
    assert not make_rules(token=token).is_allowed_page(origin, HOST)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize(
    ("host", "hosts", "token"), [("0.0.0.0", [], "t" * 20), ("0.0.0.0", ["x"], None)]
)
def test_public_address_requires_hosts_and_token(host, hosts, token):
    with pytest.raises(InvalidInput, match=r"--allow-host|--no-token"):
        AccessRules.from_address(host, hosts, [], token)
