"""`mcp-sessions import`: conversations that were exported come in, after a look at the file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mcp_serve.cli import missing_home
from mcp_serve.cli.arguments import file, whole
from mcp_serve.cli.errors import DECLINED, DONE, FAILED, INTERRUPTED, PARTIAL
from mcp_serve.cli.options import command, of_answers, of_extension, of_homes
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import agreed, declined
from mcp_serve.cli.progress import Bar, Working
from mcp_serve.cli.terminal import Column, Terminal
from mcp_serve.cli.tool_calls import Tools
from session_core import Arrivals, Conflict, Imported

EXAMPLES = """\
It reads JSON Lines of `mcp-sessions export` or of Hermes. What is there already
stays as it is.

examples:
  mcp-sessions import sessions.jsonl               show it, ask, bring it in
  mcp-sessions import sessions.jsonl --plan-only   show it, no more
  mcp-sessions import sessions.jsonl --yes --json | jq -r '.ids[]'
"""

_MB = 1_000_000
_COMING = (Column("msgs", right=True), Column("title", yields=True), Column("id", copied=True))
_LEFT = (Column("where"), Column("why", wraps=True))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("file", type=file, metavar="FILE", help="what was exported, as JSON Lines")
    parser.add_argument(
        *("--plan-only", "--dry-run"), action="store_true", help="show what would come in, stop"
    )
    parser.add_argument(
        "--limit", type=whole(1), metavar="N", default=20, help="how much of it is shown (20)"
    )
    parser.add_argument("--yes", action="store_true", help="bring it in without a question")
    of_extension(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Show it, ask, bring it in, say how to take it back."""
    path: Path = options.file
    out = Terminal(sys.stderr if options.json else sys.stdout)
    with Tools(options, changes=True, new=True) as tools:
        maintenance = tools.home.maintenance_for(Working.client)
        seen = _state(path)
        with Bar("Reading, in MB") as bar:
            found = maintenance.arrivals(
                path, progress=lambda done, of: bar.tell(done // _MB, of // _MB + 1)
            )
        if not (options.json and (options.yes or options.plan_only)):
            _preview(out, found, options.limit)
        if found.sessions and (missing := missing_home.reason(tools.home.path)):
            out.line(f"A home begins with them in {tools.home.path}: {missing}.")
        if options.plan_only or not found.sessions:
            if found.sessions and not options.json:
                out.line("\nNothing was changed. Do it by")
                out.whole(f"  {command(options, 'import', str(options.file))}")
            _answer(options, "planned" if found.sessions else "nothing", found)
            return FAILED if found.broken and not found.sessions else DONE
        if not agreed(f"\nBring in {_sessions(len(found.sessions))}?", yes=options.yes):
            Terminal(sys.stderr).line(declined())
            _answer(options, "declined", found)
            return DECLINED
        if _state(path) != seen:
            raise Conflict(f"{path} has changed meanwhile; look at it again")
        with Working("Importing") as work:
            done = maintenance.import_(path, progress=work.tell, stop=work.is_cancelled)
    if options.json:
        print_json(asdict(done))
    else:
        _say(options, out, done)
    if done.outcome == "partial":
        return INTERRUPTED
    return PARTIAL if done.broken else DONE


def _answer(options: argparse.Namespace, outcome: str, found: Arrivals) -> None:
    """Print what would come in, beside the keys of what has: nothing."""
    if options.json:
        said = asdict(found)
        items = said.pop("sessions")
        nothing = {"sessions": 0, "messages": 0, "ids": ()}
        print_json({"outcome": outcome, **nothing, **said, "items": items})


def _preview(out: Terminal, found: Arrivals, limit: int) -> None:
    if not found.sessions:
        out.line("Nothing would come in.", "bold")
    else:
        messages = sum(each.messages for each in found.sessions)
        what = f"{_sessions(len(found.sessions))} with {messages:,} messages"
        out.line(f"{what} would come in:", "bold")
        shown = found.sessions[:limit]
        out.table(
            _COMING, [[f"{each.messages:,}", each.title or "(no title)", each.id] for each in shown]
        )
        _more(out, len(found.sessions) - len(shown))
    _left(out, found, limit)


def _say(options: argparse.Namespace, out: Terminal, done: Imported) -> None:
    end = "Brought in" if done.outcome == "applied" else "Stopped; brought in so far"
    out.line(f"{end}: {_sessions(done.sessions)} with {done.messages:,} messages.", "bold")
    _left(out, done, options.limit)
    if done.outcome == "partial":
        out.line("Go on with it by")
        out.whole(f"  {command(options, 'import', str(options.file))}")
    if done.batch is not None:
        out.line("Undo it by")
        out.whole(f"  {command(options, 'restore', done.batch)}")


def _whys(found: Arrivals | Imported) -> Iterator[tuple[str, str]]:
    yield from ((f"line {each.line}", each.why) for each in found.broken)
    yield from ((each.id, each.why) for each in (*found.skipped, *found.left_out))


def _left(out: Terminal, found: Arrivals | Imported, limit: int) -> None:
    """Show what does not come in: lines and values, columns, and the chat state."""
    rows: Sequence[tuple[str, str]] = list(_whys(found))
    if rows:
        out.line()
        out.line("Left out:", "bold")
        out.table(_LEFT, rows[:limit], bare=True)
        _more(out, len(rows) - limit)
    if found.more_broken:
        out.line(f"and {found.more_broken:,} more lines that cannot be imported", "dim")
    for table, names in found.dropped_columns.items():
        out.line(f"This home has no {', '.join(names)} of {table}; left out.")
    if found.chat_state:
        state = ", ".join(f"{name} ({count:,})" for name, count in found.chat_state.items())
        out.line(f"An import brings no routes, chats or hand-offs; left out: {state}.")


def _more(out: Terminal, count: int) -> None:
    if count > 0:
        out.line(f"and {count:,} more; --limit shows them", "dim")


def _sessions(count: int) -> str:
    return f"{count:,} session" + "s" * (count != 1)


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file, None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
