"""Stored prompt injection: transcripts are quoted data in their fields."""

from __future__ import annotations

import json
import re

import pytest
from mcp import Client

from mcp_serve import server
from mcp_serve.features.prompts import PROMPTS
from mcp_serve.plain_text import to_plain_line
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_list import load_specs
from tests.security.corpus import CANARY, INJECTIONS, QUOTED
from tests.security.walk import iterate_strings, walk_home

pytestmark = pytest.mark.anyio

MULTILINE = frozenset({"text", "digest", "must_survive"})
"""Fields that keep line breaks, since code has them; JSON quotes them."""

HIDDEN = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\u200b\u2060\ufeff"}
HIDDEN |= {*"\u00ad\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
HIDDEN |= {chr(0xE0000 + number) for number in range(128)}

TOLD = ("tools/list", "prompts/list", "templates/list")


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", params=["auto", "legacy"], name="mode")
def _mode(request):
    return request.param


@pytest.fixture(scope="module", name="walk_results")
async def _said(mode, tmp_path_factory):
    return await walk_home(tmp_path_factory.mktemp("walk"), mode, INJECTIONS)


@pytest.mark.requirement("security:injection")
async def test_walk_covers_every_path(walk_results):
    places = {where for where, _ in walk_results}
    assert {spec.name for spec in load_specs()} <= places
    assert {"resource session", "resource route", "resource sessions", "resources/list"} <= places
    assert {f"prompt {prompt.name}" for prompt in PROMPTS} <= places
    assert "resource skill" in places
    assert {"audit", "question", "sessions_read refused", "completion session"} <= places
    answers = [(where, output) for where, output in walk_results if isinstance(output, dict)]
    outcomes = {(where, output["outcome"]) for where, output in answers if "outcome" in output}
    for tool in ("sessions_finalize", "sessions_prune", "sessions_compress"):
        assert {(tool, "planned"), (tool, "applied")} <= outcomes
    assert ("sessions_restore", "applied") in outcomes


@pytest.mark.requirement("security:injection")
async def test_server_texts_ignore_stored_injections(walk_results, mode, tmp_path):
    served = ServedStores(ServerOptions(home=str(tmp_path / "empty")))
    async with Client(server.create_server(served), mode=mode, cache=None) as client:
        empty = [
            await client.list_tools(),
            await client.list_prompts(),
            await client.list_resource_templates(),
        ]
    served.close()
    text = [output for where, output in walk_results if where in TOLD]
    assert text == [item.model_dump(mode="json", exclude={"meta"}) for item in empty]


@pytest.mark.requirement("security:injection")
async def test_stored_text_stays_in_quoted_fields(walk_results):
    elsewhere = [
        (where, key, text[:80])
        for where, output in walk_results
        if isinstance(output, dict) and not where.startswith("completion")
        for key, text in iterate_strings(output)
        if CANARY in text and key not in QUOTED and key != "note"
    ]
    assert elsewhere == []
    quoted = {
        key for _, output in walk_results for key, text in iterate_strings(output) if CANARY in text
    }
    assert {"text", "snippet", "preview", "title", "name", "digest", "source"} <= quoted
    assert {"model", "kind"} <= quoted


@pytest.mark.requirement("security:injection")
async def test_notes_quote_stored_phrases(walk_results):
    """A note may list stored names. A phrase among them is a JSON string."""
    notes = [
        output["note"]
        for _, output in walk_results
        if isinstance(output, dict) and CANARY in output.get("note", "")
    ]
    assert notes
    phrases = [line for line in map(to_plain_line, INJECTIONS.values()) if " " in line]
    for note in notes:
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", note)
        assert [line for line in phrases if line[:40] in unquoted] == [], unquoted


@pytest.mark.requirement("security:injection")
async def test_single_lines_contain_no_controls(walk_results):
    broken = [
        (where, key, text[:80])
        for where, output in walk_results
        for key, text in iterate_strings(output)
        if key not in MULTILINE and where not in TOLD and where != "question"
        if not where.startswith("prompt") and HIDDEN & set(text)
    ]
    assert broken == []


@pytest.mark.requirement("security:injection")
async def test_consent_question_contains_no_injected_lines(walk_results):
    questions = [output for where, output in walk_results if where == "question"]
    assert len(questions) >= 4
    for request in questions:
        first, *lines = request.split("\n")
        assert first.endswith("?")
        assert [line for line in lines if not line.startswith(("- ", "Note: "))] == []
        titles = [line for line in lines if line.startswith('- "')]
        assert all(re.match(r'- "(?:[^"\\]|\\.)*": ', line) for line in titles)
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", request)
        assert [text for text in INJECTIONS.values() if text[:40] in unquoted] == [], unquoted
        assert not HIDDEN - {"\n"} & set(request)


async def test_errors_are_single_short_lines(walk_results):
    errors = [(where, output) for where, output in walk_results if where.endswith("refused")]
    assert len(errors) > 30
    for where, error in errors:
        assert not HIDDEN & set(error), (where, error)
        assert len(error) < 1_500, (where, error)
        assert "a defect of this server" not in error


@pytest.mark.requirement("security:injection")
async def test_message_text_is_returned_unchanged(walk_results):
    read = [
        output
        for where, output in walk_results
        if where == "sessions_read" and "messages" in output
    ]
    texts = {message["text"] for page in read for message in page["messages"]}
    for text in INJECTIONS.values():
        assert f"needle {text}" in texts


@pytest.mark.requirement("security:injection")
@pytest.mark.parametrize("kind", INJECTIONS)
@pytest.mark.parametrize("name", [prompt.name for prompt in PROMPTS if prompt.argument])
async def test_prompt_quotes_argument(tmp_path, mode, kind, name):
    arguments = INJECTIONS[kind]
    (argument,) = [prompt.argument for prompt in PROMPTS if prompt.name == name]
    served = ServedStores(ServerOptions(home=str(tmp_path / "empty")))
    async with Client(server.create_server(served), mode=mode, cache=None) as client:
        text, bare = [
            (await client.get_prompt(name, {argument: item})).messages[0].content.text
            for item in (arguments, "SESSION")
        ]
    served.close()
    before, after = bare.split('"SESSION"')
    assert text.startswith(before)
    quotation, length = json.JSONDecoder().raw_decode(text[len(before) :])
    assert quotation == to_plain_line(arguments)
    assert text[len(before) + length :] == after
