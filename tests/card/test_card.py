"""The document of a card: one file, its policy, its link with a tool, its colors."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

import pytest
from mcp import Client

from mcp_serve import card, server
from mcp_serve.stores.stores import ServedStores, ServerOptions
from tests.cli.test_html import compute_contrast

FILES = resources.files("mcp_serve.card")
MIME_TYPE = "text/html;profile=mcp-app"


def read_file(name):
    return FILES.joinpath(name).read_text("utf-8")


SCRIPTS = sorted(path.name for path in FILES.iterdir() if path.name.endswith(".js"))


@pytest.fixture(name="connect")
def _connect(home_path):
    """Connect a client to a server of the home."""

    def connect(mode="auto", **options):
        served = ServedStores(ServerOptions(home=str(home_path), **options))
        return Client(server.create_server(served), mode=mode, cache=None)

    return connect


@pytest.mark.anyio
@pytest.mark.requirement("faces:card")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_name_their_cards(connect, mode):
    async with connect(mode) as client:
        tools = (await client.list_tools()).tools
        cards = {tool.name: tool.meta["ui"]["resourceUri"] for tool in tools if tool.meta}
        assert cards.keys() == set(card.CARD_TOOLS)
        for tool, uri in cards.items():
            (content,) = (await client.read_resource(uri)).contents
            assert content.mime_type == MIME_TYPE
            assert content.meta["ui"]["csp"] == {}
            assert f'data-tool="{tool}"' in content.text


@pytest.mark.anyio
@pytest.mark.requirement("faces:card")
async def test_read_only_server_has_report_card(connect):
    async with connect(read_only=True) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools if tool.meta] == ["sessions_stats"]
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        assert [uri for uri in listed if uri.startswith("ui:")] == [
            "ui://mcp-sessions/sessions_stats.html"
        ]


@pytest.mark.anyio
@pytest.mark.requirement("faces:card")
async def test_server_declares_extensions(connect):
    async with connect() as client:
        extensions = client.server_capabilities.extensions
    assert extensions == {
        "io.modelcontextprotocol/skills": {"directoryRead": True},
        "io.modelcontextprotocol/ui": {},
    }


@pytest.mark.requirement("faces:card-safe")
@pytest.mark.parametrize("tool", card.CARD_TOOLS)
def test_policy_allows_only_own_script(tool):
    page = card.build_page(tool)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    hashes = {}
    for name in ("script", "style"):
        (text,) = re.findall(rf"<{name}[^>]*>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[name] = f"{name}-src 'sha256-{digest}'"
    assert policy.split("; ") == [
        "default-src 'none'",
        hashes["script"],
        hashes["style"],
        "base-uri 'none'",
        "form-action 'none'",
    ]


@pytest.mark.requirement("faces:card-safe")
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_writes_no_markup(name):
    unsafe = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\("
    network = r"\bfetch\b|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\b|https?:|storage"
    assert not re.search(f"{unsafe}|{network}", read_file(name), re.IGNORECASE)


@pytest.mark.requirement("faces:card-safe")
def test_page_has_no_addresses():
    page = card.build_page("sessions_prune")
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=", page)


def test_bridge_is_short():
    assert len(read_file("bridge.js").splitlines()) < 150


def read_colors():
    """Return the colors of both themes by name."""
    found = re.findall(r"--([\w-]+):[^;]*?light-dark\((#\w{6}), (#\w{6})\)", read_file("card.css"))
    return [
        {name: tuple(bytes.fromhex(pair[index][1:])) for name, *pair in found} for index in (0, 1)
    ]


@pytest.mark.parametrize("colors", read_colors(), ids=["light", "dark"])
def test_card_text_has_enough_contrast(colors):
    for text in ("ink", "dim", "danger"):
        assert compute_contrast(colors[text], colors["paper"]) >= 4.5
    for button in ("fill", "danger"):
        assert compute_contrast(colors["on-danger"], colors[button]) >= 4.5
    assert compute_contrast(colors["fill"], colors["paper"]) >= 3
