"""Secrets in transcripts: no key gets out on any path. Text that only looks random does."""

from __future__ import annotations

import json

import pytest

from mcp_serve.redaction.redaction import redact
from tests.security.corpus import CANARY, INJECTIONS, LONG, plant_texts
from tests.security.formats import FORMATS, NEEDLES
from tests.security.walk import walk_home
from tests.serve.planted_secrets import HARMLESS, PLANTED
from tests.thorough import mark_thorough
from tests.wire.conftest import start_raw_process

pytestmark = pytest.mark.anyio

KINDS = {f"planted {kind}": text for kind, text in PLANTED.items()}
KINDS |= {f"format {kind}": FORMATS[kind] for kind in FORMATS if kind.split()[0] not in PLANTED}


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", params=["auto", mark_thorough("legacy")], name="walk_results")
async def _said(request, tmp_path_factory):
    return await walk_home(tmp_path_factory.mktemp("walk"), request.param, KINDS)


def find_places(text):
    """Return the positions of parts of a key in a text."""
    return [
        text[max(0, text.find(needle) - 60) : text.find(needle) + 20]
        for needle in NEEDLES
        if needle in text
    ]


@pytest.mark.requirement("security:secrets")
async def test_keys_appear_on_no_path(walk_results):
    assert len(walk_results) > 500
    shown = [
        (where, find_places(json.dumps(output, ensure_ascii=False)))
        for where, output in walk_results
    ]
    assert [(where, parts) for where, parts in shown if parts] == []


async def test_redaction_mark_appears_on_quoting_paths(walk_results):
    marked = {where for where, output in walk_results if "[redacted" in json.dumps(output)}
    assert marked >= {
        "sessions_list",
        "sessions_read",
        "sessions_search",
        "sessions_stats",
        "routes_list",
        "events_wait",
        "sessions_edit",
        "sessions_finalize",
        "sessions_prune",
        "resource session",
        "resource route",
        "resources/list",
    }


@pytest.mark.requirement("security:secrets")
@pytest.mark.parametrize("kind", FORMATS)
async def test_known_key_formats_are_redacted(kind):
    shown = redact(f"before {FORMATS[kind]} after")
    assert find_places(shown) == []
    assert shown.startswith("before ")
    assert shown.endswith(" after")


@pytest.mark.requirement("security:secrets")
def test_process_log_contains_no_transcript(home_path):
    texts = INJECTIONS | KINDS
    plant_texts(home_path, texts)
    calls = [
        ("sessions_list", {"status": "all", "limit": 100}),
        ("sessions_read", {"session": LONG, "detail": "detailed"}),
        ("sessions_search", {"query": "needle", "per": "message"}),
        ("sessions_stats", {}),
        ("routes_list", {}),
        ("events_wait", {"timeout_s": 0}),
        ("sessions_edit", {"sessions": "h00", "title": texts["orders"]}),
        ("sessions_prune", {}),
        ("sessions_finalize", {"sessions": ["h01"], "reason": texts["turned"]}),
        ("sessions_compress", {"session": LONG, "keep_last": 10}),
        ("sessions_restore", {}),
        *(("sessions_read", {"session": f"no {text[:400]}"}) for text in texts.values()),
        *(("sessions_read", {text[:60]: text[:60]}) for text in texts.values()),
    ]
    with start_raw_process(home_path) as process:
        process.begin()
        answers = [
            process.ask("tools/call", name=name, arguments=arguments)["result"]
            for name, arguments in calls
        ]
        assert process.end() == 0
        logged = process.process.stderr.read()
    assert [answer.get("isError", False) for answer in answers] == [
        number >= len(calls) - 2 * len(texts) for number in range(len(calls))
    ]
    assert CANARY not in logged
    assert find_places(logged) == []
    assert logged == ""


SECRET = "Zx9Qw3Rt7Yp1Lk5Jh8"

NAMED = (
    f"curl -H 'X-Api-Key: {SECRET}' https://example.org",
    f"dbPassword={SECRET}",
    f'"refresh_token": "{SECRET}"',
    f"BOT_TOKEN={SECRET}",
    f"passphrase: {SECRET}",
    f"ENCRYPTION_KEY={SECRET}",
    f'password = "{SECRET}',
    f"service-key => `{SECRET}`",
)


@pytest.mark.parametrize("text", NAMED)
async def test_named_values_are_redacted(text):
    assert SECRET not in redact(text)


UNTOUCHED = (
    *HARMLESS,
    "d3b07384d113edec49eaa6238ad5ff00",
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "merge 9fceb02 into 3f785f0c2a, see 1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b",
    "run_01HZXK3V9Q8M7N6P5R4S3T2W1Y and msg_2f6c8a1e4b7d9c0a",
    "agent:main:telegram:dm:123456789",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
)


@pytest.mark.requirement("security:secrets")
@pytest.mark.parametrize("text", UNTOUCHED, ids=range(len(UNTOUCHED)))
async def test_hashes_and_ids_are_not_redacted(client, db, call, text):
    db.append_message("s1", "user", f"walrus {text}", create={"source": "cli"})
    db.set_session_title("s1", text[:90])
    page = await call("sessions_read", session="s1")
    assert page["messages"][0]["text"] == f"walrus {text}"
    assert page["session"]["title"] == text[:90]
    (hit,) = (await call("sessions_search", query="walrus", detail="detailed"))["hits"]
    assert text in hit["snippet"]
