"""The verb `stats`: figures, charts that fit and commands that fix problems."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from mcp_serve.cli import sample_home
from mcp_serve.cli.report import charts
from mcp_serve.tools.stats import SPEC
from session_core import SessionDB
from tests.cli.command_user import COMMAND, CommandUser, strip_style
from tests.homes import connect

WEEK = 7 * 86_400.0
SOURCES = {"cli": 5, "telegram": 3, "<b>&\u202e": 1}
COLOUR = re.compile(r"\x1b\[[0-9;]*3\d")


@pytest.fixture(name="person", scope="module")
def _person(forks, tmp_path_factory):
    """A user with sessions of three weeks, ghosts and a store."""
    folder = tmp_path_factory.mktemp("person")
    home = folder / "h"
    now = time.time()
    with SessionDB(home / "state.db") as db:
        for source, count in SOURCES.items():
            for number in range(count):
                said = {"create": {"source": source}, "timestamp": now - number * WEEK - 60}
                db.append_message(f"{source[0]}{number}", "user", "hello there", **said)
        for name in ("g1", "g2"):
            db.create_session(name, "tui", started_at=now - 40 * 86_400)
            db.end_session(name, "tui_shutdown")
    with connect(home / "state.db") as connection:
        connection.execute("UPDATE sessions SET ended_at = started_at + 9 WHERE source = 'tui'")
    with SessionDB(home / "profiles" / "work" / "state.db") as db:
        db.append_message("w", "user", "at work", create={"source": "cli"})
    return CommandUser(forks, folder, home)


@pytest.mark.requirement("reports:terminal")
@pytest.mark.parametrize("columns", [60, 80, 140])
def test_report_lines_fit_terminal(person, columns):
    code, seen = person.sees(columns, "stats")
    lines = [line.rstrip() for line in strip_style(seen).splitlines()]
    assert code == 0
    assert [line for line in lines if cell_len(line) > columns] == []
    for head in ("Growth by week", "Sessions by source", "Size by table", "Problems and"):
        assert any(line.startswith(head) for line in lines)


def test_longer_bar_means_larger_value(person):
    lines = strip_style(person.sees(80, "stats")[1]).splitlines()
    drawn = {line.split()[0]: line.count("█") for line in lines if "█" in line}
    assert drawn["cli"] > drawn["telegram"] > 0
    assert drawn["cli"] > 40


@pytest.mark.requirement("reports:terminal")
def test_blocks_need_suitable_encoding(person):
    text = strip_style(person.sees(80, "stats", PYTHONIOENCODING="ascii")[1])
    assert text.isascii()
    assert "####" in text
    assert "####" not in person.run("stats").out
    assert "████" in person.run("stats").out


@pytest.mark.requirement("reports:terminal")
def test_color_appears_only_on_terminal(person):
    assert COLOUR.search(person.sees(80, "stats")[1])
    assert not COLOUR.search(person.sees(80, "stats", NO_COLOR="1")[1])
    assert "\x1b" not in person.run("stats").out


@pytest.mark.requirement("reports:terminal")
def test_stats_json_equals_tool_answer(person):
    data = json.loads(person.run("stats", "--json").out)
    assert set(data) == set(SPEC.answers.__annotations__) - {"keep"}
    assert data["sessions"]["by_source"]["cli"] == SOURCES["cli"]


def test_stats_names_each_store(person):
    data = json.loads(person.run("stats", "--all-profiles", "--json").out)
    assert {store["name"]: store["messages"] for store in data["stores"]} == {
        "hermes": sum(SOURCES.values()),
        "hermes:work": 1,
    }
    output = person.run("stats", "--all-profiles").out
    assert "(hermes)" in output
    assert "(hermes:work)" in output


@pytest.mark.requirement("reports:mending")
def test_finding_shows_fixing_command_line(person):
    text = strip_style(person.sees(80, "stats", "--home", str(person.home))[1])
    assert "2 empty sessions" in text
    (line,) = (line.strip() for line in text.splitlines() if line.endswith("prune ghosts"))
    assert shlex.split(line) == ["mcp-sessions", "--home", str(person.home), "prune", "ghosts"]


def test_single_finding_uses_singular(forks, tmp_path):
    one = CommandUser(forks, tmp_path, tmp_path / "one")
    clock = sample_home.SampleClock()
    with SessionDB(one.home / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        sample_home.add_routes(one.home, db, clock)
    for seen in (one.run("stats").out, one.run("stats", "--html", "-").out):
        assert "1 route to a missing session" in seen
        assert "3 empty sessions" in seen
        assert "none recorded" in seen
        assert "$0.00" not in seen
    assert "1 route to a missing session" in one.run("doctor", "--timeout", "1").out


def test_deep_stats_counts_exactly(person):
    assert "estimated" in person.run("stats").out
    result = person.run("stats", "--deep", "--json")
    assert (result.code, result.err) == (0, "")
    assert set(json.loads(result.out)) == set(SPEC.answers.__annotations__) - {"keep"}


def test_unreadable_home_gives_report(forks, tmp_path):
    person = CommandUser(forks, tmp_path, tmp_path / "h")
    (person.home / "state.db").mkdir(parents=True)
    result = person.run("stats")
    assert (result.code, result.err) == (0, "")
    assert "cannot open the database" in result.out


# -- the page ------------------------------------------------------------------------------


def test_page_file_is_private(person):
    assert person.run("stats", "--html", "one.html").code == 0
    path = person.folder / "one.html"
    text = path.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in person.folder.iterdir() if "one" in each.name] == ["one.html"]


def test_page_path_is_reported_as_json(person):
    result = person.run("stats", "--html", "told.html", "--json")
    assert json.loads(result.out) == {"written": "told.html"}


def test_full_disk_is_reported_in_a_line(person):
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*COMMAND, "stats"],
            env=person.env,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["mcp-sessions: [Errno 28] No space left on device"]


def test_page_shows_same_figures_as_terminal(person):
    text = person.run("stats", "--html", "-").out
    for said in ("Growth by week", "Sessions by source", "Size by table", "prune ghosts"):
        assert said in text


@pytest.mark.requirement("reports:page")
def test_page_escapes_stored_text(person):
    text = person.run("stats", "--html", "-").out
    assert "<b>&" not in text
    assert "&lt;b&gt;&amp;" in text
    assert "\u202e" not in text


@pytest.mark.requirement("reports:page")
def test_page_loads_no_external_resource(person):
    text = person.run("stats", "--html", "-").out
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//\w|url\(|@import|<script|<img|<link|\bsrc=|\bhref=", text)


@pytest.mark.requirement("reports:page")
def test_existing_page_is_replaced_after_yes(person):
    path = person.folder / "two.html"
    path.write_text("mine")
    result = person.run("stats", "--html", "two.html")
    assert (result.code, path.read_text()) == (5, "mine")
    assert (
        "there is no terminal to ask at; pass --yes to confirm; nothing was written" in result.err
    )
    with person.at(80, "stats", "--html", "two.html") as terminal:
        terminal.until("Replace it? [y/N]")
        terminal.type("n\n")
        code, seen = terminal.end(), terminal.seen
    assert (code, "Declined: nothing was written." in seen) == (5, True)
    assert path.read_text() == "mine"
    with person.at(80, "stats", "--html", "two.html") as terminal:
        terminal.until("Replace it? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert path.read_text().startswith("<!doctype html>")
    path.write_text("mine")
    assert person.run("stats", "--html", "two.html", "--yes").code == 0
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.requirement("reports:page")
def test_non_page_file_is_never_replaced(person):
    before = json.loads(person.run("stats", "--json").out)
    database = str(person.home / "state.db")
    result = person.run("stats", "--html", database, "--yes")
    assert result.code == 2
    assert ".html" in result.err
    assert json.loads(person.run("stats", "--json").out)["messages"] == before["messages"]


def test_unwritable_page_is_reported_in_a_line(person):
    result = person.run("stats", "--html", "nowhere/page.html")
    assert result.code == 1
    assert "cannot write" in result.err
    assert "Traceback" not in result.err


# -- the charts ----------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("width", [40, 60, 200])
def test_bars_fit_with_long_labels(width, blocks):
    given = [charts.ChartBar("日本語" * 30, 10**9, "1.0 GB"), charts.ChartBar("b", 1, "1 byte")]
    lines = charts.draw_bars(given, width, blocks=blocks)
    assert max(cell_len(line.plain) for line in lines) <= width
    assert len({cell_len(line.plain) for line in lines}) == 1


def test_smallest_value_is_drawn():
    given = [
        charts.ChartBar("a", 10**9, ""),
        charts.ChartBar("b", 1, ""),
        charts.ChartBar("c", 0, ""),
    ]
    first, second, third = (line.plain for line in charts.draw_bars(given, 60, blocks=True))
    assert "█" * 40 in first
    assert "▏" in second
    assert set(third) == {"c", " "}


@pytest.mark.parametrize("values", [[0], [7], [0] * 26, [10**7] * 26, list(range(26))])
def test_columns_fit_with_any_values(values):
    lines = charts.draw_columns(values, ("May 21", "this week"), 60, blocks=True)
    assert max(cell_len(line.plain) for line in lines) <= 60
