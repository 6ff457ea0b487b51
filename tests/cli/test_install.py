"""Clients are told of the server: their own files, of every form, changed and put back."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_serve.cli.clients.places import CLIENTS, Machine
from mcp_serve.cli.main import main

NAMES = [client.name for client in CLIENTS]

FORMS = {
    "plain": b'{\n  "theme": "dark"\n}\n',
    "comments": b'// settings\n{\n\t"theme": "dark", // at night\n\t/* "old": 1, */\n}\n',
    "byte-order mark": b'\xef\xbb\xbf{\r\n    "theme": "dark"\r\n}\r\n',
    "one line": b'{"theme":"dark"}',
}
TOML = (
    b'# models\nmodel = "o"  # mine\n\n[mcp_servers.tickets]\ncommand = "x"\n\n[tui]\ncolour = 1\n'
)


@pytest.fixture(name="user")
def _user(tmp_path):
    return tmp_path / "person"


@pytest.fixture(name="run")
def _run(user):
    """Run the command with an empty user folder."""
    user.mkdir()
    (user / "project").mkdir()
    env = {"HOME": str(user), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"}

    def run(*arguments, **more):
        return subprocess.run(
            [sys.executable, "-m", "mcp_serve.cli.main", *arguments],
            env=env | more,
            cwd=user / "project",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


def file_of(name, user):
    client = next(each for each in CLIENTS if each.name == name)
    return client.user(Machine(user=user, env={}))


def written(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_client_without_a_file_gets_one_and_uninstall_takes_it_away(run, user, name):
    path = file_of(name, user)
    done = run("install", name, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("uninstall", name, "--yes").returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "codex"])
def test_a_file_with_other_things_in_it_keeps_them_to_the_byte(monkeypatch, user, name, form):
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME", "APPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(user))
    path = written(file_of(name, user), FORMS[form])
    assert main(["install", name, "--yes"]) == 0
    assert path.read_bytes() != FORMS[form]
    assert main(["uninstall", name, "--yes"]) == 0
    assert path.read_bytes() == FORMS[form]


def test_toml_keeps_its_comments_its_order_and_its_other_servers(run, user):
    path = written(file_of("codex", user), TOML)
    assert run("install", "codex", "--yes").returncode == 0
    text = path.read_text()
    assert "[mcp_servers.sessions]" in text
    for line in TOML.decode().splitlines():
        assert line in text
    assert run("uninstall", "codex", "--yes").returncode == 0
    assert path.read_bytes().strip() == TOML.strip()


def test_twice_is_the_same_as_once(run, user):
    path = file_of("cursor", user)
    run("install", "cursor", "--yes")
    once = path.read_bytes()
    done = run("install", "cursor")
    assert done.returncode == 0
    assert "has it already" in done.stdout
    assert path.read_bytes() == once


def test_what_somebody_added_to_the_entry_stays_where_the_rest_is_renewed(run, user):
    path = file_of("gemini", user)
    run("install", "gemini", "--yes")
    says = json.loads(path.read_text())
    says["mcpServers"]["sessions"]["timeout"] = 5000
    path.write_text(json.dumps(says))
    assert run("install", "gemini", "--read-only", "--yes").returncode == 0
    entry = json.loads(path.read_text())["mcpServers"]["sessions"]
    assert entry["timeout"] == 5000
    assert entry["args"][-1] == "--read-only"


def test_the_file_as_it_was_is_kept_beside_it(run, user):
    path = written(file_of("zed", user), FORMS["comments"])
    path.chmod(0o644)
    run("install", "zed", "--yes")
    kept = path.with_name("settings.json.before-mcp-sessions")
    assert kept.read_bytes() == FORMS["comments"]
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_link_stays_a_link(run, user):
    real = written(user / "dotfiles" / "mcp.json", FORMS["plain"])
    path = file_of("cursor", user)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    assert run("install", "cursor", "--yes").returncode == 0
    assert path.is_symlink()
    assert "sessions" in json.loads(real.read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cursor", b'{"mcpServers": {'),
        ("cursor", b'{"mcpServers": []}'),
        ("cursor", b"[]"),
        ("cursor", '{"ü": 1}'.encode("utf-16")),
        ("codex", b"[mcp_servers\n"),
        ("codex", b"mcp_servers = 3\n"),
    ],
)
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_what_is_half_written_or_of_another_form_is_left_alone(run, user, name, data, verb):
    path = written(file_of(name, user), data)
    done = run(verb, name, "--yes")
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_read_only_is_left_alone(run, user):
    path = written(file_of("cursor", user), FORMS["plain"])
    path.chmod(0o444)
    done = run("install", "cursor", "--yes")
    assert done.returncode == 1
    assert "read-only" in done.stderr
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_another_program_of_that_name_is_not_touched(run, user, verb):
    data = b'{"mcpServers": {"sessions": {"command": "else"}}}'
    path = written(file_of("cursor", user), data)
    done = run(verb, "cursor", "--yes")
    assert done.returncode == 4
    assert "--name" in done.stderr
    assert path.read_bytes() == data


def test_with_a_name_of_its_own_it_stands_beside_another(run, user):
    path = written(file_of("cursor", user), b'{"mcpServers": {"sessions": {"command": "else"}}}')
    assert run("install", "cursor", "--name", "mine", "--yes").returncode == 0
    assert set(json.loads(path.read_text())["mcpServers"]) == {"sessions", "mine"}


def test_without_a_terminal_and_without_yes_nothing_is_changed(run, user):
    done = run("install", "cursor")
    assert done.returncode == 5
    assert "+" in done.stdout
    assert not file_of("cursor", user).exists()


def test_print_changes_nothing_and_is_what_a_file_would_hold(run, user):
    done = run("install", "vscode", "--print")
    entry = json.loads(done.stdout)["servers"]["sessions"]
    assert (entry["type"], entry["args"][-1]) == ("stdio", "serve")
    assert not file_of("vscode", user).parent.exists()


def test_a_project_has_a_file_of_its_own(run, user):
    assert run("install", "claude-code", "--project", "--yes").returncode == 0
    path = user / "project" / ".mcp.json"
    assert "sessions" in json.loads(path.read_text())["mcpServers"]
    assert not file_of("claude-code", user).exists()


def test_a_client_that_reads_no_file_of_a_project_says_so(run):
    done = run("install", "claude-desktop", "--project", "--yes")
    assert done.returncode == 1
    assert "reads no file of a project" in done.stderr


def test_the_home_that_is_asked_for_is_the_one_that_is_served(run, user):
    run("install", "cursor", "--home", "here", "--profile", "work", "--yes")
    entry = json.loads(file_of("cursor", user).read_text())["mcpServers"]["sessions"]
    at = entry["args"].index("serve")
    assert entry["args"][at:] == [
        "serve",
        "--home",
        str(user / "project" / "here"),
        "--profile",
        "work",
    ]


def test_a_folder_that_a_variable_names_is_the_one_that_is_meant(run, user):
    assert run("install", "codex", "--yes", CODEX_HOME=str(user / "c")).returncode == 0
    assert (user / "c" / "config.toml").exists()


def test_what_is_installed_starts_and_answers(run, user):
    run("install", "cursor", "--yes")
    entry = json.loads(file_of("cursor", user).read_text())["mcpServers"]["sessions"]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps(hello) + "\n",
        env={"HOME": str(user), "PATH": os.environ["PATH"]},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "mcp-sessions"


def test_the_list_says_which_clients_are_here_and_know_it(run, user):
    (user / ".qwen").mkdir()
    written(file_of("zed", user), b"{")
    run("install", "cursor", "--yes")
    done = run("install", PATH="/nowhere")
    state = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[: len(NAMES)]}
    assert (state["cursor"], state["qwen"], state["zed"]) == ("installed", "here", "cannot")
    assert state["codex"] == "-"


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 5), (b"n\n", 5), (b"\x04", 5)])
def test_a_person_is_shown_the_change_and_asked(user, answer, code):
    user.mkdir()
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_serve.cli.main", "install", "cursor"],
        env={"HOME": str(user), "PATH": os.environ["PATH"]},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(person, 1000)
    os.write(person, answer)
    assert process.wait(30) == code
    os.close(person)
    assert b"+" in said
    assert file_of("cursor", user).exists() is (code == 0)


@pytest.mark.parametrize(
    ("system", "env", "name", "place"),
    [
        ("darwin", {}, "claude-desktop", "Library/Application Support/Claude"),
        ("darwin", {}, "vscode", "Library/Application Support/Code/User"),
        ("darwin", {}, "zed", ".config/zed"),
        ("windows", {}, "claude-desktop", "AppData/Roaming/Claude"),
        ("windows", {"APPDATA": "/r"}, "zed", "/r/Zed"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "opencode", "/x/opencode"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/x"}, "claude-code", "/x"),
    ],
)
def test_each_system_has_its_own_places(user, system, env, name, place):
    client = next(each for each in CLIENTS if each.name == name)
    assert client.user(Machine(user, system, env)).parent == user / Path(place)
