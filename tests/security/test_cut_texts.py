"""Cut texts show no part of a secret, and leave innocent text alone."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.redaction.redaction import MARK, clean_text, redact
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionDB
from tests.security.leaks import find_leaks, list_windows
from tests.security.secret_kinds import DISGUISES, KINDS, draw_sample
from tests.security.test_secret_kinds import INNOCENTS, MOST_TAKEN
from tests.security.walk import Walk

PREVIEW = 60
REST = "and then the deployment of the shop went on as it was planned. " * 5
SHARES = (0.35, 0.6, 0.85)
"""The length of text before the cut."""


def cut_inside_text(text: str, share: float) -> str:
    """Return a message whose preview ends within a text."""
    before = min(max(1, int(len(text) * share)), PREVIEW - 1)
    return f"{'x ' * PREVIEW}"[: PREVIEW - before - 1] + f" {text} {REST}"


def fill_home(path: Path, texts: list[str]) -> None:
    """Add a session in which each text is cut in every place where texts are cut."""
    with SessionDB(path / "state.db") as db:
        for number, text in enumerate(texts):
            for share in SHARES:
                key = f"s{number:03}-{share}"
                cut = cut_inside_text(text, share)
                db.append_message(key, "user", cut, create={"source": "cli"})
                db.append_message(key, "assistant", f"{REST}{cut} needle {cut}{REST}")


async def show_all(path: Path) -> dict[str, list[str]]:
    """Return every preview, snippet and resource name by form and place of the cut."""
    shown: dict[str, list[str]] = defaultdict(list)
    served = ServedStores(ServerOptions(home=str(path)))
    async with Client(server.create_server(served), cache=None) as client:
        walk = Walk(client)
        await walk.pages("sessions_list", limit=100)
        await walk.pages("sessions_search", query="needle", per="message", limit=100)
        await walk.list_resources()
    served.close()
    for where, text in walk.said:
        for row in text.get("sessions", []) if where == "sessions_list" else []:
            shown[f"preview {row['id'].partition('-')[2]}"].append(row["preview"])
        for hit in text.get("hits", []):
            shown[f"snippet {hit['session_id'].partition('-')[2]}"].append(hit["snippet"])
        if where == "resources/list":
            shown["name"] += [entry["name"] for entry in text["resources"]]
    return shown


@pytest.mark.requirement("hostile:cut-texts")
@pytest.mark.anyio
async def test_cut_innocent_texts_are_left_alone(tmp_path):
    fill_home(tmp_path, INNOCENTS)
    shown = await show_all(tmp_path)
    assert len(shown) == 2 * len(SHARES) + 1
    for form, texts in shown.items():
        assert form == "name" or len(texts) == len(INNOCENTS)
        marked = [text for text in texts if MARK in text]
        assert len(marked) <= MOST_TAKEN, (form, marked)


@pytest.mark.requirement("hostile:cut-texts")
@pytest.mark.anyio
async def test_cut_secrets_show_no_piece(tmp_path):
    drawn = [draw_sample(kind, seed) for kind in KINDS for seed in range(2)]
    fill_home(tmp_path, [sample.text for sample in drawn])
    shown = await show_all(tmp_path)
    secret = list_windows(drawn)
    assert len(shown) == 2 * len(SHARES) + 1
    for form, texts in shown.items():
        assert form == "name" or len(texts) == len(drawn)
        assert [(form, leak) for text in texts for leak in find_leaks(text, secret)] == []


@pytest.mark.requirement("hostile:cut-texts")
def test_line_break_hides_no_secret():
    sample = draw_sample("secret in an address", 3)
    coded = DISGUISES["codes of JSON"](sample.text)
    assert find_leaks(redact(f"{coded}\n[{coded}]"), list_windows([sample])) == set()


@pytest.mark.requirement("hostile:cut-texts")
@pytest.mark.parametrize("kind", KINDS)
def test_error_quotes_no_cut_escaped_secret(kind):
    sample = draw_sample(kind, 0)
    coded = DISGUISES["codes of JSON"](sample.text)
    shown = clean_text(f"no session {coded!r:.80}; call sessions_list", ["show", coded])
    assert find_leaks(shown, list_windows([sample])) == set()
