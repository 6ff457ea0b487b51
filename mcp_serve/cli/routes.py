"""`mcp-sessions routes`: which chat is in which session."""

from __future__ import annotations

import argparse

from mcp_serve.cli.arguments import some
from mcp_serve.cli.options import of_answers, of_homes, of_pages
from mcp_serve.cli.terminal import Column, since
from mcp_serve.cli.tool_calls import Answer, answer, terminal
from mcp_serve.tools import routes

_COLUMNS = (
    Column("active", right=True),
    Column("state"),
    Column("name", yields=True),
    Column("chat", copied=True),
    Column("session", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions routes                        the chats that were used last
  mcp-sessions routes --platform telegram --state suspended
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("query", nargs="*", metavar="WORD", help="words in its key and name")
    parser.add_argument("--platform", type=some, help="such as telegram")
    parser.add_argument(
        "--state",
        choices=("active", "suspended", "resume_pending", "expired", "stale", "dangling"),
    )
    of_pages(parser, 50)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """List them."""
    asked = {
        "query": " ".join(options.query) or None,
        "platform": options.platform,
        "state": options.state,
    }
    return answer(
        options,
        lambda tools: tools.gather(routes.SPEC, asked, "routes", options.limit, options.cursor),
        _show,
    )


def _show(found: Answer) -> None:
    out = terminal()
    if not found["routes"]:
        out.line("No chat is in a session here.")
        return
    out.table(_COLUMNS, [_row(each) for each in found["routes"]])
    if found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them, words and --state find them.")


def _row(each: Answer) -> list[str]:
    return [
        since(each["updated_at"]),
        each["state"],
        each["name"] or "",
        each["session_key"],
        each["session_id"],
    ]
