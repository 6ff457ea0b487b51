"""The checks of `doctor` on clients: their files, and the servers that they start."""

from __future__ import annotations

import json

import pytest

from tests.cli.command_user import (
    COMMAND,
    find_processes,
)
from tests.cli.doctor.conftest import write_client_configuration, write_program
from tests.cli.homes import build_home
from tests.thorough import mark_thorough


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
    # Only a program that never ends its errors is waited for. Nothing else depends on the time.
    code, found = look("--timeout", "2" if says.startswith("last line") else "60")
    assert code == 1
    assert says in found["handshake"][0]["says"]
    assert "\n" not in found["handshake"][0]["says"]
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
