"""`mcp-sessions compress`: a summary takes the place of the middle of a long conversation.

A person has no model at hand, so that the summary is made without one unless one is given.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from mcp_serve.cli import plan_command, plan_output
from mcp_serve.cli.arguments import some, whole
from mcp_serve.cli.options import of_answers, of_extension, of_homes
from mcp_serve.cli.terminal import Column, Terminal
from mcp_serve.cli.tool_calls import Answer
from mcp_serve.tools import compress
from session_core import InvalidInput, Limits

EXAMPLES = """\
examples:
  mcp-sessions compress 20261118_090909_ab12cd     show the summary, and ask
  mcp-sessions compress 20261118_090909_ab12cd --keep-last 40 --yes
  mcp-sessions compress 20261118_090909_ab12cd --summary mine.md

to have a model of yours write it:
  mcp-sessions compress 20261118_090909_ab12cd --method summary --plan-only
  mcp-sessions compress --plan p-23456789 --summary - --yes < what-it-wrote.md
"""

_FACTS = 8
_LINES = 12


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("session", nargs="?", metavar="ID", help="a full id, or a session key")
    parser.add_argument(
        "--summary", type=some, metavar="FILE", help="what stands in its place; - is standard input"
    )
    parser.add_argument(
        "--method",
        choices=("extractive", "summary"),
        help="extractive: made of what was said (default); summary: you give it",
    )
    parser.add_argument("--shape", choices=("auto", "in_place", "continuation"))
    parser.add_argument(
        "--keep-last",
        type=whole(0, 100_000),
        metavar="N",
        help=f"so many messages stay at the end (the last {Limits().tail_tokens:,} tokens)",
    )
    plan_command.arguments(parser)
    of_extension(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, show the summary, ask, apply."""
    if options.session is None and options.plan is None:
        raise InvalidInput("name the session to compress, or give the plan to apply")
    beside = {} if options.summary is None else {"summary": _read(options.summary)}
    method = options.method
    if method is None and options.plan is None:
        method = "summary" if beside else "extractive"
    if method == "summary" and not beside and not options.plan_only:
        raise InvalidInput("--method summary needs --summary FILE, or --plan-only for its brief")
    asked = {
        "session": options.session,
        "method": method,
        "shape": options.shape,
        "keep_last": options.keep_last,
    }
    again = ("--summary", options.summary or "FILE") if beside or method == "summary" else ()
    change = plan_command.Change(
        compress.SPEC,
        "compress",
        asked,
        beside=beside,
        again=again,
        plan=partial(_plan, summary=beside.get("summary")),
        done=_done,
    )
    return plan_command.run(options, change)


def _read(name: str) -> str:
    """Return the summary that is in a file.

    Raises:
        InvalidInput: there is none.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no summary can be read from {name}: {error}") from error


def _plan(out: Terminal, kind: str, found: Answer, *, summary: str | None) -> None:
    brief = found.get("brief")
    if brief is None:
        plan_output.plan(out, kind, found)
        return
    out.line(f"Compress {brief['messages']:,} messages, about {brief['tokens']:,} tokens", "bold")
    out.line(
        f"Those from {brief['from_id']} to {brief['to_id']}; what is before and behind them stays. "
        f"What takes their place has at most {brief['target_chars']:,} characters."
    )
    facts = brief["must_survive"]
    if facts:
        out.line()
        out.line("What work depends on, and is to survive:", "bold")
        for fact in facts[:_FACTS]:
            out.short(fact)
        _more(out, len(facts) - _FACTS)
    lines = (summary or brief["digest"]).strip().splitlines()
    if lines:
        out.line()
        out.line("The summary:" if summary else "The summary, made without a model:", "bold")
        for line in lines[:_LINES]:
            out.short(line)
        _more(out, len(lines) - _LINES)
    plan_output.room(out, kind, found["bytes"])


def _more(out: Terminal, left: int) -> None:
    if left > 0:
        out.line(f"  and {left:,} more; --plan-only --json has all", "dim")


_KEPT = (
    Column("kind", yields=True),
    Column("found", right=True),
    Column("kept", right=True),
)


def _done(out: Terminal, kind: str, found: Answer) -> None:
    before, after = found["tokens_before"], found["tokens_after"]
    less = f", {100 * (before - after) // before} % less" if before else ""
    out.line(f"Done: {before:,} tokens are {after:,} now{less}.", "bold")
    if found["shape"] == "continuation":
        out.line(f"The conversation goes on in {found['session_id']}.")
    kept = found["retention"]
    out.line(f"Of {kept['found']:,} facts {kept['kept']:,} are in the summary.")
    if kept["by_kind"]:
        rows = [
            [name, f"{there:,}", f"{left:,}"] for name, (there, left) in kept["by_kind"].items()
        ]
        out.table(_KEPT, rows)
    plan_output.skipped(out, found)
    del kind
