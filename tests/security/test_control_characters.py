"""Control characters in reasons and sources are refused."""

from __future__ import annotations

import json
import os

import pytest

from mcp_serve.cli.command_errors import USAGE
from session_core import InvalidInput, SessionDB
from tests.cli.fork_server import build_environment

CONTROLS = ("a\x1b[31mb", "a\x07", "a\nb", "\x9b", "a\x7f", "\x00")


@pytest.fixture(name="run")
def _run(forks, home_path):
    """Run a verb on the home as a script does."""
    user = os.environ["HOME"]

    def run(verb, *arguments):
        return forks.run(
            (verb, "--home", str(home_path), *arguments), build_environment(user), user, ""
        )

    return run


@pytest.fixture(name="db")
def _db(home_path):
    with SessionDB(home_path / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
        yield db


@pytest.mark.requirement("hostile:controls")
@pytest.mark.parametrize("reason", CONTROLS)
def test_end_reason_refuses_controls(db, reason):
    with pytest.raises(InvalidInput, match="control characters"):
        db.end_session("s1", reason)
    assert db.get_session("s1")["ended_at"] is None


@pytest.mark.requirement("hostile:controls")
def test_end_reason_accepts_any_script(db):
    db.end_session("s1", "закрыта 关闭 🚀")
    assert db.get_session("s1")["end_reason"] == "закрыта 关闭 🚀"


@pytest.mark.requirement("hostile:controls")
@pytest.mark.parametrize("reason", CONTROLS)
def test_finalize_refuses_controls(db, run, reason):
    result = run("finalize", "--session", "s1", "--reason", reason, "--yes")
    assert (result.code, result.out) == (USAGE, "")
    assert "reason must not contain control characters" in result.err
    assert db.get_session("s1")["ended_at"] is None


@pytest.mark.requirement("hostile:controls")
@pytest.mark.parametrize("name", ["source", "end_reason"])
def test_import_refuses_controls(db, run, tmp_path, name):
    lines = [
        {"id": "bad", "source": "cli", "started_at": 1.0, "ended_at": 2.0, name: "a\x1b[31mb"},
        {"id": "good", "source": "cli", "started_at": 1.0, "messages": []},
    ]
    file = tmp_path / "sessions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("import", str(file), "--yes")
    assert f"{name} must not contain control characters" in " ".join(result.out.split()), result
    assert "\x1b" not in result.out + result.err
    assert db.get_session("bad") is None
    assert db.get_session("good") is not None
