"""The checks of `doctor` on homes in every state. They change nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from session_core import Ledger, SessionDB, StateFolder
from tests.cli.doctor.conftest import NO_TOKEN, read_tree
from tests.homes import make_hermes_database


@pytest.mark.requirement("terminal:doctor")
def test_findings_name_fixing_command(look_in, sick):
    before = read_tree(sick.parent)
    found = look_in("--home", str(sick))
    count, *findings = found["sessions"]
    assert (count["total"], count["state"]) == (250, "ok")
    assert {finding["code"]: finding["next"] for finding in findings} == {
        "abandoned": "mcp-sessions finalize abandoned",
        "old_sessions": "mcp-sessions prune sessions",
        "ghosts": "mcp-sessions prune ghosts",
        "dangling_routes": "mcp-sessions prune routes",
    }
    assert read_tree(sick.parent) == before


@pytest.mark.requirement("terminal:doctor")
def test_missing_named_home_is_failure(look_in, user):
    (user / "filled").mkdir()
    (user / "filled" / "state.db").touch()
    for name, says, to_do in (
        ("none", "the folder does not exist", "mcp-sessions import FILE"),
        ("filled", "state.db is empty", "restore a backup"),
    ):
        (found,) = look_in("--home", str(user / name))["sessions"]
        assert found["state"] == "failure"
        assert says in found["says"]
        assert to_do in found["next"]
    assert not (user / "none").exists()


@pytest.mark.requirement("terminal:doctor")
@pytest.mark.parametrize("damage", ["no database", "a folder", "torn"])
def test_unreadable_database_is_failure_with_advice(look_in, sick, tmp_path, damage):
    home = tmp_path / "home"
    home.mkdir()
    if damage == "a folder":
        (home / "state.db").mkdir()
    else:
        whole = b"this is no database at all" * 400
        if damage == "torn":
            whole = (sick / "state.db").read_bytes()
            whole = whole[:4096] + bytes(200_000) + whole[204_096:]
        (home / "state.db").write_bytes(whole)
    before = read_tree(home)
    found = look_in("--home", str(home))
    wrong = [session for session in found["sessions"] if session["state"] == "failure"]
    assert wrong
    assert all(item["next"] for item in wrong)
    assert read_tree(home) == before


def test_broken_route_file_is_reported_and_kept(look_in, tmp_path):
    home = tmp_path / "home"
    with SessionDB(home / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
    (home / "sessions").mkdir()
    (home / "sessions" / "sessions.json").write_text('{"half": ')
    before = read_tree(home)
    found = look_in("--home", str(home))
    assert "broken_entries" in [session.get("code") for session in found["sessions"]]
    assert read_tree(home) == before


def test_every_store_is_checked_despite_damage(look_in, tmp_path):
    root = tmp_path / "home"
    with SessionDB(root / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
    for name in ("play", "work"):
        (root / "profiles" / name).mkdir(parents=True)
    (root / "profiles" / "work" / "state.db").write_bytes(b"no database" * 999)
    found = look_in("--home", str(root), "--all-profiles")
    states = {
        name: found[f"sessions {name}"][0]["state"]
        for name in ("hermes", "hermes:play", "hermes:work")
    }
    assert states == {"hermes": "ok", "hermes:play": "warning", "hermes:work": "failure"}
    assert "hermes:play, hermes:work" in found["home"][0]["says"]


@pytest.mark.requirement("faces:active-profile")
@pytest.mark.parametrize(("active", "told"), [("work", True), ("default", False), (None, False)])
def test_active_hermes_profile_is_reported(look_in, tmp_path, active, told):
    root = tmp_path / "home"
    for path, session in ((root, "s1"), (root / "profiles" / "work", "s2")):
        with SessionDB(path / "state.db") as db:
            db.append_message(session, "user", "hello", create={"source": "cli"})
    with SessionDB(root / "state.db") as db:
        db.append_message("s3", "user", "hello", create={"source": "cli"})
    if active is not None:
        (root / "active_profile").write_text(f"{active}\n")
    found = look_in("--home", str(root))
    assert found["home"][0].get("active_profile") == active
    assert (
        "the active profile of Hermes is work; serve it with --store hermes:work"
        in found["home"][0]["says"]
    ) == told
    assert found["sessions"][0]["total"] == 2


def test_open_state_folder_is_reported_with_chmod(look_in, tmp_path, env):
    root = tmp_path / "home"
    with SessionDB(root / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
        with Ledger(StateFolder(db.path, root=tmp_path / "person" / "state")) as ledger:
            ledger.pins.set_pins({"s1": True})
            folder = ledger.folder.make()
    found = look_in("--home", str(root))
    assert found["state folder"][0]["state"] == "ok"
    folder.chmod(0o755)
    found = look_in("--home", str(root))
    assert found["state folder"][0]["next"] == f"chmod 700 {folder}"


def test_impossible_state_folder_is_failure(look_in, user):
    (user / "state").write_text("a file")
    make_hermes_database(user / "hermes" / "state.db")
    found = look_in("--home", str(user / "hermes"))
    assert found["state folder"][0]["state"] == "failure"


def test_state_folder_is_shown(look_in, run, user, sick):
    assert str(sick / ".mcp-sessions") in look_in("--home", str(sick))["state folder"][0]["says"]
    run("--token", "--home", str(sick))
    found = look_in("--home", str(sick))["state folder"][0]
    assert (found["state"], found["path"]) == ("ok", str(sick / ".mcp-sessions" / "state.db"))
    shutil.rmtree(sick / ".mcp-sessions")
    (sick / ".mcp-sessions").write_text("a file")
    found = look_in("--home", str(sick))["state folder"][0]
    (sick / ".mcp-sessions").unlink()
    assert found["state"] == "failure"
    assert "MCP_SESSIONS_STATE" not in found["next"]


@pytest.mark.requirement("terminal:doctor")
def test_invalid_token_is_failure(look_in, run, user):
    assert look_in(**NO_TOKEN)["state folder"][0]["state"] == "failure"
    assert not (user / "state").exists()
    run("--token")
    assert "doctor --token" in look_in()["token"][0]["says"]


def test_live_gateway_is_reported(look_in, sick):
    argv = ["hermes-gateway", "-c", "input()"]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE) as process:
        (sick / "gateway.pid").write_text(json.dumps({"pid": process.pid}))
        found = look_in("--home", str(sick))
        process.stdin.close()
    (sick / "gateway.pid").unlink()
    assert (found["gateway"][0]["live"], found["gateway"][0]["pid"]) == (True, process.pid)
