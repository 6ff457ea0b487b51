"""The verbs list, show, search and routes, and their screens."""

from __future__ import annotations

import json

import pytest

from mcp_serve.cli.demo_home import sample
from session_core import SessionDB, SessionSource, SessionStore
from tests.cli.command_user import STYLE, CommandUser, find_wide_lines, strip_style


@pytest.fixture(name="home", scope="module")
def _home(tmp_path_factory):
    """A home with made-up conversations, two routes and a store."""
    home = tmp_path_factory.mktemp("home")
    (home / "profiles" / "work").mkdir(parents=True)
    clock = sample.SampleClock()
    with SessionDB(home / "state.db", clock=clock) as db:
        sample.build_home(db, clock)
        with SessionStore(home / "sessions", db=db) as store:
            for chat in ("1", "2"):
                store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat))
    with SessionDB(home / "profiles" / "work" / "state.db") as db:
        db.append_message("w1", "user", "at work \x1b]0;x\x07", create={"source": "cli"})
    return home


@pytest.fixture(name="person")
def _person(forks, tmp_path, home):
    return CommandUser(forks, tmp_path, home)


@pytest.fixture(name="run")
def _run(person):
    return person.run


@pytest.fixture(name="screen")
def _screen(person):
    """Run a verb in a pseudo-terminal; return its styled output."""

    def screen(columns, *arguments):
        code, seen = person.sees(columns, *arguments)
        assert code == 0, seen
        return seen

    return screen


VERBS = [
    ("list",),
    ("search", "orders", "schema"),
    ("show", sample.LONG_SESSION_ID, "--limit", "6"),
    ("routes",),
]


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_lines_fit_terminal(screen, verb, columns):
    seen = screen(columns, *verb)
    assert len(seen.splitlines()) > 1
    assert find_wide_lines(seen, columns) == []


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_session_id_is_never_cut(screen, run, columns):
    ids = [each["id"] for each in json.loads(run("list", "--json").out)["sessions"]]
    seen = strip_style(screen(columns, "list"))
    assert [each for each in ids if each not in seen] == []


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_style_appears_only_on_terminal(screen, run, verb):
    assert STYLE.search(screen(80, *verb))
    done = run(*verb)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


def test_stored_text_sends_no_terminal_escapes(screen):
    seen = strip_style(screen(80, "show", "w1", "--store", "hermes:work"))
    assert "at work" in seen
    assert "\x1b" not in seen
    assert "\x07" not in seen


def test_json_has_tool_keys(run):
    assert set(json.loads(run("list", "--json").out)) == {"sessions", "next_cursor"}
    found = json.loads(run("search", "orders", "--json").out)
    assert set(found) == {"hits", "matched", "searched_back_to", "next_cursor"}
    shown = json.loads(run("show", sample.LONG_SESSION_ID, "--json").out)
    assert {"session", "messages", "next_cursor"} <= set(shown)
    assert set(json.loads(run("--json", "routes").out)) == {"routes", "next_cursor"}


def test_limit_above_page_size_collects_pages(run):
    shown = json.loads(run("show", sample.LONG_SESSION_ID, "--limit", "150", "--json").out)
    ids = [message["id"] for message in shown["messages"]]
    assert len(ids) == 150
    assert ids == sorted(set(ids))


def test_list_names_store_of_each_session(run):
    found = json.loads(run("list", "--all-profiles", "--limit", "3", "--json").out)
    assert [each["store"] for each in found["sessions"]] == ["hermes:work", "hermes", "hermes"]
    rest = json.loads(run("list", "--all-profiles", "--cursor", found["next_cursor"], "--json").out)
    assert {each["store"] for each in rest["sessions"]} == {"hermes"}


def test_filters_and_limits_choose_sessions(run):
    def titles(*arguments):
        found = json.loads(run("list", "--json", *arguments).out)
        return [each["title"] for each in found["sessions"]]

    assert titles("orders") == ["Schema change for orders"]
    assert titles("--title", "Lisbon", "--source", "telegram") == ["Trip to Lisbon #3"]
    both = titles("--source", "telegram", "--source", "slack", "--limit", "500")
    each = [titles("--source", one, "--limit", "500") for one in ("telegram", "slack")]
    assert sorted(map(str, both)) == sorted(map(str, each[0] + each[1]))
    assert all(each)
    assert titles("--min-messages", "100") == ["Schema change for orders"]
    assert titles("--older-than", "9000") == []
    assert len(titles("--limit", "2")) == 2


def test_search_accepts_several_sources(run):
    def sources(*wanted):
        words = [word for one in wanted for word in ("--source", one)]
        found = run("search", "the", "--every", "--limit", "200", "--json", *words)
        return {each["source"] for each in json.loads(found.out)["hits"]}

    assert sources("telegram", "cli") == {"telegram", "cli"}
    assert sources("telegram") == {"telegram"}


def test_show_finds_session_by_prefix_or_title(run):
    for name in (sample.LONG_SESSION_ID[:-2], "Schema change for orders"):
        assert "Schema change for orders" in run("show", name).out


def test_show_around_continues_search_hit(run):
    hit = json.loads(run("search", "orders", "schema", "--json").out)["hits"][0]
    done = run("show", hit["session_id"], "--around", str(hit["message_id"]), "--limit", "3")
    assert str(hit["message_id"]) in done.out


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
def test_error_is_reported_by_line_and_code(run, arguments, code, says):
    done = run(*arguments)
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "verb",
    ["list", "show", "search", "routes", "stats", "watch", "export", "import", "completion",
     "install", "uninstall"],
)  # fmt: skip
def test_reading_verbs_have_help_examples(run, verb):
    assert f"mcp-sessions {verb}" in run(verb, "--help").out.partition("examples:")[2]


def test_help_begins_with_verb_description(run):
    assert "Run the MCP server." in run("serve", "--help").out
