"""The verb `doctor`: homes and clients in every state; it changes nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys

import pytest

from mcp_serve.cli import sample_home
from session_core import Ledger, SessionDB, StateFolder
from tests.cli.command_user import (
    COMMAND,
    CTRL_C,
    STYLE,
    WIDTHS,
    PseudoTerminal,
    find_processes,
    find_wide_lines,
    strip_style,
)
from tests.cli.fork_server import build_environment
from tests.cli.homes import build_home
from tests.homes import make_hermes_database
from tests.thorough import mark_thorough

CLIENT_FILES = {
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "claude-code": ".claude.json",
}
NO_TOKEN = {"MCP_SESSIONS_TOKEN": "short"}


def build_damaged_home(home):
    """Make a home with all the damage of the sample."""
    home.mkdir(parents=True)
    clock = sample_home.SampleClock()
    with SessionDB(home / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        sample_home.add_routes(home, db, clock)
    return home


@pytest.fixture(name="sick", scope="module")
def _sick(tmp_path_factory):
    return build_damaged_home(tmp_path_factory.mktemp("sick") / "home")


@pytest.fixture(name="user")
def _user(tmp_path):
    path = tmp_path / "person"
    path.mkdir()
    return path


@pytest.fixture(name="env")
def _env(user):
    ours = {"PYTHONIOENCODING": "utf-8", "MCP_SESSIONS_STATE": str(user / "state")}
    return build_environment(user) | ours


@pytest.fixture(name="serve")
def _serve(forks):
    """The command line of a server."""
    return [str(forks.command), "serve"]


@pytest.fixture(name="run")
def _run(forks, env, user):
    return lambda *arguments, **more: forks.run(["doctor", *arguments], env | more, user)


@pytest.fixture(name="screen")
def _screen(forks, env, user):
    """Start the doctor in a terminal."""
    given = {"env": env | {"TERM": "xterm"}, "folder": user}
    return lambda *arguments, **more: PseudoTerminal(forks, "doctor", *arguments, **given, **more)


@pytest.fixture(name="look_in")
def _look_in(look, user):
    """Run the checks without starting servers; return them by subject."""
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    return lambda *arguments, **more: look(*arguments, **more)[1]


@pytest.fixture(name="look")
def _look(run):
    """Run it with `--json`; return its exit code and the checks by subject."""

    def look(*arguments, **more):
        done = run(*arguments, "--json", **more)
        assert done.err == ""
        found = {}
        for each in json.loads(done.out)["checks"]:
            found.setdefault(each["about"], []).append(each)
        return done.code, found

    return look


def write_client_configuration(user, name, *command):
    """Write a command into the configuration of a client."""
    path = user / CLIENT_FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"command": command[0], "args": [*command[1:]]}
    path.write_text(json.dumps({"mcpServers": {"sessions": entry}}))


def write_program(user, name, text):
    """Create a program whose arguments look like our command."""
    path = user / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path), "mcp-sessions"


def read_tree(folder):
    """Return the contents of every file except those of SQLite next to a database."""
    return {
        str(path.relative_to(folder)): path.is_file() and hashlib.sha256(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if not path.name.endswith(("-wal", "-shm"))
    }


@pytest.mark.requirement("terminal:doctor")
def test_doctor_advises_on_missing_home(look, user):
    code, found = look()
    assert code == 3
    assert (found["sessions"][0]["state"], found["clients"][0]["state"]) == ("warning",) * 2
    assert "start the agent once" in found["sessions"][0]["next"]
    assert found["clients"][0]["next"] == "mcp-sessions install"
    (shaken,) = found["handshake"]
    assert (shaken["state"], shaken["tools"]) == ("ok", 11)
    assert shaken["seconds"] > 0
    assert read_tree(user) == {}


@pytest.mark.requirement("terminal:doctor")
def test_failed_check_has_next_step(look, sick, user):
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    (user / ".claude.json").write_text('{"mcpServers": {')
    code, found = look("--home", str(sick), **NO_TOKEN)
    assert code == 1
    wrong = [each for some in found.values() for each in some if each["state"] != "ok"]
    assert {"sessions", "claude-code", "handshake", "state folder"} <= {
        each["about"] for each in wrong
    }
    assert [each for each in wrong if not each.get("next")] == []


@pytest.mark.requirement("terminal:doctor")
def test_findings_name_fixing_command(look_in, sick):
    before = read_tree(sick.parent)
    found = look_in("--home", str(sick))
    count, *findings = found["sessions"]
    assert (count["total"], count["state"]) == (250, "ok")
    assert {each["code"]: each["next"] for each in findings} == {
        "abandoned": "mcp-sessions finalize abandoned",
        "old_sessions": "mcp-sessions prune sessions",
        "ghosts": "mcp-sessions prune ghosts",
        "dangling_routes": "mcp-sessions prune routes",
    }
    assert read_tree(sick.parent) == before


@pytest.mark.thorough  # a client waits 10 seconds for an answer
@pytest.mark.requirement("terminal:handshake")
def test_handshake_failures_are_distinguished(look, serve, sick, user):
    write_client_configuration(user, "cursor", *serve, "--home", str(sick))
    write_client_configuration(user, "gemini", *write_program(user, "hangs", "sleep 987"))
    write_client_configuration(
        user, "qwen", *write_program(user, "loud", "echo welcome to my shell; exec cat")
    )
    write_client_configuration(
        user, "copilot", *write_program(user, "dies", "echo no such module >&2; exit 3")
    )
    write_client_configuration(user, "claude-code", str(user / "gone" / "mcp-sessions"), "serve")
    code, found = look("--home", str(sick), "--timeout", "10")
    assert code == 1
    shaken = {each["clients"][0]: each for each in found["handshake"]}
    assert shaken["cursor"]["state"] == "ok"
    assert shaken["cursor"]["home"] == str(sick)
    for name, says in {
        "gemini": "no answer within 10 s",
        "qwen": "not MCP: welcome to my shell",
        "copilot": "it exited without an answer; last line of its output: no such module",
        "claude-code": "cannot be started: No such file",
    }.items():
        assert says in shaken[name]["says"]
        assert shaken[name]["state"] == "failure"
        assert shaken[name]["next"] == f"mcp-sessions install {name}"
    assert find_processes(str(user)) == []


@pytest.mark.requirement("terminal:handshake")
def test_hanging_server_is_killed(look, user):
    write_client_configuration(
        user,
        "cursor",
        *write_program(user, "stays", "trap '' TERM HUP INT; while :; do sleep 1; done"),
    )
    code, found = look("--timeout", "1")
    assert code == 1
    assert "no answer within 1 s" in found["handshake"][0]["says"]
    assert find_processes(str(user)) == []


@pytest.mark.requirement("terminal:handshake")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yes", "its output is not MCP: y"),
        ("while :; do echo y >&2; sleep 0.1; done", "last line of its output: y"),
        mark_thorough(("yes >&2", "last line of its output: y")),
        ("printf '\\377\\376\\n'; cat", "its output is not MCP and not text"),
        ('read x; echo \'{"jsonrpc":"2.0","id":1,"result":{}}\'; cat', "Field required"),
        ("exec >&-; cat", "it exited without an answer"),
    ],
)
def test_wrong_program_is_reported_in_a_line(look, user, text, says):
    write_client_configuration(user, "cursor", *write_program(user, "odd", text))
    # Only what never ends its errors is waited for; nothing else depends on the time.
    code, found = look("--timeout", "2" if says.startswith("last line") else "60")
    assert code == 1
    assert says in found["handshake"][0]["says"]
    assert "\n" not in found["handshake"][0]["says"]
    assert find_processes(str(user)) == []


def test_interrupted_doctor_leaves_no_process(screen, user):
    write_client_configuration(user, "cursor", *write_program(user, "hangs", "sleep 987"))
    with screen("--timeout", "60") as seen:
        seen.until("other clients")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert find_processes(str(user)) == []


@pytest.mark.requirement("terminal:handshake")
def test_client_with_different_home_is_warned(look, serve, sick, user):
    write_client_configuration(user, "cursor", *serve)
    _, found = look(MCP_SESSIONS_HOME=str(sick))
    (shaken,) = found["handshake"]
    assert shaken["state"] == "warning"
    assert shaken["next"] == f"mcp-sessions install cursor --home {sick}"
    other = build_home(user / "other", ghosts=0)
    write_client_configuration(user, "cursor", *serve, "--home", str(other))
    _, found = look(MCP_SESSIONS_HOME=str(sick))
    assert found["handshake"][0]["state"] == "warning"
    assert "its entry names that home" in found["handshake"][0]["says"]


def test_absent_clients_share_a_line(look_in, user):
    (user / ".claude").mkdir()
    found = look_in()
    absent = found["other clients"][0]
    assert absent["says"].startswith("not installed: claude-desktop, vscode, codex")
    assert absent["absent"] == absent["says"].removeprefix("not installed: ").split(", ")
    assert found["claude-code"][0]["next"] == "mcp-sessions install claude-code"
    assert "vscode" not in found


def test_shared_client_command_is_started_once(look, user):
    for name in ("cursor", "qwen"):
        write_client_configuration(user, name, *COMMAND, "serve")
    _, found = look()
    (shaken,) = found["handshake"]
    assert shaken["clients"] == ["cursor", "qwen"]


@pytest.mark.requirement("terminal:handshake")
def test_project_configuration_is_reported_but_never_started(look_in, user):
    program, name = write_program(user, "theirs", f"touch {user / 'began'}")
    entry = {"command": program, "args": [name]}
    (user / ".mcp.json").write_text(json.dumps({"mcpServers": {"sessions": entry}}))
    found = look_in()
    assert "(this project); not started by doctor" in found["claude-code"][0]["says"]
    assert [each["clients"] for each in found["handshake"]] == [["cursor"]]
    assert not (user / "began").exists()


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
    wrong = [each for each in found["sessions"] if each["state"] == "failure"]
    assert wrong
    assert all(each["next"] for each in wrong)
    assert read_tree(home) == before


def test_broken_route_file_is_reported_and_kept(look_in, tmp_path):
    home = tmp_path / "home"
    with SessionDB(home / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
    (home / "sessions").mkdir()
    (home / "sessions" / "sessions.json").write_text('{"half": ')
    before = read_tree(home)
    found = look_in("--home", str(home))
    assert "broken_entries" in [each.get("code") for each in found["sessions"]]
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


def test_unknown_store_exits_as_unknown_id(run, user):
    done = run("--store", "work")
    assert (done.code, done.out) == (3, "")


@pytest.mark.parametrize("width", WIDTHS)
def test_doctor_lines_fit_terminal(screen, sick, user, width):
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    with screen("--home", str(sick), columns=width) as seen:
        assert seen.end() == 1
    assert find_wide_lines(seen.seen, width) == []
    assert STYLE.search(seen.seen)
    said = strip_style(seen.seen)
    assert "\x1b" not in said
    assert re.search(r"^✔ ok +home ", said, re.MULTILINE)
    assert re.search(r"^✘ failure +handshake ", said, re.MULTILINE)
    assert re.search(
        r"^! warning +sessions .*\n( .*\n)* +-> mcp-sessions prune ghosts", said, re.MULTILINE
    )
    assert said.rstrip().endswith("warnings.")


def test_doctor_has_no_style_in_pipe(run):
    done = run()
    assert (done.code, done.err) == (3, "")  # there is no home
    assert "\x1b" not in done.out


def test_doctor_help_has_examples(run):
    assert "mcp-sessions doctor --json" in run("--help").out.partition("examples:")[2]
