"""Cursors of lists, and the pager for long output."""

from __future__ import annotations

import pytest

from tests.cli.command_user import CommandUser, strip_style
from tests.cli.homes import FRESH_SESSION_ID, LONG_SESSION_ID, build_home

LIST_VERBS = (
    (("list", "--status", "all"), "sessions", "id"),
    (("search", "question", "--every"), "hits", "message_id"),
    (("show", LONG_SESSION_ID), "messages", "id"),
    (("log",), "lines", "counts"),
    (("restore",), "batches", "batch"),
    (("trash", "list"), "batches", "batch"),
)


@pytest.fixture(name="changed")
def _changed(answer):
    """Make several changes."""
    for number in range(3):
        answer("edit", FRESH_SESSION_ID, "--title", f"Meal {number}", "--yes")


@pytest.mark.requirement("verbs:pages")
@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(("verb", "key", "name"), LIST_VERBS, ids=lambda each: each[0])
def test_list_continues_after_cursor(answer, verb, key, name):
    first = answer(*verb, "--limit", "2")
    alone = (verb[0], *verb[1:2]) if verb[0] == "trash" else verb[:1]
    more = answer(*alone, "--cursor", first["next_cursor"], "--limit", "1")
    same = answer(*verb, "--cursor", first["next_cursor"], "--limit", "1")
    both = answer(*verb, "--limit", "3")
    assert len(first[key]) == 2
    assert more == same
    found = sorted(str(each[name]) for each in first[key] + more[key])
    assert found == sorted(str(each[name]) for each in both[key])


def test_routes_continue_after_cursor(answer):
    result = answer("routes")
    assert len(result["routes"]) == 1
    assert result["next_cursor"] is None


@pytest.mark.requirement("verbs:pages")
def test_foreign_cursor_is_refused(answer, run):
    cursor = answer("list", "--limit", "1")["next_cursor"]
    for wrong in (
        ("search", "--cursor", cursor),
        ("list", "--cursor", "x"),
        ("list", "--source", "tui", "--cursor", cursor),
    ):
        result = run(*wrong)
        assert result.code == 2
        assert "cursor" in result.err


# -- pages -----------------------------------------------------------------------------------


@pytest.fixture(name="reader")
def _reader(forks, tmp_path):
    """A user with a pager that marks its input."""
    person = CommandUser(forks, tmp_path, build_home(tmp_path / "shelf", old=40))
    return lambda *verb, **env: strip_style(person.sees(80, *verb, **env)[1])


PAGER_SCRIPT = "sed s/^/paged:/"


@pytest.mark.requirement("verbs:pages")
@pytest.mark.parametrize(
    "verb",
    [
        ("list", "--limit", "60"),
        ("show", LONG_SESSION_ID),
        ("search", "ticket", "--every", "--limit", "60"),
    ],
    ids=lambda verb: verb[0],
)
def test_long_output_is_paged(reader, verb):
    shown = reader(*verb, PAGER=PAGER_SCRIPT).splitlines()
    assert len(shown) > 40
    assert {line[:6] for line in shown} == {"paged:"}


def test_short_output_is_not_paged(reader):
    for verb in (
        ("list", "--limit", "2"),
        ("log",),
        ("show", LONG_SESSION_ID, "--no-pager"),
        ("doctor", "--json"),
    ):
        assert "paged:" not in reader(*verb, PAGER=PAGER_SCRIPT)
    assert "paged:" not in reader("show", LONG_SESSION_ID, "--json", PAGER=PAGER_SCRIPT)
    for broken in ("no-such-pager", "less '", " "):
        assert "The ports" in reader("show", LONG_SESSION_ID, PAGER=broken)


@pytest.mark.requirement("verbs:pages")
def test_pipe_output_is_not_paged(forks, tmp_path):
    person = CommandUser(forks, tmp_path, build_home(tmp_path / "shelf"))
    assert "paged:" not in person.run("show", LONG_SESSION_ID, PAGER=PAGER_SCRIPT).out


def test_less_can_be_quit_early(forks, tmp_path):
    person = CommandUser(forks, tmp_path, build_home(tmp_path / "shelf"))
    with person.at(80, "show", LONG_SESSION_ID, PAGER="less") as terminal:
        terminal.until("The ports")
        terminal.type("q")
        code, seen = terminal.end(), terminal.seen
    assert code == 0
    assert "/srv/ports/59.toml" not in seen
