"""Every verb distinguishes a missing home from an empty one and creates neither."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.cli.command_user import CommandUser
from tests.cli.homes import build_home
from tests.transcripts.trees import ClaudeTree

READING_VERBS = (
    *(("list",), ("search", "x"), ("show", "x"), ("stats",), ("routes",)),
    *(("log",), ("trash", "list"), ("restore",), ("export",)),
)
CHANGING_VERBS = (("prune",), ("finalize", "abandoned"), ("edit", "x", "--pin"), ("compress", "x"))
ALL_VERBS = [*READING_VERBS, *CHANGING_VERBS]


@pytest.fixture(name="at")
def _at(script):
    """Run a verb on a home with pipes."""
    return lambda home, *arguments: script("--home", str(home), *arguments)


def list_files(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.requirement("terminal:absent")
@pytest.mark.parametrize("verb", ALL_VERBS, ids=lambda verb: verb[0])
def test_every_verb_reports_named_missing_home(at, tmp_path, verb):
    before = list_files(tmp_path)
    for more in ((), ("--json",)):
        result = at(tmp_path / "none", *verb, *(more if verb[0] != "export" else ()))
        assert (result.code, result.out) == (3, "")
        assert f"there is no home in {tmp_path / 'none'} (--home): the f" in result.err
        assert "name another --home" in result.err
    assert list_files(tmp_path) == before


def make_empty_folder(path):
    path.mkdir()


def make_file(path):
    path.write_text("a list of things to buy")


def make_empty_database(path):
    path.mkdir()
    (path / "state.db").touch()


def make_profiles_only(path):
    build_home(path / "profiles" / "work", ghosts=1)


@pytest.mark.requirement("terminal:absent")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (make_empty_folder, "it has no state.db; start the agent once"),
        (make_file, "it is a file; a home is a folder with a state.db; name a folder"),
        (make_empty_database, "its state.db is empty; restore a backup"),
        (make_profiles_only, "it has no state.db"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_missing_home_error_names_cause_and_remedy(at, tmp_path, made, says):
    made(tmp_path / "h")
    result = at(tmp_path / "h", "list")
    assert (result.code, result.out) == (3, "")
    assert says in result.err


@pytest.mark.requirement("terminal:absent")
def test_missing_home_error_suggests_nearby_home(at, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    for given in (home.with_name("hom"), home / "sessions", home.parent):
        result = at(given, "list")
        assert result.code == 3
        assert result.err.rstrip().endswith(f"nearest: {home}")
    for given in (home / "profiles", home / "profiles" / "wrok"):
        assert str(work) in at(given, "list").err.partition("nearest: ")[2]


@pytest.mark.requirement("terminal:absent")
def test_empty_store_folder_is_missing_home(at, run, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    (home / "profiles" / "play").mkdir()
    assert at(work, "list").code == 0
    assert run("list", "--store", "hermes:work").code == 0
    assert run("list", "--all-profiles").code == 0
    result = run("list", "--store", "hermes:play")
    assert result.code == 3
    assert f"there is no home in {home / 'profiles' / 'play'} (--store hermes:play)" in result.err


def test_hermes_home_without_database_is_accepted(at, tmp_path):
    (tmp_path / "h" / "sessions").mkdir(parents=True)
    (tmp_path / "h" / "sessions" / "sessions.json").write_text("{}")
    result = at(tmp_path / "h", "routes")
    assert (result.code, result.err) == (0, "")


@pytest.mark.requirement("terminal:absent")
@pytest.mark.parametrize("verb", ALL_VERBS, ids=lambda verb: verb[0])
def test_every_verb_reports_lack_of_stores(script, tmp_path, verb):
    for more in ((), ("--json",)):
        result = script(*verb, *(more if verb[0] != "export" else ()))
        assert (result.code, result.out) == (3, "")
        assert "there is no home yet in" in result.err
        assert "and no transcripts of other agents" in result.err
        assert "mcp-sessions import FILE" in result.err
    assert not list((tmp_path / "user").iterdir())


def test_doctor_exits_alike_without_stores(script):
    assert script("doctor").code == 3


def test_changing_verb_needs_home_beside_transcripts(script, tmp_path):
    ClaudeTree(tmp_path / "user").write("one", ["hello", "hi"])
    assert script("list").code == 0
    for verb in (("prune",), ("finalize", "abandoned"), ("trash", "empty")):
        result = script(*verb)
        assert (result.code, "there is no home yet in" in result.err) == (3, True)


@pytest.mark.requirement("terminal:absent")
def test_import_creates_named_home(at, run, home, tmp_path):
    out = tmp_path / "sessions.jsonl"
    assert run("export", "--out", str(out)).code == 0
    new = tmp_path / "new"
    looked = at(new, "import", str(out), "--plan-only")
    assert f"The import creates a home in {new}: the folder does not exist." in looked.out
    assert "Nothing was changed. Import with" in looked.out
    assert not new.exists()
    assert at(new, "import", str(out), "--yes").code == 0
    assert at(new, "list").out == run("list").out
    shutil.rmtree(new)


def test_bare_command_reports_missing_home(forks, tmp_path):
    with CommandUser(forks, tmp_path, tmp_path / "none").at(80, "--home", "none") as result:
        assert result.end() == 0
    assert "none yet: the folder does not exist; start the agent once" in " ".join(
        result.screen.split()
    )


@pytest.mark.requirement("terminal:absent")
def test_bare_command_uses_named_store(person, home):
    work = build_home(home / "profiles" / "work", ghosts=1)
    with person("--store", "hermes:work") as seen:
        assert seen.end() == 0
    assert f"Sessions in {work} (--store hermes:work)" in "".join(seen.screen.split("\n"))
    with person("--store", "wrok") as seen:
        assert seen.end() == 3
    assert "no store 'wrok'" in seen.screen


def test_database_file_names_its_home(at, home, tmp_path):
    listed = at(home, "list", "--json").out
    assert at(home / "state.db", "list", "--json").out == listed
    own = tmp_path / "app"
    build_home(own, ghosts=1)
    (own / "state.db").rename(own / "agent.db")
    (own / "config.yaml").write_text("DEBUG: true\n")
    result = at(own / "agent.db", "list", "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["sessions"]
    assert "it has no state.db" in at(own, "list", "--json").err
    assert json.loads(at(own / "agent.db", "stats", "--json").out)["home"] == str(own / "agent.db")


def test_missing_database_file_is_reported(at, tmp_path):
    result = at(tmp_path / "agent.db", "list")
    assert (result.code, result.out) == (3, "")
    assert f"no home in {tmp_path / 'agent.db'} (--home): the file does not exist" in result.err
    assert not list(tmp_path.glob("agent.db*"))
