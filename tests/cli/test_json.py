"""`--json` stands before or behind every verb: it is answered, or refused in both places."""

from __future__ import annotations

import json

import pytest

from mcp_serve.cli.main import VERBS
from tests.cli.at_terminal import CommandUser
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home

NO_ANSWER = {"demo": (), "completion": ("bash",), "serve": ()}
"""What a script has no answer of."""

ANSWERED = {
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
    "install": (),
    "uninstall": ("zed",),
    "doctor": ("--token",),
}


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    session = {"id": "s", "source": "cli", "started_at": 1, "messages": []}
    (tmp_path / "some.jsonl").write_text(f"{json.dumps(session)}\n")
    return CommandUser(forks, tmp_path, build_home(tmp_path / "shelf"))


def test_every_verb_is_of_one_kind():
    assert NO_ANSWER.keys() | ANSWERED.keys() | {"watch"} == VERBS.keys()


@pytest.mark.requirement("verbs:json-everywhere")
@pytest.mark.parametrize("verb", ANSWERED)
def test_json_is_answered_wherever_it_stands(person, verb):
    for words in (("--json", verb, *ANSWERED[verb]), (verb, *ANSWERED[verb], "--json")):
        done = person.run(*words)
        assert done.code == 0, done.err
        assert isinstance(json.loads(done.out), dict)
        (person.folder / "all.jsonl").unlink(missing_ok=True)


@pytest.mark.requirement("verbs:json-everywhere")
@pytest.mark.parametrize("verb", NO_ANSWER)
def test_where_there_is_no_answer_it_is_refused_wherever_it_stands(person, verb):
    for words in (("--json", verb, *NO_ANSWER[verb]), (verb, *NO_ANSWER[verb], "--json")):
        done = person.run(*words)
        assert (done.code, done.out) == (2, "")
        assert "--json" in done.err


def test_the_command_alone_and_a_home_of_a_verb_without_one_are_refused(person):
    for words in (("--json",), ("--home", "x", "completion", "bash"), ("--profile", "x", "demo")):
        assert person.run(*words).code == 2
    code, seen = person.sees(80, "--json")
    assert (code, "takes no --json" in seen) == (2, True)


@pytest.mark.requirement("verbs:json-everywhere")
def test_a_client_is_told_and_forgets_again_for_a_script(person):
    def answer(*words, code=0):
        done = person.run(*words, "--json")
        assert done.code == code, done.err
        return json.loads(done.out)

    states = {each["client"]: each["state"] for each in answer("install")["clients"]}
    assert states["cursor"] == "absent"
    assert "serve" in answer("install", "cursor", "--print")["text"]
    declined = answer("install", "cursor", code=5)
    assert (declined["outcome"], declined["copy"]) == ("declined", None)
    told = answer("install", "cursor", "--yes")
    assert (told["outcome"], told["client"], told["path"]) == (
        "applied",
        "cursor",
        declined["path"],
    )
    assert told["difference"] == declined["difference"]
    assert answer("install", "cursor", "--yes")["outcome"] == "nothing"
    assert answer("uninstall", "cursor", "--yes")["outcome"] == "applied"
    assert answer("uninstall", "cursor")["outcome"] == "nothing"
