"""The verb show: pages, references, and text that a terminal does not obey."""

from __future__ import annotations

import json

from mcp_serve.cli import sample_home
from tests.cli.command_user import strip_style


def test_stored_text_sends_no_terminal_escapes(screen):
    text = strip_style(screen(80, "show", "w1", "--store", "hermes:work"))
    assert "at work" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_limit_above_page_size_collects_pages(reader):
    shown = json.loads(
        reader.run("show", sample_home.LONG_SESSION_ID, "--limit", "150", "--json").out
    )
    ids = [message["id"] for message in shown["messages"]]
    assert len(ids) == 150
    assert ids == sorted(set(ids))


def test_show_finds_session_by_prefix_or_title(reader):
    for name in (sample_home.LONG_SESSION_ID[:-2], "Schema change for orders"):
        assert "Schema change for orders" in reader.run("show", name).out


def test_show_around_continues_search_hit(reader):
    hit = json.loads(reader.run("search", "orders", "schema", "--json").out)["hits"][0]
    result = reader.run(
        "show", hit["session_id"], "--around", str(hit["message_id"]), "--limit", "3"
    )
    marked = [line for line in result.out.splitlines() if line.startswith("> ")]
    assert [line.split()[-1] for line in marked] == [str(hit["message_id"])]
