"""The command without a verb: show the newest sessions and the next commands."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator

from mcp_serve import render
from mcp_serve.cli import missing_home, transcript_summary
from mcp_serve.cli.options import choose_driver, get_home_without_password
from mcp_serve.cli.terminal import Terminal, format_elapsed
from mcp_serve.plain_text import to_plain_line
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore, Summary
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionError, SessionFilter

_NEWEST_COUNT = 3
_NOT_EMPTY = SessionFilter(min_messages=1)
_COMMAND_WIDTH = 28
"""Shorter commands have their description on the same line."""

_READING_COMMANDS = (
    ("list", "", "list the newest conversations"),
    ("search", " WORDS", "search the text of all messages"),
)
_NEXT_COMMANDS = (
    ("mcp-sessions install", "register the server with a client; lists your clients"),
    ("mcp-sessions demo", "try the program with a sample home"),
    ("mcp-sessions --help", "everything else"),
)


def run(options: argparse.Namespace) -> int:
    """Show the home, its newest sessions and the next commands."""
    choose_driver()
    served = ServedStores(
        ServerOptions(home=options.home, stores=options.store, all_profiles=options.all_profiles)
    )
    out = Terminal(sys.stdout)
    has_sessions = bool(served.transcript_names)
    if served.home_names:
        has_sessions |= _show_home(out, served)
    transcript_summary.show_stores(out, served)
    served.close()
    out.write_line()
    for command, does in _list_next_commands(options.home, has_sessions=has_sessions):
        if len(command) < _COMMAND_WIDTH:
            out.write_block(f"  {command:<{_COMMAND_WIDTH}}", does)
        else:
            out.write_unwrapped(f"  {command}")
            out.write_block("    ", does)
    return 0


def _show_home(out: Terminal, served: ServedStores) -> bool:
    """Show the newest sessions of the home and return True if it has any.

    A home of our own that nothing needs is left out.
    """
    place = served.get_place()
    if missing_home.list_needless_homes(served):
        return False
    out.write_unwrapped(f"Sessions in {place} ({missing_home.find_naming_source(served)})")
    try:
        home = served.get_home()
        newest = [
            _format_session(home, summary)
            for summary in home.list_sessions(_NOT_EMPTY, limit=_NEWEST_COUNT).items
        ]
    except SessionError as error:
        newest = []
        out.write_unwrapped(f"  cannot be read: {error}")
    else:
        if not newest:
            out.write_block("  ", _describe_empty_home(served.get_home()))
    if newest:
        out.write_line(f"  {'active':>7}  title")
    for line in newest:
        out.write_truncated(line)
    return bool(newest)


def _list_next_commands(home: str | None, *, has_sessions: bool) -> Iterator[tuple[str, str]]:
    """Yield commands with descriptions.

    Commands that need a home repeat the named home.
    """
    where = "" if home is None else f" --home {shlex.quote(get_home_without_password(home))}"
    for verb, words, does in _READING_COMMANDS if has_sessions else ():
        yield f"mcp-sessions {verb}{where}{words}", does
    for command, does in _NEXT_COMMANDS:
        yield command + (where if command.endswith("install") else ""), does


def _describe_empty_home(home: ServedHome) -> str:
    missing = missing_home.find_missing_reason(home)
    return f"none yet: {missing}; {missing_home.suggest_remedy(home)}" if missing else "none yet"


def _format_session(store: ServedStore, summary: Summary) -> str:
    when = format_elapsed(time.time() - summary.last_active_at)
    title = to_plain_line(summary.title) if summary.title else render.render_preview(store, summary)
    return f"  {when:>7}  {title or '(empty)'}"
