"""The verbs `install` and `uninstall` on configuration files of every form."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess

import pytest

from mcp_serve.cli.clients import formats
from mcp_serve.cli.clients.config_files import find_command
from mcp_serve.cli.clients.supported_clients import CLIENTS, UserEnvironment
from mcp_serve.cli.main import main
from session_core import Unsupported
from tests.cli.command_user import CTRL_C, PseudoTerminal
from tests.cli.fork_server import build_environment

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

JSON = (
    b"",
    b"\n",
    b"// only a comment",
    b"/* only a comment */",
    b"\xef\xbb\xbf",
    b"\xef\xbb\xbf{ }",
    b"{\n}",
    b'{"mcpServers":{}}',
    b'{"mcpServers": null}',
    b'{"mcpServers": {"sessions": null}}',
    b'{\n  "mcpServers": {\n    // none yet\n  }\n}\n',
    b'{\r\n\t"a": 1,\r\n\t"mcpServers": {\r\n\t\t"x": {"command": "y"},\r\n\t},\r\n}\r\n',
    b'{"a":1,}',
    b'{"a":1 /*x*/ , /*y*/ }',
    b'{"a":1,"a":2}',
    b'{"mcpServers":{"x":{}},"mcpServers":{"y":{}}}',
    b'{"a": 1}\n\n\n',
    b'{"\\u006dcpServers":{"x":{}}, "big": 12345678901234567890, "exact": 1.10}',
)
"""Existing files; of duplicate keys the last one counts."""

TOMLS = (
    b"# only a comment",
    b"a = 1",
    b"a = 1\r\n",
    b"[mcp_servers]\n# none yet\n\n[tui]\na=1",
    b"mcp_servers = {}\n",
    b'mcp_servers = { x = { command = "y" } }\n',
    b'mcp_servers.x.command = "y"\n',
    b'[mcp_servers.x]\ncommand="y"\n\n[tui]\na=1\n\n[mcp_servers.z]\ncommand="q"\n',
    b'["mcp_servers"."x"]\ncommand="y"\n# the end\n',
)
COMMENT = re.compile(rb"//.*|/\*.*?\*/|#.*")


@pytest.fixture(name="here")
def _here(monkeypatch, user):
    """Give this process an empty home directory."""
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(user))


def install_and_uninstall(name, user, data):
    """Return the contents after install, a second install and uninstall."""
    path = write_file(find_client_file(name, user), data)
    assert main(["install", name, "--yes"]) == 0
    once = path.read_bytes()
    assert once != data
    assert main(["install", name, "--yes"]) == 0
    assert path.read_bytes() == once
    assert main(["uninstall", name, "--yes"]) == 0
    return path.read_bytes()


def read_configuration(name, data):
    """Return the parsed file of a client without empty tables."""
    form = formats.TomlFormat() if name == "codex" else formats.JsoncFormat()
    says = form.parse_text(data.removeprefix(b"\xef\xbb\xbf").decode())
    servers = {key: value for key, value in (says.get("mcpServers") or {}).items() if value}
    return {key: value for key, value in {**says, "mcpServers": servers}.items() if value}


@pytest.fixture(name="user")
def _user(tmp_path):
    return tmp_path / "person"


@pytest.fixture(name="run")
def _run(forks, user):
    """Run the command with an empty user folder."""
    user.mkdir()
    (user / "project").mkdir()
    env = {"HOME": str(user), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"}

    def run(*arguments, **more):
        return forks.run(arguments, env | more, user / "project")

    return run


def find_client_file(name, user):
    client = next(item for item in CLIENTS if item.name == name)
    return client.user(UserEnvironment(user=user, env={}))


def write_file(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_install_creates_file_and_uninstall_removes_file(run, user, name):
    path = find_client_file(name, user)
    result = run("install", name, "--yes")
    assert (result.code, result.err) == (0, "")
    assert "serve" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("uninstall", name, "--yes").code == 0
    assert not path.exists()


@pytest.mark.requirement("terminal:install")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "codex"])
def test_install_keeps_foreign_content(here, user, name, form):
    assert install_and_uninstall(name, user, FORMS[form]) == FORMS[form]


@pytest.mark.requirement("terminal:install")
@pytest.mark.parametrize("data", JSON, ids=repr)
def test_uninstall_restores_every_json_byte(here, user, data):
    assert install_and_uninstall("cursor", user, data) == data


@pytest.mark.requirement("terminal:install")
@pytest.mark.parametrize("data", [TOML, *TOMLS], ids=repr)
def test_uninstall_restores_every_toml_byte(here, user, data):
    assert install_and_uninstall("codex", user, data) == data


@pytest.mark.parametrize("data", [*JSON, *TOMLS], ids=repr)
def test_uninstall_without_copy_keeps_comments(here, user, data):
    name = "codex" if data in TOMLS else "cursor"
    path = write_file(find_client_file(name, user), data)
    before, comments = read_configuration(name, data), COMMENT.findall(data)
    assert main(["install", name, "--yes"]) == 0
    path.with_name(path.name + ".before-mcp-sessions").unlink()
    assert main(["uninstall", name, "--yes"]) == 0
    after = path.read_bytes() if path.exists() else b""
    assert {key: value for key, value in read_configuration(name, after).items() if value} == before
    assert COMMENT.findall(after) == comments


def test_uninstall_keeps_changes_made_after_install(run, user):
    path = write_file(find_client_file("cursor", user), b'{"mcpServers": {}}')
    run("install", "cursor", "--yes")
    path.write_text(path.read_text().replace("{", '{"theme": "dark", ', 1))
    run("uninstall", "cursor", "--yes")
    assert json.loads(path.read_text()) == {"theme": "dark"}


def test_toml_keeps_comments_order_and_servers(run, user):
    path = write_file(find_client_file("codex", user), TOML)
    assert run("install", "codex", "--yes").code == 0
    text = path.read_text()
    assert "[mcp_servers.sessions]" in text
    for line in TOML.decode().splitlines():
        assert line in text


def test_toml_keeps_line_endings(here, user):
    path = write_file(find_client_file("codex", user), TOML.replace(b"\n", b"\r\n"))
    assert main(["install", "codex", "--yes"]) == 0
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")


@pytest.mark.requirement("terminal:install")
def test_install_is_idempotent(run, user):
    path = find_client_file("cursor", user)
    run("install", "cursor", "--yes")
    once = path.read_bytes()
    result = run("install", "cursor")
    assert result.code == 0
    assert "is already configured" in result.out
    assert path.read_bytes() == once


def test_reinstall_keeps_additional_entry_keys(run, user):
    path = find_client_file("gemini", user)
    run("install", "gemini", "--yes")
    says = json.loads(path.read_text())
    says["mcpServers"]["sessions"]["timeout"] = 5000
    path.write_text(json.dumps(says))
    assert run("install", "gemini", "--read-only", "--yes").code == 0
    entry = json.loads(path.read_text())["mcpServers"]["sessions"]
    assert entry["timeout"] == 5000
    assert entry["args"][-1] == "--read-only"


def test_install_keeps_copy_of_original_file(run, user):
    path = write_file(find_client_file("zed", user), FORMS["comments"])
    path.chmod(0o644)
    run("install", "zed", "--yes")
    kept = path.with_name("settings.json.before-mcp-sessions")
    assert kept.read_bytes() == FORMS["comments"]
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o644


def test_uninstall_restores_dangling_link(run, user):
    path = find_client_file("cursor", user)
    path.parent.mkdir(parents=True)
    path.symlink_to(user / "dotfiles" / "mcp.json")
    assert run("install", "cursor", "--yes").code == 0
    assert "sessions" in (user / "dotfiles" / "mcp.json").read_text()
    assert run("uninstall", "cursor", "--yes").code == 0
    assert path.is_symlink()
    assert not path.exists()


def test_install_keeps_symbolic_link(run, user):
    real = write_file(user / "dotfiles" / "mcp.json", FORMS["plain"])
    path = find_client_file("cursor", user)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    assert run("install", "cursor", "--yes").code == 0
    assert path.is_symlink()
    assert "sessions" in json.loads(real.read_text())["mcpServers"]


@pytest.mark.requirement("terminal:install")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cursor", b'{"mcpServers": {'),
        ("cursor", b'{"mcpServers": []}'),
        ("cursor", b"[]"),
        ("cursor", '{"ü": 1}'.encode("utf-16")),
        ("cursor", b'{"mcpServers": {"sessions": {}}} {}'),
        ("cursor", b'{"a": 1}\x00'),
        ("codex", b"[mcp_servers\n"),
        ("codex", b"[[mcp_servers]]\na = 1\n"),
        ("codex", b"mcp_servers = 3\n"),
    ],
)
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_malformed_configuration_is_left_unchanged(run, user, name, data, verb):
    path = write_file(find_client_file(name, user), data)
    result = run(verb, name, "--yes")
    assert result.code == 1
    assert str(path) in result.err
    assert "Traceback" not in result.err
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.requirement("terminal:install")
def test_read_only_configuration_is_left_unchanged(run, user):
    path = write_file(find_client_file("cursor", user), FORMS["plain"])
    path.chmod(0o444)
    result = run("install", "cursor", "--yes")
    assert result.code == 1
    assert "read-only" in result.err
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_foreign_server_with_name_is_kept(run, user, verb):
    data = b'{"mcpServers": {"sessions": {"command": "else"}}}'
    path = write_file(find_client_file("cursor", user), data)
    result = run(verb, "cursor", "--yes")
    assert result.code == 1
    assert "--name" in result.err
    assert path.read_bytes() == data


@pytest.mark.parametrize("found", [[], "text", 3])
def test_non_server_entry_with_name_is_kept(run, user, found):
    data = json.dumps({"mcpServers": {"sessions": found}}).encode()
    path = write_file(find_client_file("cursor", user), data)
    assert run("install", "cursor", "--yes").code == 1
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["", "a b", "a.b", "-x", "ü", "x" * 65])
def test_invalid_server_name_is_refused(run, user, name):
    result = run("install", "codex", f"--name={name}", "--yes")
    assert result.code == 2
    assert "letters, digits" in result.err
    assert not find_client_file("codex", user).exists()


def test_custom_name_adds_second_server(run, user):
    path = write_file(
        find_client_file("cursor", user), b'{"mcpServers": {"sessions": {"command": "else"}}}'
    )
    assert run("install", "cursor", "--name", "mine", "--yes").code == 0
    assert set(json.loads(path.read_text())["mcpServers"]) == {"sessions", "mine"}


@pytest.mark.parametrize("word", ["--yes", "--print"])
def test_client_options_need_client(run, word):
    result = run("install", word)
    assert (result.code, result.out) == (2, "")
    assert "name the client" in result.err


def test_install_without_terminal_needs_yes(run, user):
    result = run("install", "cursor")
    assert result.code == 5
    assert "+" in result.out
    assert (
        "there is no terminal to ask at; pass --yes to confirm; nothing was changed" in result.err
    )
    assert not find_client_file("cursor", user).exists()


def test_print_shows_snippet_without_change(run, user):
    result = run("install", "vscode", "--print")
    entry = json.loads(result.out)["servers"]["sessions"]
    assert (entry["type"], entry["args"][-1]) == ("stdio", "serve")
    assert not find_client_file("vscode", user).parent.exists()


@pytest.mark.parametrize("client", [item for item in CLIENTS if item.project], ids=lambda c: c.name)
def test_project_file_is_changed_and_restored(here, monkeypatch, user, client):
    project = user / "shop"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    before = TOML if client.name == "codex" else FORMS["comments"]
    path = write_file(project / client.project, before)
    assert main(["install", client.name, "--project", "--read-only", "--yes"]) == 0
    assert b"--read-only" in path.read_bytes()
    assert not client.user(UserEnvironment(user, env={})).exists()
    assert main(["uninstall", client.name, "--project", "--yes"]) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_printed_snippet_equals_installed_file(here, user, capsys, name):
    assert main(["install", name, "--read-only", "--print"]) == 0
    shown = capsys.readouterr().out
    assert not find_client_file(name, user).exists()
    assert main(["install", name, "--read-only", "--yes"]) == 0
    assert find_client_file(name, user).read_text().strip() == shown.strip()


def test_large_file_is_changed_in_place(here, user):
    history = [{"display": "what did we decide?", "pasted": {}} for _ in range(12_000)]
    says = {"projects": {"/src/shop": {"history": history, "mcpServers": {}}}, "n": 1}
    data = json.dumps(says, indent=2).encode()
    path = write_file(find_client_file("claude-code", user), data)
    assert main(["install", "claude-code", "--yes"]) == 0
    found = json.loads(path.read_bytes())
    assert "sessions" in found.pop("mcpServers")
    assert found == says
    assert main(["uninstall", "claude-code", "--yes"]) == 0
    assert path.read_bytes() == data


def test_project_install_writes_project_file(run, user):
    assert run("install", "claude-code", "--project", "--yes").code == 0
    path = user / "project" / ".mcp.json"
    assert "sessions" in json.loads(path.read_text())["mcpServers"]
    assert not find_client_file("claude-code", user).exists()


def test_client_without_project_file_is_refused(run):
    result = run("install", "claude-desktop", "--project", "--yes")
    assert result.code == 1
    assert "has no project configuration" in result.err


def test_install_writes_requested_home(run, user):
    (user / "project" / "here" / "profiles" / "work").mkdir(parents=True)
    run("install", "cursor", "--home", "here", "--store", "hermes:work", "--yes")
    entry = json.loads(find_client_file("cursor", user).read_text())["mcpServers"]["sessions"]
    at = entry["args"].index("serve")
    assert entry["args"][at:] == [
        "serve",
        "--home",
        str(user / "project" / "here"),
        "--store",
        "hermes:work",
    ]


@pytest.mark.parametrize("variable", ["MCP_SESSIONS_HOME", "HERMES_HOME"])
def test_install_writes_home_from_environment(run, user, variable):
    home = str(user / "elsewhere")
    run("install", "cursor", "--yes", **{variable: home})
    entry = json.loads(find_client_file("cursor", user).read_text())["mcpServers"]["sessions"]
    assert entry["args"][-2:] == ["--home", home]
    run("install", "cursor", "--project", "--yes", **{variable: home})
    shared = (user / "project" / ".cursor" / "mcp.json").read_text()
    assert home not in shared


def test_install_refuses_unknown_store(run, user):
    result = run("install", "cursor", "--store", "nobody", "--yes")
    assert result.code == 3
    assert "nobody" in result.err
    assert not find_client_file("cursor", user).exists()
    result = run("install", "cursor", "--home", "none", "--yes")
    assert result.code == 0
    assert "there is no home in" in result.err


def test_first_copy_survives_later_changes(here, user):
    path = write_file(find_client_file("zed", user), FORMS["comments"])
    kept = path.with_name("settings.json.before-mcp-sessions")
    for verb in (["install"], ["install", "--read-only"], ["install", "--name", "more"]):
        assert main([verb[0], "zed", *verb[1:], "--yes"]) == 0
        assert kept.read_bytes() == FORMS["comments"]
    path.write_bytes(path.read_bytes().replace(b"dark", b"light"))
    for more in (["--name", "more"], []):
        assert main(["uninstall", "zed", *more, "--yes"]) == 0
        assert kept.read_bytes() == FORMS["comments"]
    assert path.read_bytes() == FORMS["comments"].replace(b"dark", b"light")


def test_uninstall_removes_copy_after_restore(here, user):
    path = write_file(find_client_file("zed", user), FORMS["comments"])
    for verb in (["install"], ["install", "--read-only"], ["uninstall"]):
        assert main([verb[0], "zed", *verb[1:], "--yes"]) == 0
    assert path.read_bytes() == FORMS["comments"]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["claude-desktop", "codex", "opencode"])
def test_uninstall_removes_created_file_after_reinstall(here, user, name):
    for verb in (["install"], ["install", "--read-only"], ["install"], ["uninstall"]):
        assert main([verb[0], name, *verb[1:], "--yes"]) == 0
    assert list(find_client_file(name, user).parent.iterdir()) == []


def test_client_folder_variable_is_followed(run, user):
    assert run("install", "codex", "--yes", CODEX_HOME=str(user / "c")).code == 0
    assert (user / "c" / "config.toml").exists()


def test_installed_command_starts_and_answers(run, user):
    run("install", "cursor", "--yes")
    entry = json.loads(find_client_file("cursor", user).read_text())["mcpServers"]["sessions"]
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
    result = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps(hello) + "\n",
        env={"HOME": str(user), "PATH": os.environ["PATH"]},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert json.loads(result.stdout)["result"]["serverInfo"]["name"] == "mcp-sessions"


def test_client_list_shows_install_states(run, user):
    (user / ".qwen").mkdir()
    write_file(find_client_file("zed", user), b"{")
    run("install", "cursor", "--yes")
    result = run("install", PATH="/nowhere")
    shown = re.sub(" +", " ", result.out)
    for line in (
        "cursor Cursor registered",
        "qwen Qwen Code not registered",
        "zed Zed cannot be read",
    ):
        assert f"\n{line}\n" in f"\n{shown}"
    assert "codex" in shown.partition("\nnot found ")[2].splitlines()[0]


@pytest.fixture(name="screen")
def _screen(forks, user):
    """Start the command in a terminal."""
    user.mkdir()
    given = {"env": build_environment(user), "folder": user}
    return lambda *arguments: PseudoTerminal(forks, *arguments, **given)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 5), ("n\n", 5), ("\x04", 5)])
def test_install_shows_change_and_asks(screen, user, answer, code):
    with screen("install", "cursor") as seen:
        assert "+" in seen.until("[y/N]")
        seen.type(answer)
        assert seen.end() == code
    assert find_client_file("cursor", user).exists() is (code == 0)


@pytest.mark.requirement("terminal:install")
def test_ctrl_c_at_question_reports_no_change(screen, user):
    with screen("install", "cursor") as seen:
        seen.until("Apply this change?")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert "Stopped; nothing was changed." in seen.screen
    assert not find_client_file("cursor", user).exists()


@pytest.mark.requirement("terminal:install")
def test_concurrent_client_write_is_kept(screen, user):
    path = write_file(find_client_file("claude-code", user), FORMS["plain"])
    with screen("install", "claude-code") as seen:
        seen.until("Apply this change?")
        path.write_bytes(FORMS["one line"])
        seen.type("y\n")
        assert seen.end() == 4
    assert "was changed by another program; try again" in seen.screen
    assert path.read_bytes() == FORMS["one line"]


@pytest.mark.parametrize("word", ["--plan-only", "--dry-run"])
def test_plan_only_shows_change_without_writing(run, user, word):
    path = user / ".cursor" / "mcp.json"
    result = run("install", "cursor", word)
    assert result.code == 0, result.err
    assert '"sessions"' in result.out
    assert result.out.splitlines()[-1] == "Nothing was changed."
    assert not path.exists()
    assert run("install", "cursor", "--yes").code == 0
    before = path.read_bytes()
    assert run("uninstall", "cursor", word).code == 0
    assert path.read_bytes() == before
    data = json.loads(run("uninstall", "cursor", word, "--json").out)
    assert (data["outcome"], path.read_bytes()) == ("planned", before)


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [("", 0, ""), ("cursr", 2, "did you mean cursor?"), ("cursor", 5, "Apply this change?")],
)
def test_install_at_terminal_offers_choice(forks, user, answer, code, says):
    (user / ".claude").mkdir(parents=True)
    env = build_environment(user)
    with PseudoTerminal(forks, "install", env=env, folder=user) as pseudo_terminal:
        pseudo_terminal.until("with which one? (Enter for none)")
        assert re.search(r"claude-code +Claude Code +not registered", pseudo_terminal.screen)
        assert "not found  claude-desktop, cursor" in pseudo_terminal.screen
        pseudo_terminal.type(f"{answer}\n")
        if code == 5:
            pseudo_terminal.until("[y/N]")
            pseudo_terminal.type("n\n")
        assert pseudo_terminal.end() == code
    assert says in pseudo_terminal.screen
    assert not find_client_file("cursor", user).exists()


def test_project_entry_has_no_path_of_machine(run, user):
    run("install", "cursor", "--project", "--yes")
    text = (user / "project" / ".cursor" / "mcp.json").read_text()
    assert json.loads(text)["mcpServers"]["sessions"]["command"] == "mcp-sessions"


def test_install_refuses_temporary_environment(monkeypatch, user, tmp_path):
    program = tmp_path / "archive-v0" / "bin" / "mcp-sessions"
    write_file(program, b"")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(Unsupported, match="temporary environment"):
        find_command(shared=False)
    kept = write_file(tmp_path / "bin" / "mcp-sessions", b"")
    kept.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kept.parent}:{program.parent}")
    assert find_command(shared=False) == [str(kept)]
