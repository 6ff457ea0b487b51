"""The bare command, typed by a person: what it found here, and what to type next."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mcp_serve import render
from mcp_serve.cli import missing_home
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.screen import Screen, ago
from mcp_serve.profiles import Options, Served
from mcp_serve.render import plain
from session_core import SessionDB, SessionError, SessionSummary, find_home

_NEWEST = 3
_BESIDE = 22
"""A command that is shorter has what it does beside it."""

_NEXT = (
    ("mcp-sessions install", "tell your client of it; lists the clients that are here"),
    ("mcp-sessions demo", "see what it does, on made-up conversations"),
    ("mcp-sessions --help", "everything else"),
)


def run(options: argparse.Namespace) -> int:
    """Say which home it is and what is newest in it."""
    choose_driver()
    served = Served(
        Options(home=options.home, profiles=options.profile, all_profiles=options.all_profiles)
    )
    screen, path = Screen(sys.stdout), served.path()
    screen.whole(f"Sessions in {path} ({missing_home.named_by(served)})")
    try:
        with SessionDB(find_home(path).db_path, read_only=True) as db:
            newest = [_one_line(db, found) for found in db.list_sessions(limit=_NEWEST).items]
    except SessionError as error:
        newest = []
        screen.whole(f"  they cannot be read: {error}")
    else:
        if not newest:
            screen.block("  ", _none(path))
    if newest:
        screen.line(f"  {'active':>7}  title")
    for line in newest:
        screen.line(line)
    screen.line()
    for command, does in _next(options.home):
        if len(command) < _BESIDE:
            screen.block(f"  {command:<{_BESIDE}}", does)
        else:
            screen.whole(f"  {command}")
            screen.block("    ", does)
    return 0


def _next(home: str | None) -> Iterator[tuple[str, str]]:
    """Yield what may be typed next; a client is told of the home that was named."""
    where = "" if home is None else f" --home {shlex.quote(home)}"
    for command, does in _NEXT:
        yield command + (where if command.endswith("install") else ""), does


def _none(path: Path) -> str:
    missing = missing_home.reason(path)
    return f"none yet: {missing}; {missing_home.to_do(path)}" if missing else "none yet"


def _one_line(db: SessionDB, summary: SessionSummary) -> str:
    when = ago(time.time() - summary.last_active_at)
    title = plain(summary.title) if summary.title else render.preview(db, summary)
    return f"  {when:>7}  {title or '(nothing in it)'}"
