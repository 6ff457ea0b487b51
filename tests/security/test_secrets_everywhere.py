"""Disguised secrets of every kind in every stored field: no output of a home shows one.

The fast run gives a quarter of the kinds one disguise, `-m thorough` each kind, and `-m slow` goes
through all disguises.
"""

from __future__ import annotations

import json
import re
import uuid

import pytest

from mcp_serve.cli.main import VERBS
from mcp_serve.features import prompts
from mcp_serve.features.completions import _COMPLETERS
from mcp_serve.tool_list import load_specs
from session_core import SessionDB
from tests.cli.fork_server import build_environment
from tests.security.corpus import LONG, plant_texts
from tests.security.leaks import find_leaks, list_windows
from tests.security.secret_kinds import DISGUISES, KINDS, draw_sample
from tests.security.walk import walk_home
from tests.thorough import mark_thorough
from tests.transcripts.trees import ClaudeTree

NAMES = sorted(DISGUISES)
ROUNDS = [
    (0, 8),
    mark_thorough((0, 1)),
    *(pytest.param(number, 1, marks=pytest.mark.slow) for number in range(1, len(NAMES))),
]
"""The number of each round, and the share of the kinds as one in so many."""
EVERY_VERB = {
    "list": [["--status", "all"], ["--json"], ["--title", "SECRET"], ["--since", "SECRET"]],
    "show": [[LONG], [LONG, "--tools", "--full", "--json"], ["SECRET"]],
    "search": [["needle", "--every"], ["cmd", "--json", "--every"], ["SECRET"]],
    "routes": [[], ["--json"], ["SECRET"]],
    "stats": [[], ["--json"], ["--html", "-"]],
    "watch": [["--store", "SECRET"], ["--session", "SECRET"]],
    "keep": [
        *(["on", "SECRET"], ["on"], ["--json"], ["status", "--json"], ["SECRET"]),
        *(
            ["forget", "claude-code", "--plan-only"],
            ["forget", "claude-code", "--plan-only", "--json"],
        ),
        *(["forget", "SECRET"], ["forget", "--plan", "SECRET"], ["off"]),
    ],
    "prune": [["sessions", "--plan-only"], ["all", "--plan-only", "--json"], ["SECRET"]],
    "finalize": [["--session", "h01", "--reason", "SECRET", "--yes"], ["--plan", "SECRET"]],
    "compress": [[LONG, "--keep-last", "10", "--yes"], ["SECRET"], ["--plan", "SECRET"]],
    "edit": [["h00", "--title", "SECRET", "--yes"], ["SECRET", "--pin"]],
    "restore": [[], ["--json"], ["SECRET"]],
    "trash": [["list"], ["empty", "--older-than", "SECRET"]],
    "log": [[], ["--json"], ["--limit", "SECRET"]],
    "export": [["--out", "OUT"], ["--title", "SECRET", "--out", "NEW"], ["--format", "SECRET"]],
    "import": [["OUT", "--plan-only"], ["SECRET"]],
    "copy": [
        ["HOME", "copy.db", "--plan-only"],
        ["HOME", "copy.db", "--yes"],
        ["SECRET", "SECRET"],
    ],
    "resume": [["SECRET"], [LONG]],
    "serve": [["--store", "SECRET"], ["--http", "SECRET"]],
    "install": [["SECRET"], ["claude-code", "--print", "--name", "SECRET"]],
    "uninstall": [["SECRET"]],
    "doctor": [["--store", "SECRET"], ["--timeout", "SECRET"]],
    "demo": [["SECRET"]],
    "migrate": [["SECRET"], ["--home", "postgresql://127.0.0.1:1/SECRET"]],
    "completion": [["SECRET"]],
}
"""The arguments of each verb: for stored data, and with a secret of its own.

`export` writes conversations unredacted by design; only its printed output is checked.
"""


def draw_samples(number: int, parts: int):
    """Return samples of one kind in so many, and texts that contain them disguised."""
    drawn = [draw_sample(kind, number) for kind in list(KINDS)[::parts]]
    disguised = {
        sample.kind: DISGUISES[NAMES[(at + number) % len(NAMES)]](sample.text)
        for at, sample in enumerate(drawn)
    }
    return drawn, {f"{kind} {number}": text for kind, text in disguised.items()}


def list_entries(text, where, name):
    """Return the entries of all pages of a list."""
    return [entry for place, output in text if place == where for entry in output[name]]


def make_address_pattern(template):
    """Return a pattern for the addresses of a template."""
    path = template.partition("{?")[0]
    return "[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", path))


def unread_resources(text):
    """Return templates, and listed addresses without a template, that were never read."""
    templates = {
        e["uri_template"] for e in list_entries(text, "templates/list", "resource_templates")
    }
    alone = {entry["uri"] for entry in list_entries(text, "resources/list", "resources")}
    alone -= {
        uri
        for uri in alone
        for template in templates
        if re.fullmatch(make_address_pattern(template), uri)
    }
    read = [output for where, output in text if where == "address"]
    assert len(templates | alone) >= 5
    return [
        address
        for address in templates | alone
        if not any(re.fullmatch(make_address_pattern(address), uri) for uri in read)
    ]


def list_shown_leaks(text):
    """Return every leak with the place of its output."""
    return [
        (where, leak)
        for where, output, secret in text
        for leak in find_leaks(
            output if isinstance(output, str) else json.dumps(output, ensure_ascii=False), secret
        )
    ]


@pytest.mark.requirement("hostile:secrets-everywhere")
@pytest.mark.timeout(600)
@pytest.mark.anyio
@pytest.mark.parametrize(("number", "parts"), ROUNDS)
async def test_no_tool_shows_a_disguised_secret(tmp_path, number, parts):
    drawn, texts = draw_samples(number, parts)
    secret = list_windows(drawn)
    text = await walk_home(tmp_path, ("auto", "legacy")[number % 2], texts)
    names = {where for where, _ in text}
    assert names >= {spec.name for spec in load_specs()}
    assert names >= {f"prompt {prompt.name}" for prompt in prompts.PROMPTS}
    assert names >= {f"completion {argument}" for argument in _COMPLETERS}
    assert unread_resources(text) == []
    assert names >= {"question", "resources/list", "audit"}
    assert list_shown_leaks((where, output, secret) for where, output in text) == []


@pytest.mark.requirement("hostile:secrets-everywhere")
def test_every_verb_is_called():
    assert set(EVERY_VERB) == set(VERBS)


@pytest.mark.requirement("hostile:secrets-everywhere")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "parts"), ROUNDS)
def test_no_verb_shows_a_disguised_secret(forks, tmp_path, number, parts):
    drawn, texts = draw_samples(number, parts)
    secret = list_windows(drawn)
    home = tmp_path / "home"
    home.mkdir()
    plant_texts(home, texts)
    with SessionDB(home / "state.db") as db:
        ids = [row.id for row in db.list_sessions(limit=200).items]
    for at, text in enumerate(texts.values()):
        ClaudeTree(tmp_path).write(str(uuid.UUID(int=at + 1)), [text, text])
    passed = [text.replace("\x00", "") for text in texts.values()]
    calls = [(verb, call) for verb in EVERY_VERB for call in EVERY_VERB[verb]]
    calls += [("show", [key, "--tools"]) for key in ids]
    message = []
    for at, (verb, call) in enumerate(calls):
        arguments = {"SECRET": passed[at % len(passed)], "OUT": str(tmp_path / "out.jsonl")}
        arguments |= {"NEW": str(tmp_path / "new.jsonl"), "HOME": str(home)}
        named = [] if verb in ("keep", "copy") else ["--home", str(home)]
        words = [verb, *named, *(arguments.get(word, word) for word in call)]
        result = forks.run(words, build_environment(tmp_path), str(tmp_path), "")
        message.append((f"{verb} {call}", result.out, secret))
        message.append((f"{verb} {call} error", result.err, secret))
    planned = [
        output for place, output, _ in message if place.startswith("keep ['forget', 'claude")
    ]
    assert any(f"Forget {len(texts)} sessions of claude-code" in output for output in planned)
    assert sum(len(output) for _, output, _ in message) > 100_000 / parts
    assert list_shown_leaks(message) == []
