"""The verb `watch` on commits of other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from select import select

import pytest

from session_core import SessionDB
from tests.cli.command_user import COMMAND, CTRL_C, CommandUser, strip_style

COMMIT_SCRIPT = """
import sys
from session_core import SessionDB
with SessionDB(sys.argv[1]) as db:
    for text in sys.argv[3:]:
        db.append_message(sys.argv[2], "user", text, create={"source": "cli"})
"""

ROUTE_SCRIPT = """
import sys
from session_core import SessionDB, SessionSource, SessionStore
with SessionDB(sys.argv[1] + "/state.db") as db:
    with SessionStore(sys.argv[1] + "/sessions", db=db) as store:
        source = SessionSource(platform="telegram", chat_id=sys.argv[2], chat_type="group")
        store.get_or_create_session(source)
"""


def commit_message(person, session, *texts):
    """Append a message from another process."""
    database = str(person.home / "state.db")
    subprocess.run([sys.executable, "-c", COMMIT_SCRIPT, database, session, *texts], check=True)


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    person = CommandUser(forks, tmp_path, tmp_path / "h")
    with SessionDB(person.home / "state.db") as db:
        db.append_message("there", "user", "before", create={"source": "cli"})
    return person


@pytest.mark.requirement("reports:watching")
def test_watch_prints_commit_of_another_process(person):
    with person.at(60, "watch") as terminal:
        terminal.until("Ctrl-C")
        commit_message(person, "there", "hello \x1b[31mthere " + "and on " * 99)
        seen = terminal.until("hello")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    (line,) = (each for each in strip_style(seen).splitlines() if "hello" in each)
    assert "before" not in seen
    assert "\x1b[31m" not in seen
    assert len(line) <= 60
    assert line.split()[1:4] == ["there", "user:", "hello"]


@pytest.mark.requirement("reports:watching")
def test_watch_json_prints_event_per_line(person):
    process = subprocess.Popen(
        [*COMMAND, "watch", "--session", "there", "--json"],
        env=person.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        while not select([process.stdout], [], [], 1)[
            0
        ]:  # a script does not get the time of the start
            commit_message(person, "another", "not for it")
            commit_message(person, "there", "for it")
        heard = json.loads(process.stdout.readline())
        assert (heard["type"], heard["session_id"], heard["text"]) == ("message", "there", "for it")
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.requirement("reports:watching")
def test_watch_follows_home_created_later(forks, tmp_path):
    person = CommandUser(forks, tmp_path, tmp_path / "later")
    with person.at(80, "watch") as terminal:
        waiting = "".join(strip_style(terminal.until("Ctrl-C")).split())
        assert f"nohomeyetin{person.home}" in waiting
        assert not person.home.exists()
        commit_message(person, "first", "here I am")
        terminal.until("here I am")


def test_watch_names_each_store(person):
    work = CommandUser(person.forks, person.folder, person.home / "profiles" / "work")
    commit_message(work, "w", "before")
    with person.at(80, "watch", "--all-profiles") as terminal:
        terminal.until("Ctrl-C")
        commit_message(work, "w", "at work")
        assert "hermes:work  w" in strip_style(terminal.until("at work"))
        commit_message(person, "there", "at home")
        assert "hermes  there" in strip_style(terminal.until("at home"))


def test_watch_reports_unknown_session(person):
    result = person.run("watch", "--session", "nobody")
    assert (result.code, result.out) == (3, "")
    assert "nobody" in result.err


def test_watch_prints_whole_key_of_moved_chat(person):
    chat = "-100" + "1234567890" * 5 + "#"
    with person.at(60, "watch") as terminal:
        terminal.until("Ctrl-C")
        commit_message(person, "there", "hello")
        terminal.until("hello")  # changes that only a comparison shows are compared from now on
        given = [sys.executable, "-c", ROUTE_SCRIPT, str(person.home), chat]
        subprocess.run(given, check=True)
        terminal.until("#")  # the end of the key, which has lines of its own
        terminal.type(CTRL_C)
        terminal.end()
        screen = terminal.screen
    assert chat in "".join(screen.split())
