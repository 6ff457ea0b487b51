"""`mcp-sessions routes`: list chats and their current sessions."""

from __future__ import annotations

import argparse

from mcp_serve.cli.argument_parser import parse_text
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import TableColumn, format_age
from mcp_serve.cli.tool_calls import Answer, fetch_and_show_answer, get_terminal
from mcp_serve.tools import routes

_COLUMNS = (
    TableColumn("active", right=True),
    TableColumn("state"),
    TableColumn("name", yields=True),
    TableColumn("chat", copied=True),
    TableColumn("session", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions routes                        the most recently used chats
  mcp-sessions routes --platform telegram --state suspended
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("query", nargs="*", metavar="WORD", help="words in the key or name")
    parser.add_argument("--platform", type=parse_text, help="such as telegram")
    parser.add_argument(
        "--state",
        choices=("active", "suspended", "resume_pending", "expired", "stale", "dangling"),
        help="state of the route",
    )
    add_page_options(parser, 50)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the routes."""
    arguments = {
        "query": " ".join(options.query) or None,
        "platform": options.platform,
        "state": options.state,
    }
    return fetch_and_show_answer(
        options,
        lambda tools: tools.collect_pages(
            routes.SPEC, arguments, "routes", options.limit, options.cursor
        ),
        _show_routes,
    )


def _show_routes(answer: Answer) -> None:
    out = get_terminal()
    if not answer["routes"]:
        out.write_line("No matching routes.")
        return
    out.write_table(_COLUMNS, [_format_row(row) for row in answer["routes"]])
    if answer["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit or filter by words or --state.")


def _format_row(row: Answer) -> list[str]:
    return [
        format_age(row["updated_at"]),
        row["state"],
        row["name"] or "",
        row["session_key"],
        row["session_id"],
    ]
