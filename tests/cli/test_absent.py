"""A home that is not there is told from an empty one, by every verb, and none is made by asking."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.cli.at_terminal import CommandUser
from tests.cli.homes import build_home

READING = (
    *(("list",), ("search", "x"), ("show", "x"), ("stats",), ("routes",)),
    *(("log",), ("trash", "list"), ("restore",), ("export",)),
)
CHANGING = (("prune",), ("finalize", "abandoned"), ("edit", "x", "--pin"), ("compress", "x"))
EVERY = [*READING, *CHANGING]


@pytest.fixture(name="at")
def _at(script):
    """Run a verb on a home as a script does."""
    return lambda home, *arguments: script("--home", str(home), *arguments)


def files(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.requirement("terminal:absent")
@pytest.mark.parametrize("verb", EVERY, ids=lambda verb: verb[0])
def test_every_verb_says_that_a_named_home_is_not_there_and_makes_none(at, tmp_path, verb):
    before = files(tmp_path)
    for more in ((), ("--json",)):
        done = at(tmp_path / "none", *verb, *(more if verb[0] != "export" else ()))
        assert (done.code, done.out) == (3, "")
        assert f"there is no home in {tmp_path / 'none'} (--home): there is no such" in done.err
        assert "name another --home" in done.err
    assert files(tmp_path) == before


def empty_folder(path):
    path.mkdir()


def file(path):
    path.write_text("a list of things to buy")


def empty_database(path):
    path.mkdir()
    (path / "state.db").touch()


def profiles_alone(path):
    build_home(path / "profiles" / "work", ghosts=1)


@pytest.mark.requirement("terminal:absent")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (empty_folder, "no state.db is in it; start the agent once"),
        (file, "it is a file, and a home is a folder with a state.db; name a folder"),
        (empty_database, "its state.db has no bytes, and is no database; put a backup in its"),
        (profiles_alone, "no state.db is in it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_there_instead_of_a_home_is_said_with_what_to_do(at, tmp_path, made, says):
    made(tmp_path / "h")
    done = at(tmp_path / "h", "list")
    assert (done.code, done.out) == (3, "")
    assert says in done.err


@pytest.mark.requirement("terminal:absent")
def test_the_home_that_may_have_been_meant_is_named(at, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    for given in (home.with_name("hom"), home / "sessions", home.parent):
        done = at(given, "list")
        assert done.code == 3
        assert done.err.rstrip().endswith(f"nearest: {home}")
    for given in (home / "profiles", home / "profiles" / "wrok"):
        assert str(work) in at(given, "list").err.partition("nearest: ")[2]


@pytest.mark.requirement("terminal:absent")
def test_the_folder_of_a_profile_is_a_home_and_one_that_is_empty_is_none(at, run, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    (home / "profiles" / "play").mkdir()
    assert at(work, "list").code == 0
    assert run("list", "--profile", "work").code == 0
    assert run("list", "--all-profiles").code == 0
    done = run("list", "--profile", "play")
    assert done.code == 3
    assert f"there is no home in {home / 'profiles' / 'play'} (--profile play)" in done.err


def test_a_home_of_hermes_whose_database_is_not_there_yet_is_one(at, tmp_path):
    (tmp_path / "h" / "sessions").mkdir(parents=True)
    (tmp_path / "h" / "sessions" / "sessions.json").write_text("{}")
    done = at(tmp_path / "h", "routes")
    assert (done.code, done.err) == (0, "")


@pytest.mark.requirement("terminal:absent")
def test_where_none_was_named_a_script_gets_an_empty_list_and_a_person_what_to_do(script, tmp_path):
    done = script("list", "--json")
    assert (done.code, json.loads(done.out)["sessions"]) == (0, [])
    for verb in READING[:-1]:
        if verb[0] != "show":
            done = script(*verb)
            assert (done.code, done.err) == (0, "")
            said = " ".join(done.out.split())
            assert "There is no home yet in" in said
            assert "mcp-sessions import FILE" in said
    assert not list((tmp_path / "user").iterdir())


@pytest.mark.parametrize(
    "verb", [["prune"], ["finalize", "abandoned"], ["trash", "empty"], ["export"]]
)
def test_what_changes_something_says_so_too_and_makes_nothing(script, tmp_path, verb):
    done = script(*verb)
    assert (done.code, (done.out + done.err).count("There is no home yet in")) == (0, 1)
    assert not list((tmp_path / "user").iterdir())


@pytest.mark.requirement("terminal:absent")
def test_what_comes_in_begins_a_home_where_one_was_named(at, run, home, tmp_path):
    out = tmp_path / "sessions.jsonl"
    assert run("export", "--out", str(out)).code == 0
    new = tmp_path / "new"
    looked = at(new, "import", str(out), "--plan-only")
    assert f"A home begins with them in {new}: there is no such folder." in looked.out
    assert "Nothing was changed. Do it by" in looked.out
    assert not new.exists()
    assert at(new, "import", str(out), "--yes").code == 0
    assert at(new, "list").out == run("list").out
    shutil.rmtree(new)


def test_the_bare_command_says_so_too(forks, tmp_path):
    with CommandUser(forks, tmp_path, tmp_path / "none").at(80, "--home", "none") as seen:
        assert seen.end() == 0
    assert "none yet: there is no such folder; start the agent once" in " ".join(
        seen.screen.split()
    )


@pytest.mark.requirement("terminal:absent")
def test_the_bare_command_is_about_the_profile_that_is_asked_for(person, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    with person("--profile", "work") as seen:
        assert seen.end() == 0
    assert f"Sessions in {work} (--profile work)" in "".join(seen.screen.split("\n"))
    with person("--profile", "wrok") as seen:
        assert seen.end() == 3
    assert "no profile 'wrok'" in seen.screen


def test_database_file_names_its_home(at, home, tmp_path):
    listed = at(home, "list", "--json").out
    assert at(home / "state.db", "list", "--json").out == listed
    own = tmp_path / "app"
    build_home(own, ghosts=1)
    (own / "state.db").rename(own / "agent.db")
    (own / "config.yaml").write_text("DEBUG: true\n")
    done = at(own / "agent.db", "list", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["sessions"]
    assert "no state.db is in it" in at(own, "list", "--json").err
    assert json.loads(at(own / "agent.db", "stats", "--json").out)["home"] == str(own / "agent.db")


def test_missing_database_file_is_reported(at, tmp_path):
    done = at(tmp_path / "agent.db", "list")
    assert (done.code, done.out) == (3, "")
    assert f"no home in {tmp_path / 'agent.db'} (--home): there is no such file" in done.err
    assert not list(tmp_path.glob("agent.db*"))
