"""`mcp-sessions import`: import conversations from an export, after a preview."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mcp_serve.cli import missing_home
from mcp_serve.cli.argument_parser import make_integer_parser, parse_file
from mcp_serve.cli.command_errors import DECLINED, DONE, FAILED, INTERRUPTED, PARTIAL
from mcp_serve.cli.options import (
    add_extension_option,
    add_home_options,
    add_json_option,
    add_quiet_option,
    format_command,
)
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import ask_confirmation, format_declined
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import TableColumn, Terminal, format_number
from mcp_serve.cli.tool_calls import ToolCaller
from mcp_serve.stores.homes import ServedHome
from session_core import Conflict
from session_core.maintenance import ImportPreview, ImportResult

EXAMPLES = """\
Reads JSON Lines written by `mcp-sessions export` or by Hermes. Sessions that exist
are not changed.

examples:
  mcp-sessions import sessions.jsonl               show the contents and ask
  mcp-sessions import sessions.jsonl --plan-only   show the contents and exit
  mcp-sessions import sessions.jsonl --yes --json | jq -r '.ids[]'
"""

_MEGABYTE = 1_000_000
_SESSION_COLUMNS = (
    TableColumn("msgs", right=True),
    TableColumn("title", yields=True),
    TableColumn("id", copied=True),
)
_LEFT_OUT_COLUMNS = (TableColumn("where"), TableColumn("why", wraps=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("file", type=parse_file, metavar="FILE", help="export in JSON Lines")
    parser.add_argument(
        *("--plan-only", "--dry-run"), action="store_true", help="show the contents and exit"
    )
    parser.add_argument(
        *("-n", "--limit"),
        type=make_integer_parser(1),
        metavar="N",
        default=20,
        help="number of items to show (default: 20)",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="import without asking")
    add_quiet_option(parser)
    add_extension_option(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show a preview, ask, import, and print the command that undoes it."""
    path: Path = options.file
    # With --json, standard output is the answer alone.
    out = Terminal(sys.stderr if options.json else sys.stdout)
    with ToolCaller(options, changes=True, new=True) as tools:
        maintenance = tools.home.maintenance
        state = _read_file_state(path)
        with ProgressBar("Reading, in MB") as bar:
            preview = maintenance.preview_import(
                path,
                progress=lambda done, total: bar.report_progress(
                    done // _MEGABYTE, total // _MEGABYTE + 1
                ),
            )
        is_silent = options.json or options.quiet
        if not (is_silent and (options.yes or options.plan_only)):
            _show_preview(out, preview, options.limit, tools.home)
        if options.plan_only or not preview.sessions:
            if preview.sessions and not is_silent:
                out.write_line("\nNothing was changed. Import with")
                out.write_unwrapped(f"  {format_command(options, 'import', str(options.file))}")
            _print_preview(options, "planned" if preview.sessions else "nothing", preview)
            return FAILED if preview.broken and not preview.sessions else DONE
        if not ask_confirmation(
            f"\nImport {format_number(len(preview.sessions), 'session')}?", yes=options.yes
        ):
            Terminal(sys.stderr).write_line(format_declined())
            _print_preview(options, "declined", preview)
            return DECLINED
        # The user has confirmed the preview of the file as it was.
        if _read_file_state(path) != state:
            raise Conflict(f"{path} changed after it was read; run the import again")
        with TerminalProgress("Importing") as work:
            result = maintenance.import_sessions(
                path,
                client=work.client,
                progress=work.report_progress,
                stop=work.is_cancelled,
            )
    if options.json:
        print_json(asdict(result))
    elif not options.quiet:
        _show_result(options, out, result)
    if result.outcome == "partial":
        return INTERRUPTED
    return PARTIAL if result.broken else DONE


def _print_preview(options: argparse.Namespace, outcome: str, preview: ImportPreview) -> None:
    """Print the preview as JSON with zeros for the keys of the result."""
    if options.json:
        fields = asdict(preview)
        items = fields.pop("sessions")
        zeros = {"sessions": 0, "messages": 0, "ids": ()}
        print_json({"outcome": outcome, **zeros, **fields, "items": items})


def _show_preview(out: Terminal, preview: ImportPreview, limit: int, home: ServedHome) -> None:
    if not preview.sessions:
        out.write_line("There is nothing to import.", "bold")
    else:
        messages = sum(session.messages for session in preview.sessions)
        what = _format_counts(len(preview.sessions), messages)
        out.write_line(f"Import {what}:", "bold")
        sessions = preview.sessions[:limit]
        out.write_table(
            _SESSION_COLUMNS,
            [
                [f"{session.messages:,}", session.title or "(no title)", session.id]
                for session in sessions
            ],
        )
        _show_remaining_count(out, len(preview.sessions) - len(sessions))
    _show_left_out(out, preview, limit)
    if preview.sessions and (missing := missing_home.find_missing_reason(home)):
        out.write_line(f"The import creates a home in {home.place}: {missing}.")


def _show_result(options: argparse.Namespace, out: Terminal, result: ImportResult) -> None:
    end = "Imported" if result.outcome == "applied" else "Stopped; imported so far"
    out.write_line(
        f"{end}: {_format_counts(result.sessions, result.messages)}.",
        "bold",
    )
    _show_left_out(out, result, options.limit)
    if result.outcome == "partial":
        out.write_line("Continue with")
        out.write_unwrapped(f"  {format_command(options, 'import', str(options.file))}")
    if result.batch is not None:
        out.write_line("Undo with")
        out.write_unwrapped(f"  {format_command(options, 'restore', result.batch)}")


def _list_reasons(result: ImportPreview | ImportResult) -> Iterator[tuple[str, str]]:
    yield from ((f"line {item.line}", item.why) for item in result.broken)
    yield from ((item.id, item.why) for item in (*result.skipped, *result.left_out))


def _show_left_out(out: Terminal, result: ImportPreview | ImportResult, limit: int) -> None:
    """Show the lines, values, columns and chat state that are left out."""
    rows: Sequence[tuple[str, str]] = list(_list_reasons(result))
    if rows:
        out.write_line()
        out.write_line("Left out:", "bold")
        out.write_table(_LEFT_OUT_COLUMNS, rows[:limit], bare=True)
        _show_remaining_count(out, len(rows) - limit)
    if result.more_broken:
        out.write_line(f"and {result.more_broken:,} more lines that cannot be imported", "dim")
    for table, names in result.dropped_columns.items():
        out.write_line(f"This home has no column {', '.join(names)} in {table}; left out.")
    if result.chat_state:
        state = ", ".join(f"{name} ({count:,})" for name, count in result.chat_state.items())
        out.write_line(f"Routes, chats and hand-offs are not imported; left out: {state}.")


def _show_remaining_count(out: Terminal, count: int) -> None:
    if count > 0:
        out.write_line(f"and {count:,} more; raise --limit to show them", "dim")


def _format_counts(sessions: int, messages: int) -> str:
    return f"{format_number(sessions, 'session')} with {format_number(messages, 'message')}"


def _read_file_state(path: Path) -> tuple[int, ...] | None:
    """Return values that change with a file, or None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
