"""`mcp-sessions show`: show the messages of a conversation."""

from __future__ import annotations

import argparse
from functools import partial

from mcp_serve.cli.argument_parser import make_integer_parser
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import Terminal, format_local_time, format_number
from mcp_serve.cli.tool_calls import Answer, ToolCaller, fetch_and_show_answer, get_terminal
from mcp_serve.tools import read
from session_core import InvalidInput

EXAMPLES = """\
examples:
  mcp-sessions show 20261118_09                 the newest messages, by a prefix of the id
  mcp-sessions show "The ledger" --limit 500    more messages, by title
  mcp-sessions show 20261118_09 --around 4711   messages around a search hit
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "session", nargs="?", metavar="ID", help="id, prefix of an id, session key or title"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--before", type=make_integer_parser(), metavar="MESSAGE", help="messages before this one"
    )
    place.add_argument(
        "--after", type=make_integer_parser(), metavar="MESSAGE", help="messages after this one"
    )
    place.add_argument(
        "--around",
        type=make_integer_parser(),
        metavar="MESSAGE",
        help="messages around this one, which is marked with >",
    )
    parser.add_argument(
        "--role", action="append", help="only this role: user, assistant or tool; repeatable"
    )
    parser.add_argument("--full", action="store_true", help="include compressed messages")
    parser.add_argument("--tools", action="store_true", help="show tool output in full")
    add_page_options(parser, 50, "messages")
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the messages in order."""
    if options.session is None and options.cursor is None:
        raise InvalidInput("name the ID of a session, or continue a page with --cursor")
    arguments = {
        "session": options.session,
        "before": options.before,
        "after": options.after,
        "around": options.around,
        "roles": options.role,
        "view": "full" if options.full else None,
        "detail": "detailed" if options.tools else "concise",
        "max_chars": 40_000,
    }

    def fetch_answer(tools: ToolCaller) -> Answer:
        answer = tools.collect_pages(
            read.SPEC, arguments, "messages", options.limit, options.cursor
        )
        answer["messages"].sort(key=lambda message: message["id"])
        return answer

    return fetch_and_show_answer(options, fetch_answer, partial(_show_session, options.around))


def _show_session(marked: int | None, answer: Answer) -> None:
    out = get_terminal()
    session = answer["session"]
    out.write_line(session["title"] or session["preview"] or session["id"], "bold")
    # The messages of a transcript are counted when it was read to its end.
    counted = [format_number(session["messages"], "message")] if "messages" in session else []
    started = f"started {format_local_time(session['started_at'])}"
    facts = [session["id"], session["source"], session["status"], *counted, started]
    out.write_line(" · ".join(facts), "dim")
    if "resume" in session:
        out.write_line(f"resume: {session['resume']}", "dim")
    if "kept" in session:
        out.write_line(f"{session['source']} has deleted it; this is the kept copy", "dim")
    for message in answer["messages"]:
        _show_message(out, message, is_marked=message["id"] == marked)
    if answer["next_cursor"] is not None:
        first = answer["messages"][0]["id"] if answer["messages"] else 0
        out.write_hint(f"There are more; use --before {first} or raise --limit.")


def _show_message(out: Terminal, message: Answer, *, is_marked: bool) -> None:
    tool = f" · {message['tool']}" if "tool" in message else ""
    out.write_line()
    facts = f"{message['role']}{tool} · {format_local_time(message['at'])} · {message['id']}"
    out.write_line(f"> {facts}" if is_marked else facts, "bold yellow" if is_marked else "dim")
    cut = f" … {message['cut_chars']:,} more characters" if "cut_chars" in message else ""
    out.write_text(message["text"] + cut)
