"""Confused deputy: the server calls no host, starts no process and passes on no credential."""

from __future__ import annotations

import ast
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import mcp_serve
from mcp_serve.tool_list import load_specs
from session_core import SessionDB, SessionStore
from tests.public_names import list_public_names
from tests.security.corpus import INJECTIONS
from tests.security.walk import walk_home

pytestmark = pytest.mark.anyio

PACKAGE = Path(mcp_serve.__file__).parent

OUTWARD = {
    *("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"),
    *("urllib.Request", "http.client.connect", "smtplib.connect", "ftplib.connect"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.startfile", "pty.spawn"),
    *("webbrowser.open",),
}
_HEARD: list[tuple[str, tuple[object, ...]]] = []
_LISTENING: list[bool] = []
_HOOKED: list[bool] = []


@contextmanager
def outward_calls():
    """Record outgoing calls of this process. The audit hook is permanent, so it has a switch."""
    if not _HOOKED:
        _HOOKED.append(True)
        sys.addaudithook(
            lambda event, arguments: (
                _HEARD.append((event, arguments)) if _LISTENING and event in OUTWARD else None
            )
        )
    _HEARD.clear()
    _LISTENING.append(True)
    try:
        yield _HEARD
    finally:
        _LISTENING.clear()


@pytest.mark.requirement("security:deputy")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_server_makes_no_outward_calls(mode, tmp_path):
    with outward_calls() as answer:
        text = await walk_home(tmp_path, mode, INJECTIONS)
    assert len(text) > 200
    assert answer == []


def test_outward_call_detector_works():
    with outward_calls() as answer:
        os.system("true")  # noqa: S605, S607 -- harmless, and heard
    assert [event for event, _ in answer] == ["os.system"]


def test_tools_have_no_destination_arguments():
    words = ("send", "post", "fetch", "url", "http", "email", "upload", "webhook", "execute", "run")
    for spec in load_specs():
        names = {spec.name, *spec.arguments.model_fields}
        assert not [name for name in names for word in words if word in name.split("_")]


@pytest.mark.requirement("security:deputy")
async def test_environment_credentials_are_not_shown(monkeypatch, tmp_path):
    value = "credential-of-the-environment-9431"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MCP_SESSIONS_TOKEN", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, value)
    text = await walk_home(
        tmp_path, "auto", {"a": "$OPENAI_API_KEY {OPENAI_API_KEY} %OPENAI_API_KEY%"}
    )
    assert value not in json.dumps(text)


ACTS_AT_ONCE = {
    *("delete_session", "delete_sessions", "prune_empty_ghost_sessions", "vacuum"),
    *("finalize_orphaned_compression_sessions", "remove_messages", "remove_rows"),
    *("clear_messages", "replace_messages", "rewind_to_message", "archive_and_compact"),
    *("delete_entries", "prune_old_entries"),
    *("pop_message", "delete_messages", "update_message"),
}
"""Methods that remove or rewrite without a plan."""

MADE_UP = {"sample.py", "sample_home.py"}
"""The homes of the demo, which belong to no user."""


@pytest.mark.requirement("security:deputy")
def test_removals_go_through_plans():
    known = {name.rpartition(".")[2] for name in list_public_names(SessionDB)}
    assert known | set(dir(SessionStore)) >= ACTS_AT_ONCE
    sources = [path for path in PACKAGE.rglob("*.py") if path.name not in MADE_UP]
    used = {
        (path.name, node.attr)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ACTS_AT_ONCE
    }
    assert len(sources) > 100
    assert used == set()
