"""`mcp-sessions list`: list the newest conversations, one line each."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import get_args

from mcp_serve.cli import filters
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import TableColumn, format_age, format_count
from mcp_serve.cli.tool_calls import (
    Answer,
    ToolCaller,
    fetch_and_show_answer,
    get_terminal,
    show_list,
)
from mcp_serve.tools import list as tools_list
from session_core.types import SessionOrder

_COLUMNS = (
    TableColumn("active", right=True),
    TableColumn("msgs", right=True),
    TableColumn("title", yields=True),
    TableColumn("from", optional=1),
    TableColumn("project", optional=2),
    TableColumn("model", optional=3),
    TableColumn("cost", right=True, optional=4),
    TableColumn("tokens", right=True, optional=5),
    TableColumn("id", copied=True),
)

_SPEC = replace(tools_list.SPEC, arguments=filters.ListFilterArguments)

EXAMPLES = """\
examples:
  mcp-sessions list                            the newest conversations
  mcp-sessions list ledger --project ~/shop    with this word in the title, in this folder
  mcp-sessions list --older-than 90d --min-cost 1
  mcp-sessions list --order cost               the most expensive first
  mcp-sessions list --all -n 1000 --json       empty sessions too, for a script
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("query", nargs="*", metavar="WORD", help="words in the title or name")
    parser.add_argument(
        "--all", action="store_true", help="also empty sessions, which are hidden otherwise"
    )
    filters.add_filter_options(parser)
    parser.add_argument(
        "--order",
        choices=get_args(SessionOrder),
        help="sort order (default: recent)",
    )
    add_page_options(parser, 20)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the conversations."""
    arguments = filters.read_given_options(options) | {"order": options.order}
    arguments.pop("limit", None)
    if options.query:
        arguments["query"] = " ".join(options.query)
    else:
        arguments.pop("query", None)
    if options.cursor is None:  # a cursor carries the query
        _hide_empty_sessions(options, arguments)
        arguments["detail"] = "concise" if options.json else "detailed"
    return fetch_and_show_answer(
        options, partial(_list_sessions, options, arguments), partial(_show_sessions, options.order)
    )


def _list_sessions(options: argparse.Namespace, arguments: Answer, tools: ToolCaller) -> Answer:
    """Return the conversations, with a note if only hidden conversations match."""
    answer = tools.collect_pages(_SPEC, arguments, "sessions", options.limit, options.cursor)
    if not answer["sessions"] and options.cursor is None and not options.all:
        everything = {**arguments, "min_messages": options.min_messages}
        if tools.collect_pages(_SPEC, everything, "sessions", 1)["sessions"]:
            answer["note"] = "Only empty sessions match; --all shows them."
    return answer


def _hide_empty_sessions(options: argparse.Namespace, arguments: Answer) -> None:
    """Add the filter that hides empty sessions, unless the user filters by messages."""
    if not options.all and options.min_messages is None and options.max_messages is None:
        arguments["min_messages"] = 1


def _choose_columns(order: str | None) -> list[TableColumn]:
    """Return the columns of the list, always with the column that orders it."""
    return [replace(column, optional=0) if column.head == order else column for column in _COLUMNS]


def _show_sessions(order: str | None, answer: Answer) -> None:
    out = get_terminal()
    if not answer["sessions"]:
        if "note" not in answer:
            out.write_line("No matching conversations.")
        return
    show_list(_choose_columns(order), answer["sessions"], _format_row)
    if answer["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit or narrow the filters.")


def _format_row(session: Answer) -> list[str]:
    title = session["title"] or session["preview"] or "(empty)"
    # The messages of a transcript are counted when it was read to its end.
    count = f"{session['messages']:,}" if "messages" in session else "-"
    # The agent has deleted it, and the kept copy is shown.
    source = f"{session['source']}, kept" if "kept" in session else session["source"]
    cost = f"${session['cost']:,.2f}" if "cost" in session else ""
    tokens = format_count(session["tokens"]) if "tokens" in session else ""
    row = [format_age(session["last_active_at"]), count, title, source]
    project = PurePath(session.get("project", "")).name
    return [*row, project, session.get("model", ""), cost, tokens, session["id"]]
