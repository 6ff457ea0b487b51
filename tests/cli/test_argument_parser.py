"""Usage errors of the parser, and the short options."""

from __future__ import annotations

import pytest

from mcp_serve.cli.main import build_parser


@pytest.fixture(name="refuse")
def _refuse(capsys):
    """Return the two lines of the usage error for a command line."""

    def refuse(line):
        words = line.split()
        with pytest.raises(SystemExit) as raised:
            build_parser(words).parse_args(words)
        assert raised.value.code == 2
        usage, message = capsys.readouterr().err.splitlines()
        assert usage.startswith("usage: mcp-sessions ")
        assert len(usage) <= 80
        return message

    return refuse


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lst", "unknown verb 'lst'; did you mean list?"),
        ("zzzzz", "unknown verb 'zzzzz'; mcp-sessions --help lists the verbs"),
        ("trash lst", "mcp-sessions trash: unknown verb 'lst'; did you mean list?"),
        ("list --oder recent", "mcp-sessions list: unknown option --oder; did you mean --order?"),
        ("list --sou=cli", "unknown option --sou; did you mean --source?"),
        ("trash empty --lim 3", "mcp-sessions trash empty: unknown option --lim"),
        ("list --order recnt", "'recnt' is not one of recent, started, size, cost, tokens; did"),
        ("prune ghost", "did you mean ghosts?"),
        ("compress a b", "mcp-sessions compress: unexpected argument 'b'"),
        ("search foo -b", "unknown option -b; a word that begins with - comes after --"),
    ],
)
def test_usage_error_suggests_nearest(refuse, line, says):
    assert says in refuse(line)


def test_help_begins_with_short_usage(capsys):
    with pytest.raises(SystemExit):
        build_parser(["prune"]).parse_args(["prune", "--help"])
    assert capsys.readouterr().out.startswith("usage: mcp-sessions prune [options] [WHAT]\n\n")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("list -n 3 -s cli -s cron", {"limit": 3, "source": ["cli", "cron"]}),
        ("search x -n 3 -s cli", {"limit": 3, "source": ["cli"]}),
        ("prune -y -q -n 5 -s cli", {"yes": True, "quiet": True, "limit": 5, "source": ["cli"]}),
        ("finalize abandoned -s cli -y", {"source": ["cli"], "yes": True}),
        ("export -o a.jsonl -s cli -q", {"out": "a.jsonl", "source": ["cli"], "quiet": True}),
        ("edit x --pin -y -q", {"yes": True, "quiet": True}),
        ("install zed -y", {"yes": True}),
    ],
)
def test_short_options_set_values(line, values):
    words = line.split()
    options = vars(build_parser(words).parse_args(words))
    assert {name: options[name] for name in values} == values


@pytest.mark.parametrize(
    ("line", "query"),
    [
        ("search foo -secret", ["foo", "-secret"]),
        ("search -secret foo -n5", ["-secret", "foo"]),
        ("search foo --since 7d bar -n 5 -scli", ["foo", "bar", "-scli"]),
        ("search -s cli foo -- -n --json", ["foo", "-n", "--json"]),
    ],
)
def test_dash_in_query_excludes_word(line, query):
    assert build_parser(line.split()).parse_args(line.split()).query == query
