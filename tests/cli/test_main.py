"""Closed standard streams and closed pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from session_core import SessionDB
from tests.cli.command_user import COMMAND, CommandUser
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home
from tests.thorough import is_in_share, mark_thorough


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    return CommandUser(forks, tmp_path, build_home(tmp_path / "home"))


@pytest.fixture(name="unread")
def _unread(person):
    """Run a verb one of whose output pipes is closed, and return its code and its other output."""

    def run(*verb, closed=1):
        reader, writer = os.pipe()
        os.close(reader)
        with (
            Path(os.devnull).open() as stdin,
            os.fdopen(writer) as pipe,
            tempfile.TemporaryFile() as other,
        ):
            outputs = [pipe, other] if closed == 1 else [other, pipe]
            streams = [each.fileno() for each in (stdin, *outputs)]
            started = person.forks.start(verb, person.env, person.folder, streams, teardown=True)
            code = started.wait()
            other.seek(0)
            return code, other.read().decode()

    return run


@pytest.mark.requirement("verbs:streams")
@pytest.mark.parametrize("verb", [("list",), ("list", "--json"), ("stats",), ("export",)], ids=str)
def test_closed_reader_causes_no_failure(unread, verb):
    assert unread(*verb) == (0, "")


@pytest.mark.requirement("verbs:streams")
def test_unseen_change_is_not_reported_done(unread, person):
    assert unread("edit", FRESH_SESSION_ID, "--title", "Unseen", "--yes") == (1, "")
    with SessionDB(person.home / "state.db", read_only=True) as db:
        assert db.summarize_session(FRESH_SESSION_ID).title != "Unseen"


@pytest.mark.requirement("verbs:streams")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_stream_counts_as_empty(person, closed):
    result = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "list"],
        env=person.env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (FRESH_SESSION_ID in result.stdout) == (">&-" not in closed.replace("2>&-", ""))


VERBS = [
    ("list",),
    ("show", FRESH_SESSION_ID),
    ("search", "question"),
    ("routes",),
    ("stats",),
    ("prune", "ghosts", "--yes"),
    ("finalize", "--session", FRESH_SESSION_ID, "--yes"),
    ("compress", LONG_SESSION_ID, "--yes"),
    ("edit", FRESH_SESSION_ID, "--title", "Another", "--yes"),
    ("restore",),
    ("trash", "list"),
    ("log",),
    ("export",),
    ("install",),
    ("doctor",),
    ("completion", "bash"),
    ("no-such-verb",),
]
SHARED_VERBS = [verb if is_in_share(verb, 3) else mark_thorough((verb,)) for verb in VERBS]

TRACES = ("Traceback", "Exception ignored", "Error in")


@pytest.mark.parametrize("verb", SHARED_VERBS, ids=" ".join)
def test_verb_without_reader_prints_no_trace(unread, verb):
    _, errors = unread(*verb)
    assert not any(trace in errors for trace in TRACES), errors


@pytest.mark.parametrize("verb", SHARED_VERBS, ids=" ".join)
def test_verb_with_unread_errors_prints_no_trace(unread, verb):
    _, said = unread(*verb, closed=2)
    assert not any(trace in said for trace in TRACES), said


INTERRUPTED_AT_EXIT = """
import atexit, os, signal, sys
from mcp_serve.cli.main import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.exit(main())
"""


def test_interrupt_at_exit_prints_no_trace(person):
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_EXIT, "list"],
        env=person.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert FRESH_SESSION_ID in result.stdout
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")
