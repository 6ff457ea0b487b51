"""Closed standard streams and closed pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
    """Run a verb whose output pipe is closed."""

    def run(*verb):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer) as out:
            return subprocess.run(
                [*COMMAND, *verb],
                env=person.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                check=False,
            )

    return run


@pytest.mark.requirement("verbs:streams")
@pytest.mark.parametrize("verb", [("list",), ("list", "--json"), ("stats",), ("export",)], ids=str)
def test_closed_reader_causes_no_failure(unread, verb):
    done = unread(*verb)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.requirement("verbs:streams")
def test_unseen_change_is_not_reported_done(unread, person):
    done = unread("edit", FRESH_SESSION_ID, "--title", "Unseen", "--yes")
    assert (done.returncode, done.stderr) == (1, "")
    with SessionDB(person.home / "state.db", read_only=True) as db:
        assert db.summarize_session(FRESH_SESSION_ID).title != "Unseen"


@pytest.mark.requirement("verbs:streams")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_stream_counts_as_empty(person, closed):
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "list"],
        env=person.env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (FRESH_SESSION_ID in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


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
    done = unread(*verb)
    assert not any(trace in done.stderr for trace in TRACES), done.stderr


@pytest.mark.parametrize("verb", SHARED_VERBS, ids=" ".join)
def test_verb_with_unread_errors_prints_no_trace(person, verb):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as err:
        done = subprocess.run(
            [*COMMAND, *verb],
            env=person.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            encoding="utf-8",
            check=False,
        )
    assert not any(trace in done.stdout for trace in TRACES), done.stdout


INTERRUPTED_AT_EXIT = """
import atexit, os, signal, sys
from mcp_serve.cli.main import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.exit(main())
"""


def test_interrupt_at_exit_prints_no_trace(person):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_EXIT, "list"],
        env=person.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert FRESH_SESSION_ID in done.stdout
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
