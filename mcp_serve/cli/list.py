"""`mcp-sessions list`: the newest conversations, one line each."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve.cli import filters
from mcp_serve.cli.options import of_answers, of_homes, of_pages
from mcp_serve.cli.terminal import Column, since
from mcp_serve.cli.tool_calls import Answer, answer, show_list, terminal
from mcp_serve.tools import list as tools_list

_COLUMNS = (
    Column("active", right=True),
    Column("msgs", right=True),
    Column("title", yields=True),
    Column("from", wide_only=True),
    Column("id", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions list                            the newest conversations
  mcp-sessions list ledger --project ~/shop    with this word in the title, in this project
  mcp-sessions list --older-than 90d --min-cost 1
  mcp-sessions list --limit 1000 --json        all of it, for a script
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("query", nargs="*", metavar="WORD", help="words in title and name")
    filters.add(parser)
    parser.add_argument("--order", choices=("recent", "started", "size"), help="(recent)")
    of_pages(parser, 20)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """List them."""
    asked = filters.given(options) | {"order": options.order}
    asked.pop("limit", None)
    if options.query:
        asked["query"] = " ".join(options.query)
    else:
        asked.pop("query", None)
    spec = replace(tools_list.SPEC, arguments=filters.Filtered)
    return answer(
        options,
        lambda tools: tools.gather(spec, asked, "sessions", options.limit, options.cursor),
        _show,
    )


def _show(found: Answer) -> None:
    out = terminal()
    if not found["sessions"]:
        out.line("No such conversations.")
        return
    show_list(_COLUMNS, found["sessions"], _row)
    if found["next_cursor"] is not None:
        out.hint("There are more: --limit shows them, words and filters find them.")


def _row(each: Answer) -> list[str]:
    shown = each["title"] or each["preview"] or "(nothing in it)"
    row = [since(each["last_active_at"]), f"{each['messages']:,}", shown, each["source"]]
    return [*row, each["id"]]
