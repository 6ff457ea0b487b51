"""Replacing files: never through a link that leads out, never a FIFO, never another user's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mcp_serve.http.auth import TOKEN_VARIABLE, load_or_create_token
from session_core import Denied, SessionDB, StateFolder
from tests.cli.fork_server import build_environment
from tests.routing.chats import make_stored_entry


@pytest.fixture(name="run")
def _run(forks, tmp_path):
    """Run a verb as a script does, with its own home directory."""
    user = os.environ["HOME"]
    return lambda *arguments: forks.run(arguments, build_environment(user), str(tmp_path), "")


@pytest.fixture(name="outside")
def _outside(tmp_path):
    """Return a file outside of every home that must not change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    file = folder / "target.json"
    file.write_text('{"theirs": 1}')
    file.chmod(0o644)
    yield file
    assert file.read_text() == '{"theirs": 1}'
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in folder.iterdir()] == ["target.json"]


@pytest.fixture(name="token_path")
def _token_path(home_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    return StateFolder(home_path / "state.db").make() / "token"


@pytest.mark.requirement("hostile:whole-files")
def test_prune_routes_writes_through_no_link(run, tmp_path, outside):
    home = tmp_path / "home"
    (home / "sessions").mkdir(parents=True)
    with SessionDB(home / "state.db") as db:
        key = "agent:main:telegram:dm:1"
        text = json.dumps(make_stored_entry("gone", key))
        db.routes.save_entry(key, text, scope=str(home / "sessions"), expect=None)
        db.append_message("one", "user", "hello", create={"source": "cli"})
    (home / "sessions" / "sessions.json").symlink_to(outside)
    result = run("prune", "routes", "--yes", "--home", str(home))
    assert "is a link to a file outside of" in result.err + result.out, (result.out, result.err)
    assert "Traceback" not in result.err


@pytest.mark.requirement("hostile:whole-files")
@pytest.mark.parametrize("kind", ["nothing", "fifo", "folder"])
def test_odd_token_file_is_refused(home_path, token_path, tmp_path, kind):
    if kind == "nothing":
        token_path.symlink_to(tmp_path / "made")
    elif kind == "fifo":
        os.mkfifo(token_path)
    else:
        token_path.mkdir()
    with pytest.raises(Denied, match=r"broken link|not a regular file"):
        load_or_create_token(StateFolder(home_path / "state.db"))
    assert not (tmp_path / "made").exists()


@pytest.mark.requirement("hostile:whole-files")
def test_page_replaces_no_link_target(run, tmp_path, outside):
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as db:
        db.append_message("one", "user", "hello", create={"source": "cli"})
    (tmp_path / "page.html").symlink_to(outside)
    result = run("stats", "--html", str(tmp_path / "page.html"), "--yes", "--home", str(home))
    assert (result.code, "is a link to a file outside of" in result.err) == (1, True), result.err


@pytest.mark.requirement("hostile:whole-files")
def test_export_replaces_no_link_target(run, tmp_path, outside):
    home = tmp_path / "home"
    home.mkdir()
    with SessionDB(home / "state.db") as db:
        db.append_message("one", "user", "hello", create={"source": "cli"})
    (tmp_path / "all.jsonl").symlink_to(outside)
    result = run("export", "--out", str(tmp_path / "all.jsonl"), "--home", str(home))
    assert (result.code, "exists already" in result.err) == (1, True), result.err


@pytest.mark.requirement("hostile:whole-files")
def test_client_configuration_as_fifo_is_refused(run):
    path = Path(os.environ["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir()
    os.mkfifo(path)
    result = run("install", "cursor", "--yes")
    assert (result.code, "not a regular file" in result.err) == (1, True), result.err
    assert stat.S_ISFIFO(path.lstat().st_mode)
