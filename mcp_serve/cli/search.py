"""`mcp-sessions search`: search the text of all messages."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from functools import partial
from typing import get_args

from mcp_serve import arguments
from mcp_serve.cli.argument_parser import (
    CommandParser,
    parse_project,
    parse_text,
    parse_time_option,
)
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import Terminal, format_age, format_local_time
from mcp_serve.cli.tool_calls import Answer, ToolCaller, fetch_and_show_answer, get_terminal
from mcp_serve.tools import search
from session_core import InvalidInput
from session_core.types import SearchOrder

EXAMPLES = """\
examples:
  mcp-sessions search what did we decide about the schema
  mcp-sessions search '"connection pool" OR timeout' --since 30d
  mcp-sessions search timeout -proxy --source cli
  mcp-sessions search flush_batch --every --project ~/shop
"""

_TELLING_CHARS = 4
_WORD_PATTERN = re.compile(r"(?:^|(?<=[\s\"(]))(-?)(\w[\w.'/:@-]*\w|\w)")
"""The words of a query, each with the sign that excludes it."""
_BEGIN = r"(?<![^\W_])"

_PASSED_OPTIONS = (
    *("session", "project", "source", "exclude_source", "status", "since", "until"),
    *("tool", "order"),
)


class SearchCommandArguments(search.SearchArguments):
    """The arguments of the search, with several sources."""

    source: arguments.Sources | None = None  # type: ignore[assignment]
    exclude_source: arguments.Sources | None = None  # type: ignore[assignment]


_SPEC = replace(search.SPEC, arguments=SearchCommandArguments)


def add_arguments(parser: CommandParser) -> None:
    """Add the arguments of this verb."""
    parser.takes_query = True
    parser.add_argument(
        "query",
        nargs="*",
        type=_parse_word,
        metavar="WORD",
        help='words, "a phrase", prefix*, OR, NOT, -word to exclude',
    )
    parser.add_argument("--session", metavar="ID", help="only this session")
    parser.add_argument(
        "--project",
        type=parse_project,
        metavar="FOLDER",
        help="working folder is this one or below it",
    )
    parser.add_argument(
        "-s", "--source", type=parse_text, action="append", help="such as cli; repeatable"
    )
    parser.add_argument(
        "--exclude-source",
        type=parse_text,
        action="append",
        metavar="SOURCE",
        help="not this one; repeatable",
    )
    parser.add_argument(
        "--status", choices=("open", "ended", "archived", "all"), help="state of the session"
    )
    parser.add_argument(
        "--since",
        type=parse_time_option,
        metavar="TIME",
        help="messages at or after: 7d, yesterday, a date",
    )
    parser.add_argument(
        "--until",
        type=parse_time_option,
        metavar="TIME",
        help="messages at or before; includes a whole day",
    )
    parser.add_argument(
        "--role", action="append", help="only this role: user, assistant or tool; repeatable"
    )
    parser.add_argument(
        "--tool", type=parse_text, metavar="NAME", help="only calls and answers of this tool"
    )
    parser.add_argument(
        "--order",
        choices=get_args(SearchOrder),
        help="sort order (default: relevance)",
    )
    parser.add_argument(
        "--substring", action="store_true", help="match the exact characters instead of words"
    )
    parser.add_argument(
        "--every",
        action="store_true",
        help="every matching message, not the best of each conversation",
    )
    add_page_options(parser, 10, "hits")
    add_home_options(parser)
    add_json_option(parser)


def _parse_word(text: str) -> str:
    """Return a word of the query."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must contain a word")
    return text


def run(options: argparse.Namespace) -> int:
    """Search and show the hits."""
    if not options.query and options.cursor is None:
        raise InvalidInput("name a WORD to search for, or continue a page with --cursor")
    arguments = {name: getattr(options, name) for name in _PASSED_OPTIONS}
    arguments |= {
        "query": " ".join(options.query) if options.query else None,
        "roles": options.role,
        "mode": "substring" if options.substring else None,
        "per": "message" if options.every else None,
    }

    def fetch_answer(tools: ToolCaller) -> Answer:
        tools.index_transcripts()
        return tools.collect_pages(_SPEC, arguments, "hits", options.limit, options.cursor)

    marked = build_pattern(options)
    return fetch_and_show_answer(options, fetch_answer, partial(_show_hits, marked))


def build_pattern(options: argparse.Namespace) -> re.Pattern[str] | None:
    """Return the pattern of the words to highlight.

    Short words are included only if there is no longer word.
    """
    query = " ".join(options.query)
    if options.substring:
        return re.compile(re.escape(query), re.IGNORECASE) if query else None
    signed_words = _WORD_PATTERN.findall(query)
    words = [word for sign, word in signed_words if not sign and word not in ("AND", "OR", "NOT")]
    telling = [word for word in words if len(word) >= _TELLING_CHARS or not word.isascii()] or words
    if not telling:
        return None
    # A longer form of a word matches only if the search had to fall back to prefixes.
    return re.compile("|".join(f"{_BEGIN}{re.escape(word)}" for word in telling), re.IGNORECASE)


def _show_hits(marked: re.Pattern[str] | None, answer: Answer) -> None:
    out = get_terminal()
    if not answer["hits"]:
        if "note" not in answer:
            out.write_line("Nothing found; try fewer words, or a prefix such as sched*.")
        _show_searched_back_to(out, answer)
        return
    for number, hit in enumerate(answer["hits"]):
        if number:
            out.write_line()
        _show_hit(out, hit, marked)
    out.write_hint("")
    if answer["matched"] in _MATCH_LABELS:
        out.write_hint(
            f"Matched {_MATCH_LABELS[answer['matched']]}; no message has all of the words."
        )
    _show_searched_back_to(out, answer)
    out.write_hint("Read on with: mcp-sessions show ID --around MESSAGE")


def _show_hit(out: Terminal, hit: Answer, marked: re.Pattern[str] | None) -> None:
    store = f" · {hit['store']}" if "store" in hit else ""
    out.write_line(hit["title"] or "(no title)", "bold")
    out.write_line(
        f"  {format_age(hit['at'])} · {hit['role']} · {hit['session_id']} "
        f"· message {hit['message_id']}{store}",
        "dim",
    )
    out.write_text(hit["snippet"], marked=marked)
    if "next" in hit:
        out.write_text(f"→ {hit['next']}", "dim")


def _show_searched_back_to(out: Terminal, answer: Answer) -> None:
    """Show the time of the oldest message that a partial search has read."""
    if answer["searched_back_to"] is not None:
        since = format_local_time(answer["searched_back_to"])
        out.write_hint(f"Searched back to {since}; for older messages narrow it with --until.")


_MATCH_LABELS = {
    "conversation": "words in different messages of a conversation",
    "prefix": "prefixes",
    "any": "any of the words",
}
