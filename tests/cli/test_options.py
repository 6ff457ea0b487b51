"""`--json` before or after every verb is accepted or refused alike."""

from __future__ import annotations

import json

import pytest

from mcp_serve.cli.main import VERBS
from tests.cli.command_user import CommandUser
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home

VERBS_WITHOUT_ANSWER = {"demo": (), "completion": ("bash",), "serve": ()}
"""Verbs without a JSON answer."""

ANSWERING_VERBS = {
    "list": (),
    "show": (LONG_SESSION_ID,),
    "search": ("ports",),
    "routes": (),
    "stats": (),
    "prune": ("ghosts", "--plan-only"),
    "finalize": ("abandoned", "--plan-only"),
    "compress": (LONG_SESSION_ID, "--plan-only"),
    "edit": (FRESH_SESSION_ID, "--pin", "--plan-only"),
    "restore": (),
    "trash": ("list",),
    "log": (),
    "export": ("--out", "all.jsonl"),
    "import": ("some.jsonl", "--plan-only"),
    "copy": ("shelf", "copied.db", "--plan-only"),
    "install": (),
    "uninstall": ("zed",),
    "doctor": ("--token",),
    "keep": (),
    "migrate": (),
}


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    session = {"id": "s", "source": "cli", "started_at": 1, "messages": []}
    (tmp_path / "some.jsonl").write_text(f"{json.dumps(session)}\n")
    return CommandUser(forks, tmp_path, build_home(tmp_path / "shelf"))


def test_every_verb_has_known_json_support():
    assert (
        VERBS_WITHOUT_ANSWER.keys() | ANSWERING_VERBS.keys() | {"watch", "resume"} == VERBS.keys()
    )


@pytest.mark.requirement("verbs:json-everywhere")
@pytest.mark.parametrize("verb", ANSWERING_VERBS)
def test_json_option_works_on_both_sides(person, verb):
    for words in (
        ("--json", verb, *ANSWERING_VERBS[verb]),
        (verb, *ANSWERING_VERBS[verb], "--json"),
    ):
        result = person.run(*words)
        assert result.code == 0, result.err
        assert isinstance(json.loads(result.out), dict)
        (person.folder / "all.jsonl").unlink(missing_ok=True)


@pytest.mark.requirement("verbs:json-everywhere")
@pytest.mark.parametrize("verb", VERBS_WITHOUT_ANSWER)
def test_json_option_is_refused_without_answer(person, verb):
    for words in (
        ("--json", verb, *VERBS_WITHOUT_ANSWER[verb]),
        (verb, *VERBS_WITHOUT_ANSWER[verb], "--json"),
    ):
        result = person.run(*words)
        assert (result.code, result.out) == (2, "")
        assert "--json" in result.err


def test_misplaced_options_are_refused(person):
    for words in (("--json",), ("--home", "x", "completion", "bash"), ("--store", "x", "demo")):
        assert person.run(*words).code == 2
    code, seen = person.sees(80, "--json")
    assert (code, "does not take --json" in seen) == (2, True)


@pytest.mark.requirement("verbs:json-everywhere")
def test_install_and_uninstall_answer_json(person):
    def answer(*words, code=0):
        completed = person.run(*words, "--json")
        assert completed.code == code, completed.err
        return json.loads(completed.out)

    states = {client["client"]: client["state"] for client in answer("install")["clients"]}
    assert states["cursor"] == "absent"
    assert "serve" in answer("install", "cursor", "--print")["text"]
    declined = answer("install", "cursor", code=5)
    assert (declined["outcome"], declined["copy"]) == ("declined", None)
    result = answer("install", "cursor", "--yes")
    assert (result["outcome"], result["client"], result["path"]) == (
        "applied",
        "cursor",
        declined["path"],
    )
    assert result["difference"] == declined["difference"]
    assert answer("install", "cursor", "--yes")["outcome"] == "nothing"
    assert answer("uninstall", "cursor", "--yes")["outcome"] == "applied"
    assert answer("uninstall", "cursor")["outcome"] == "nothing"
