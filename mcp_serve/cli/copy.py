"""`mcp-sessions copy`: copy the sessions of one home into another, after a preview."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from mcp_serve.cli.argument_parser import make_integer_parser, parse_text
from mcp_serve.cli.command_errors import DECLINED, DONE, INTERRUPTED, PARTIAL
from mcp_serve.cli.missing_home import find_missing_reason
from mcp_serve.cli.options import (
    add_json_option,
    add_quiet_option,
    choose_driver,
    get_home_without_password,
)
from mcp_serve.cli.output import clean_text, print_json
from mcp_serve.cli.plan_command import ask_confirmation, format_declined
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import TableColumn, Terminal, format_number
from mcp_serve.stores.homes import ServedHome
from session_core import NotFound, find_home
from session_core.maintenance import CopyPreview, CopyResult, copy_home, preview_copy

EXAMPLES = """\
A and B are folders, files that end in .db, or postgresql:// addresses. B is made
if it is missing, and is never a Hermes home. Nothing is removed from A or B. The
same command continues a stopped copy, and later copies new data. A session that
was removed from B since then is not copied again. Routes, plans and the trash
stay in A.

examples:
  mcp-sessions copy ~/.hermes 'postgresql://?service=fleet&home=team'
  mcp-sessions copy ~/.hermes backup.db --plan-only   preview the copy
  mcp-sessions copy ~/.hermes backup.db --yes --json | jq .copied
"""

_SKIPPED_COLUMNS = (TableColumn("session", copied=True), TableColumn("why", wraps=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    for name, does in (("source", "home to copy"), ("target", "home that gets the sessions")):
        metavar = "A" if name == "source" else "B"
        parser.add_argument(name, type=parse_text, metavar=metavar, help=does)
    parser.add_argument("--plan-only", action="store_true", help="preview the copy and exit")
    parser.add_argument(
        *("-n", "--limit"),
        type=make_integer_parser(1),
        metavar="N",
        default=20,
        help="number of items to show (default: 20)",
    )
    parser.add_argument(
        "--removed", action="store_true", help="also copy sessions that were removed from B"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="copy without asking")
    add_quiet_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show a preview, ask, copy, and report what is not equal on both sides."""
    # With --json, standard output is the answer alone.
    out = Terminal(sys.stderr if options.json else sys.stdout)
    choose_driver()
    with (
        _open_home(options.source, read_only=True) as source,
        _open_home(options.target, read_only=False) as target,
    ):
        missing = find_missing_reason(source)
        if missing is not None:
            raise NotFound(f"there is no home in {source.place}: {missing}")
        with ProgressBar("Looking") as bar:
            preview = preview_copy(
                source.db,
                target.db,
                copies_removed=options.removed,
                progress=bar.report_progress,
            )
        is_silent = options.json or options.quiet
        if not (is_silent and (options.yes or options.plan_only)):
            _show_preview(out, preview, source, target, options.limit)
        if options.plan_only or _is_empty_preview(preview):
            _print_preview(options, preview)
            return DONE
        question = f"\nCopy {_describe_copied_sessions(preview)}?"
        if not ask_confirmation(question, yes=options.yes):
            Terminal(sys.stderr).write_line(format_declined())
            _print_preview(options, preview, "declined")
            return DECLINED
        with TerminalProgress("Copying") as work:
            done = copy_home(
                source.db,
                target.db,
                copies_removed=options.removed,
                progress=work.report_progress,
                stop=work.is_cancelled,
            )
    if options.json:
        print_json(asdict(done))
    elif not options.quiet or done.differing:
        _show_result(options, out, done)
    if done.outcome == "partial":
        return INTERRUPTED
    return PARTIAL if done.differing else DONE


@contextmanager
def _open_home(named: str, *, read_only: bool) -> Iterator[ServedHome]:
    home = ServedHome(find_home(named).place, read_only=read_only)
    try:
        yield home
    finally:
        home.close()


def _print_preview(
    options: argparse.Namespace, preview: CopyPreview, outcome: str = "planned"
) -> None:
    """Print the preview as JSON, with the keys of the result."""
    if options.json:
        fields: dict[str, Any] = asdict(preview)
        print_json({"outcome": "nothing" if _is_empty_preview(preview) else outcome, **fields})


def _is_empty_preview(preview: CopyPreview) -> bool:
    """Return True if there is nothing to copy or to compare."""
    return not preview.sessions + preview.present + preview.values


def _describe_copied_sessions(preview: CopyPreview) -> str:
    """Return what a copy brings, in words."""
    new = format_number(preview.sessions, "session")
    text = f"{new} with {format_number(preview.messages, 'message')}"
    if preview.present:
        text += f", and compare {preview.present:,} that the target has"
    return text


def _show_preview(
    out: Terminal, preview: CopyPreview, source: ServedHome, target: ServedHome, limit: int
) -> None:
    if _is_empty_preview(preview):
        out.write_line("There is nothing to copy.", "bold")
        _show_removed(out, preview.removed)
        return
    out.write_line(f"Copy {_describe_copied_sessions(preview)}", "bold")
    out.write_unwrapped(f"  from {source.place}")
    out.write_unwrapped(f"  to   {target.place}")
    missing = find_missing_reason(target)
    if missing is not None:
        out.write_line(f"The copy makes this home: {missing}.")
    _show_skipped(out, "The target cannot hold:", preview.left_out, limit)
    for table, names in preview.dropped_columns.items():
        out.write_line(f"The target has no column {', '.join(names)} in {table}; left out.")
    _show_removed(out, preview.removed)
    if preview.values:
        values = format_number(preview.values, "value")
        out.write_line(f"{values} of applications: added if the target lacks the key.")
    if preview.pins:
        out.write_line(f"{format_number(preview.pins, 'pin')}: added.")
    if preview.routes:
        routes = format_number(preview.routes, "route")
        out.write_line(f"{routes} of the source: not copied; chats continue in A.")
    if preview.batches:
        changes = format_number(preview.batches, "change")
        out.write_line(f"The trash of {changes}: not copied; restore in A.")


def _show_removed(out: Terminal, removed: int) -> None:
    if removed:
        sessions = format_number(removed, "session")
        out.write_line(f"{sessions} removed from B since a copy: not copied; pass --removed.")


def _show_result(options: argparse.Namespace, out: Terminal, done: CopyResult) -> None:
    is_whole = done.outcome == "applied"
    out.write_line(
        f"{'Done' if is_whole else 'Stopped; so far'}: {done.copied:,} copied, {done.updated:,} "
        f"updated, {done.unchanged:,} unchanged; {format_number(done.messages, 'message')} added.",
        "bold",
    )
    if is_whole and not done.differing:
        out.write_line("Every session was read again and is equal on both sides.")
    if done.renumbered:
        sessions = format_number(len(done.renumbered), "session")
        out.write_line(f"The messages of {sessions} have other ids: theirs were taken.")
    _show_removed(out, done.removed)
    _show_skipped(out, "Left out:", done.left_out, options.limit)
    _show_skipped(out, "Not equal on both sides:", done.differing, options.limit)
    if not is_whole:
        out.write_line("Continue with")
        places = [get_home_without_password(home) for home in (options.source, options.target)]
        out.write_unwrapped(f"  {shlex.join(['mcp-sessions', 'copy', *places])}")


def _show_skipped(out: Terminal, title: str, items: Any, limit: int) -> None:
    if not items:
        return
    out.write_line()
    out.write_line(title, "bold")
    rows = [[clean_text(item.id), clean_text(item.why)] for item in items[:limit]]
    out.write_table(_SKIPPED_COLUMNS, rows, bare=True)
    if len(items) > limit:
        out.write_line(f"and {len(items) - limit:,} more; raise --limit to show them", "dim")
