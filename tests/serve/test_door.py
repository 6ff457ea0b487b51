"""Who is let in over HTTP: names, pages, tokens."""

from __future__ import annotations

import pytest

from mcp_serve.http.auth import Door
from session_core import InvalidInput

HOST = "127.0.0.1:8765"


TOKEN = "a-token-of-the-tests"


def door(token=TOKEN, origins=()):
    return Door.of("127.0.0.1", [], origins, token)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:9"])
def test_a_page_of_this_machine_may_call_where_it_has_to_show_a_token(origin):
    assert door().lets_page(origin, HOST)
    assert not door(token=None).lets_page(origin, HOST)


@pytest.mark.requirement("wire:pages")
def test_without_a_token_the_pages_of_this_address_may_call_and_those_that_were_named():
    open_door = door(token=None, origins=["http://localhost:3000/"])
    assert open_door.lets_page(f"http://{HOST}", HOST)
    assert open_door.lets_page("http://localhost:3000", HOST)
    assert not open_door.lets_page("http://localhost:3001", HOST)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://", "http://", ""])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_foreign_page_may_not_call(origin, token):
    assert not door(token=token).lets_page(origin, HOST)


@pytest.mark.requirement("wire:pages")
@pytest.mark.parametrize(
    ("host", "hosts", "token"), [("0.0.0.0", [], "t" * 20), ("0.0.0.0", ["x"], None)]
)
def test_a_door_to_others_has_names_and_a_token(host, hosts, token):
    with pytest.raises(InvalidInput, match=r"--allow-host|--no-token"):
        Door.of(host, hosts, [], token)
