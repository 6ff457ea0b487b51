"""The token of a home: created once. An invalid token file is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_serve.http.auth import TOKEN_VARIABLE, load_or_create_token
from session_core import Denied, SessionError, StateFolder


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture(name="db_path")
def _db_path(home_path):
    return home_path / "state.db"


@pytest.mark.requirement("wire:token")
def test_token_is_created_once(db_path):
    token = load_or_create_token(StateFolder(db_path))
    assert len(token) >= 43
    assert load_or_create_token(StateFolder(db_path)) == token


@pytest.mark.requirement("wire:token")
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"x", b"\xff\xfe" * 20, b"only-fifteen-ch", b"a\0" * 20]
)
def test_invalid_token_file_is_refused(db_path, content):
    load_or_create_token(StateFolder(db_path))
    file = StateFolder(db_path).find() / "token"
    file.write_bytes(content)
    with pytest.raises(Denied, match=r"not a valid token.*remove the file") as caught:
        load_or_create_token(StateFolder(db_path))
    assert str(file) in str(caught.value)
    assert file.read_bytes() == content
    file.unlink()
    assert load_or_create_token(StateFolder(db_path)) == load_or_create_token(StateFolder(db_path))


@pytest.mark.requirement("wire:token")
def test_server_start_fails_on_invalid_token(db_path):
    load_or_create_token(StateFolder(db_path))
    file = StateFolder(db_path).find() / "token"
    file.write_text("")
    command = [sys.executable, "-m", "mcp_serve.cli.main", "serve", "--http", "--port", "0"]
    result = subprocess.run(
        [*command, "--home", str(db_path.parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"mcp-sessions: the content of {file} is not a valid token")
    assert "remove the file to create a new one" in result.stderr


@pytest.mark.requirement("wire:token")
def test_token_folder_is_refused(db_path):
    load_or_create_token(StateFolder(db_path))
    file = StateFolder(db_path).find() / "token"
    file.unlink()
    file.mkdir()
    with pytest.raises(Denied, match="cannot read"):
        load_or_create_token(StateFolder(db_path))


@pytest.mark.requirement("wire:token")
@pytest.mark.parametrize("arguments", ["short", "ü" * 20, "with\ta-tab-in-it-and-long"])
def test_invalid_environment_token_is_refused(db_path, monkeypatch, arguments):
    monkeypatch.setenv(TOKEN_VARIABLE, arguments)
    with pytest.raises(Denied, match=TOKEN_VARIABLE):
        load_or_create_token(StateFolder(db_path))


def test_unwritable_token_error_names_variable(db_path):
    (db_path.parent / ".mcp-sessions").symlink_to(db_path.parent / "nowhere" / "at" / "all")
    folder = StateFolder(db_path)
    with pytest.raises(SessionError, match="or set MCP_SESSIONS_TOKEN"):
        load_or_create_token(folder)


@pytest.mark.requirement("wire:token")
def test_environment_token_is_used(db_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, " a-token-of-the-environment ")
    assert load_or_create_token(StateFolder(db_path)) == "a-token-of-the-environment"
    assert StateFolder(db_path).find() is None
