"""No secret gets out, on any path; what only looks random does."""

from __future__ import annotations

import json

import pytest

from mcp_serve.redaction import redact, redact_cut
from tests.serve.planted import HARMLESS, PLANTED, secret_of

KINDS = pytest.mark.parametrize("kind", PLANTED)


@KINDS
def test_a_secret_is_taken_out_and_the_text_around_it_stays(kind):
    shown = redact(f"before {PLANTED[kind]} after")
    assert secret_of(PLANTED[kind]) not in shown
    assert shown.startswith("before ")
    assert "[redacted" in shown


@pytest.mark.parametrize("text", HARMLESS)
def test_hashes_ids_and_plain_words_stay(text):
    assert redact(f"a {text} b") == f"a {text} b"


@pytest.mark.parametrize("kind", ["github", "openai", "stripe", "jwt", "rsa", "telegram", "google"])
def test_a_text_that_was_cut_within_a_secret_shows_nothing_of_it(kind):
    cut = f"use {PLANTED[kind]}"[:24] + "..."
    assert redact_cut(cut).startswith("use [redacted]"), redact_cut(cut)


def test_redacting_twice_is_redacting_once():
    text = "\n".join(PLANTED.values())
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "-----BEGIN " * 9_000, "eyJ" * 30_000, "x:" * 50_000]
)
def test_no_text_takes_long(text):
    """A pattern that backtracks would take minutes, and the test its timeout."""
    assert redact(text)


@pytest.mark.anyio
async def test_no_planted_key_is_on_any_path(db, call, refused):
    for number, (kind, planted) in enumerate(PLANTED.items()):
        text = f"words before {planted} and needle{number} after it, {'filler ' * 60}"
        db.append_message(f"s{number:02}", "user", text, create={"source": "cli"})
        called = {"name": "run", "arguments": json.dumps({"cmd": planted})}
        calls = [{"id": "c", "type": "function", "function": called}]
        db.append_message(f"s{number:02}", "assistant", f"{planted}", tool_calls=calls)
        db.append_message(f"s{number:02}", "tool", planted, tool_name="run", tool_call_id="c")
        db.set_session_title(f"s{number:02}", f"{kind}: {planted.splitlines()[0]}"[:99])
    start = (await call("events_wait", timeout_s=0))["cursor"]
    db.append_message("s00", "user", "\n".join(PLANTED.values()))
    said = [await call("events_wait", cursor=start, timeout_s=5), await call("routes_list")]
    said += [await call("sessions_list", limit=100, detail=d) for d in ("concise", "detailed")]
    for number in range(len(PLANTED)):
        said.append(await call("sessions_read", session=f"s{number:02}", detail="detailed"))
        for detail in ("concise", "detailed"):
            said.append(await call("sessions_search", query=f"needle{number}", detail=detail))
    everything = json.dumps(said)
    seen = [
        everything[max(0, at - 60) : at + 20]
        for part in {secret_of(planted) for planted in PLANTED.values()}
        for at in [everything.find(part)]
        if at >= 0
    ]
    assert seen == []


@pytest.mark.anyio
@KINDS
async def test_a_query_that_is_a_secret_finds_nothing(db, call, kind):
    planted = PLANTED[kind]
    db.append_message("s1", "user", planted, create={"source": "cli"})
    assert (await call("sessions_search", query=planted[:1900]))["hits"] == []
    assert (await call("sessions_list", query=planted[:1900]))["sessions"] == []


@pytest.mark.anyio
@pytest.mark.options(redact=False)
async def test_who_asks_for_it_gets_everything(db, call):
    db.append_message("s1", "user", PLANTED["github"], create={"source": "cli"})
    page = await call("sessions_read", session="s1")
    assert page["messages"][0]["text"] == PLANTED["github"]
