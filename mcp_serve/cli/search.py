"""`mcp-sessions search`: what was said, and where."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve import arguments as given_as
from mcp_serve.cli.arguments import parse_text, parse_time_option
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import format_age
from mcp_serve.cli.tool_calls import Answer, get_terminal, show_answer
from mcp_serve.tools import search
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions search what did we decide about the schema
  mcp-sessions search '"connection pool" OR timeout' --since 30d
  mcp-sessions search flush_batch --every --project ~/shop
"""

_PASSED_OPTIONS = ("session", "project", "source", "status", "since", "until")


class SearchCommandArguments(search.SearchArguments):
    """The arguments of the search, of several sources."""

    source: given_as.Sources | None = None  # type: ignore[assignment]


_SPEC = replace(search.SPEC, arguments=SearchCommandArguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument(
        "query",
        nargs="*",
        type=_parse_word,
        metavar="WORD",
        help='words, "a phrase", prefix*, OR, NOT',
    )
    parser.add_argument("--session", metavar="ID", help="in this one alone")
    parser.add_argument(
        "--project", type=parse_text, metavar="FOLDER", help="worked on in it, or below it"
    )
    parser.add_argument(
        "--source", type=parse_text, action="append", help="such as cli; may be repeated"
    )
    parser.add_argument("--status", choices=("open", "ended", "archived", "all"))
    parser.add_argument(
        "--since", type=parse_time_option, metavar="TIME", help="said since; 7d, 12h, a date"
    )
    parser.add_argument("--until", type=parse_time_option, metavar="TIME", help="said before")
    parser.add_argument("--role", action="append", help="said by user, assistant, tool")
    parser.add_argument("--substring", action="store_true", help="the very signs, no words")
    parser.add_argument("--every", action="store_true", help="every message, not the best of each")
    add_page_options(parser, 10, "hits")
    add_home_options(parser)
    add_json_option(parser)


def _parse_word(text: str) -> str:
    """Return what is looked for, as an argument."""
    if not text.strip():
        raise argparse.ArgumentTypeError("there is nothing in it to look for; type a word")
    return text


def run(options: argparse.Namespace) -> int:
    """Search them."""
    if not options.query and options.cursor is None:
        raise InvalidInput("name a WORD to search for, or the --cursor of a page to go on behind")
    asked = {name: getattr(options, name) for name in _PASSED_OPTIONS}
    asked |= {
        "query": " ".join(options.query) if options.query else None,
        "roles": options.role,
        "mode": "substring" if options.substring else None,
        "per": "message" if options.every else None,
    }
    return show_answer(
        options,
        lambda tools: tools.collect_pages(_SPEC, asked, "hits", options.limit, options.cursor),
        _show_hits,
    )


def _show_hits(found: Answer) -> None:
    out = get_terminal()
    if not found["hits"]:
        out.write_line("Nothing found: try fewer words, or the beginning of one with * behind it.")
    for hit in found["hits"]:
        profile = f" · {hit['profile']}" if "profile" in hit else ""
        out.write_line(hit["title"] or "(no title)", "bold")
        out.write_line(
            f"  {format_age(hit['at'])} · {hit['role']} · {hit['session_id']} "
            f"· message {hit['message_id']}{profile}",
            "dim",
        )
        out.write_text(hit["snippet"])
    if found["matched"] in ("prefix", "any"):
        out.write_hint(
            f"No message has all these words: found by {_MATCH_LABELS[found['matched']]}."
        )
    if found["searched_back_to"] is not None:
        out.write_hint(f"Searched back to {found['searched_back_to']}; --since narrows it.")


_MATCH_LABELS = {"prefix": "how they begin", "any": "any of them"}
