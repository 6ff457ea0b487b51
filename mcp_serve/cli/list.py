"""`mcp-sessions list`: list the newest conversations, one line each."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import get_args

from mcp_serve.cli import filters
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import TableColumn, format_age
from mcp_serve.cli.tool_calls import Answer, get_terminal, show_answer, show_list
from mcp_serve.tools import list as tools_list
from session_core.types import SessionOrder

_COLUMNS = (
    TableColumn("active", right=True),
    TableColumn("msgs", right=True),
    TableColumn("title", yields=True),
    TableColumn("from", optional=1),
    TableColumn("id", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions list                            the newest conversations
  mcp-sessions list ledger --project ~/shop    with this word in the title, in this folder
  mcp-sessions list --older-than 90d --min-cost 1
  mcp-sessions list --limit 1000 --json        everything, for a script
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("query", nargs="*", metavar="WORD", help="words in the title or name")
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
    asked = filters.read_given_options(options) | {"order": options.order}
    asked.pop("limit", None)
    if options.query:
        asked["query"] = " ".join(options.query)
    else:
        asked.pop("query", None)
    spec = replace(tools_list.SPEC, arguments=filters.ListFilterArguments)
    return show_answer(
        options,
        lambda tools: tools.collect_pages(spec, asked, "sessions", options.limit, options.cursor),
        _show_sessions,
    )


def _show_sessions(found: Answer) -> None:
    out = get_terminal()
    if not found["sessions"]:
        out.write_line("No matching conversations.")
        return
    show_list(_COLUMNS, found["sessions"], _format_row)
    if found["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit or narrow the filters.")


def _format_row(each: Answer) -> list[str]:
    shown = each["title"] or each["preview"] or "(nothing in it)"
    # The messages of a transcript are counted when it was read to its end.
    count = f"{each['messages']:,}" if "messages" in each else "-"
    # The agent has deleted it, and the kept copy is shown.
    source = f"{each['source']}, kept" if "kept" in each else each["source"]
    row = [format_age(each["last_active_at"]), count, shown, source]
    return [*row, each["id"]]
