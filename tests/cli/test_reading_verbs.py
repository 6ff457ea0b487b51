"""The verbs list, show, search and routes, and their screens."""

from __future__ import annotations

import argparse
import json

import pytest

from mcp_serve.cli import sample_home
from mcp_serve.cli.search import build_pattern
from tests.cli.command_user import STYLE, find_wide_lines, strip_style

VERBS = [
    ("list",),
    ("search", "orders", "schema"),
    ("show", sample_home.LONG_SESSION_ID, "--limit", "6"),
    ("routes",),
]


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_lines_fit_terminal(screen, verb, columns):
    seen = screen(columns, *verb)
    assert len(seen.splitlines()) > 1
    assert find_wide_lines(seen, columns) == []


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_session_id_is_never_cut(screen, reader, columns):
    ids = [session["id"] for session in json.loads(reader.run("list", "--json").out)["sessions"]]
    text = strip_style(screen(columns, "list"))
    assert [item for item in ids if item not in text] == []


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_style_appears_only_on_terminal(screen, reader, verb):
    assert STYLE.search(screen(80, *verb))
    result = reader.run(*verb)
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out


def test_json_has_tool_keys(reader):
    assert set(json.loads(reader.run("list", "--json").out)) == {"sessions", "next_cursor"}
    data = json.loads(reader.run("search", "orders", "--json").out)
    assert set(data) == {"hits", "matched", "searched_back_to", "next_cursor"}
    shown = json.loads(reader.run("show", sample_home.LONG_SESSION_ID, "--json").out)
    assert {"session", "messages", "next_cursor"} <= set(shown)
    assert set(json.loads(reader.run("--json", "routes").out)) == {"routes", "next_cursor"}


def test_list_names_store_of_each_session(reader):
    data = json.loads(reader.run("list", "--all-profiles", "--limit", "3", "--json").out)
    assert [session["store"] for session in data["sessions"]] == ["hermes:work", "hermes", "hermes"]
    rest = json.loads(
        reader.run("list", "--all-profiles", "--cursor", data["next_cursor"], "--json").out
    )
    assert {each["store"] for each in rest["sessions"]} == {"hermes"}


def test_filters_and_limits_choose_sessions(reader):
    def titles(*arguments):
        data = json.loads(reader.run("list", "--json", *arguments).out)
        return [session["title"] for session in data["sessions"]]

    assert titles("orders") == ["Schema change for orders"]
    assert titles("--title", "Lisbon", "--source", "telegram") == ["Trip to Lisbon #3"]
    both = titles("--source", "telegram", "--source", "slack", "--limit", "500")
    each = [titles("--source", one, "--limit", "500") for one in ("telegram", "slack")]
    assert sorted(map(str, both)) == sorted(map(str, each[0] + each[1]))
    assert all(each)
    assert titles("--min-messages", "100") == ["Schema change for orders"]
    assert titles("--older-than", "9000") == []
    assert titles("--since", "yesterday", "--until", "today") == titles("--since", "yesterday")
    assert titles("--before", "today") == titles("--until", "yesterday")
    assert len(titles("--limit", "2")) == 2
    some = ("--limit", "500")
    assert len(titles("--titled", *some)) + len(titles("--no-titled", *some)) == len(titles(*some))
    assert None not in titles("--titled", *some)
    assert not titles("--source", "cli", "--exclude-source", "CLI")
    assert titles("--project", "shop", *some) == titles("--project", "/home/sam/shop", *some)


def test_list_explains_unknown_values(reader):
    out = reader.run("list", "--source", "nowhere").out
    assert out.startswith("No source 'nowhere'; existing: cli, ")
    assert "`mcp-sessions search` looks into messages" in reader.run("list", "zeppelin").out


def test_search_of_unknown_source_names_existing(reader):
    result = reader.run("search", "orders", "--source", "nowhere")
    assert "No source 'nowhere'; existing:" in result.out
    assert "Nothing found" not in result.out
    assert "Nothing found" in reader.run("search", "zeppelin").out


def test_search_shows_reply_to_user(reader):
    hits = json.loads(reader.run("search", "orders", "schema", "--json").out)["hits"]
    replies = [hit["next"] for hit in hits if "next" in hit]
    assert replies
    assert f"→ {replies[0][:20]}" in reader.run("search", "orders", "schema").out


def test_search_accepts_several_sources(reader):
    def sources(*wanted):
        words = [word for one in wanted for word in ("--source", one)]
        result = reader.run("search", "the", "--every", "--limit", "200", "--json", *words)
        return {hit["source"] for hit in json.loads(result.out)["hits"]}

    assert sources("telegram", "cli") == {"telegram", "cli"}
    assert sources("telegram") == {"telegram"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "nobody"), 3, "`mcp-sessions list`"),
        (("show", "2026"), 2, "pass a longer prefix"),
        (("list", "--limit", "0"), 2, "--limit: must be an integer >= 1, got 0"),
        (
            ("list", "--since", "soon"),
            2,
            "--since/--newer-than/--after: 'soon' is not a valid time",
        ),
        (("search", "x", "--until", "soon"), 2, "--until: 'soon' is not a valid time"),
        (("list", "--title", "x" * 3000), 2, "--title must have at most 2,000 characters"),
        (("list", "x" * 3000), 2, "WORD must have at most 2,000 characters"),
        (("routes", "--platform", "a", "--platform", "b"), 2, "may be given only once"),
        (("list", "--home", "a", "--home", "b"), 2, "may be given only once"),
        (("show", "x", "--around", "-5"), 2, ">= 0"),
        (("show", "x", "--role", "y" * 99), 2, "--role must have at most 50 characters"),
        (("list", "--home", ""), 2, "must not be empty"),
        (("search", "x", "--project", ""), 2, "--project: must not be empty"),
        (("routes", "--platform", ""), 2, "--platform: must not be empty"),
        (("list", "--min-messages", "many"), 2, "--min-messages"),
        (("search",), 2, "name a WORD"),
        (("search", ""), 2, "must contain a word"),
        (("show",), 2, "name the ID"),
        (("list", "--store", "nobody"), 3, "existing: hermes, hermes:work"),
    ],
)
def test_error_is_reported_by_line_and_code(reader, arguments, code, says):
    result = reader.run(*arguments)
    assert result.code == code
    assert says in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "verb",
    ["list", "show", "search", "routes", "stats", "watch", "export", "import", "completion",
     "install", "uninstall"],
)  # fmt: skip
def test_reading_verbs_have_help_examples(reader, verb):
    assert f"mcp-sessions {verb}" in reader.run(verb, "--help").out.partition("examples:")[2]


def test_help_begins_with_verb_description(reader):
    assert "Run the MCP server." in reader.run("serve", "--help").out


def test_list_hides_empty_sessions(reader):
    def ids(*arguments):
        data = json.loads(
            reader.run("list", "--source", "tui", "-n", "500", "--json", *arguments).out
        )
        return {session["id"] for session in data["sessions"]}

    ghosts = {f"20261101_0700{number}_9057" for number in range(3)}
    assert not ghosts & ids()
    assert ids("--all") == ids() | ghosts
    assert ids("--max-messages", "0") == ghosts
    result = reader.run("list", "20261101_0700")
    assert result.out == "Only empty sessions match; --all shows them.\n"


@pytest.mark.parametrize(
    ("columns", "heads"),
    [(60, ["title", "id"]), (80, ["title", "from", "id"])],
)
def test_list_columns_follow_width(screen, columns, heads):
    lines = strip_style(screen(columns, "list")).splitlines()
    assert lines[0].split() == ["active", "msgs", *heads]
    wide = strip_style(screen(140, "list")).splitlines()[0].split()
    assert wide[2:] == ["title", "from", "project", "model", "id"]


def test_search_highlights_words_and_separates_hits(screen):
    seen = screen(80, "search", "orders", "schema", "-n", "2", "--every")
    assert "\x1b[1;33mschema\x1b[0m" in seen.replace("Schema", "schema")
    lines = [line.strip() for line in strip_style(seen).splitlines()]
    assert lines.count("") == 2  # between the hits, and before the hints


def test_empty_search_prints_one_line(reader, screen):
    assert len(reader.run("search", "zeppelin").out.splitlines()) == 1
    assert "Matched" not in screen(80, "search", "zeppelin")


def test_telling_words_of_query_are_highlighted():
    options = argparse.Namespace(query=["what", "did", "-old", "we", "decide"], substring=False)
    text = "What we decided did not undo old things"
    assert build_pattern(options).findall(text) == ["What", "decide"]
    options.query = ["a.b"]
    assert build_pattern(options).findall("a.b aXb") == ["a.b"]


def test_unknown_values_are_named_by_every_verb(reader):
    for verb in ("list", "search the", "prune", "finalize abandoned"):
        result = reader.run(*verb.split(), "--source", "nowhere")
        assert (result.code, "No source 'nowhere'; existing: cli, " in result.out) == (0, True), (
            verb
        )
        assert "Nothing" not in result.out
