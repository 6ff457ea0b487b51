"""Whoever starts a verb has closed a stream, or reads no more of it."""

from __future__ import annotations

import os
import subprocess

import pytest

from session_core import SessionDB
from tests.cli.at_terminal import COMMAND, Person
from tests.cli.homes import FRESH, build


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    return Person(forks, tmp_path, build(tmp_path / "home"))


@pytest.fixture(name="unread")
def _unread(person):
    """Run a verb whose output nobody reads."""

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


@pytest.mark.parametrize("verb", [("list",), ("list", "--json"), ("stats",), ("export",)], ids=str)
def test_a_reader_who_has_enough_makes_nothing_fail(unread, verb):
    done = unread(*verb)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_change_that_nobody_saw_is_not_said_to_be_done(unread, person):
    done = unread("edit", FRESH, "--title", "Unseen", "--yes")
    assert (done.returncode, done.stderr) == (1, "")
    with SessionDB(person.home / "state.db", read_only=True) as db:
        assert db.summarize(FRESH).title != "Unseen"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_is_an_empty_one(person, closed):
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "list"],
        env=person.env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (FRESH in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
