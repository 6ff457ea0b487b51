"""`mcp-sessions export`: write whole conversations to files."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError
from rich.filesize import decimal

from mcp_serve import resolve
from mcp_serve.cli import filters, missing_home
from mcp_serve.cli.arguments import parse_text
from mcp_serve.cli.errors import DONE, PARTIAL, translate_arguments
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.progress import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import Terminal
from mcp_serve.cli.tool_calls import ToolCaller
from mcp_serve.errors import explain_error
from mcp_serve.homes import ServedHome
from mcp_serve.plain_text import to_plain_text
from session_core import Conflict, Denied, InvalidInput, SessionFilter, StorageError
from session_core.maintenance import ExportResult

EXAMPLES = """\
Exports contain everything stored: secrets, compressed and rewound messages. Files
are readable by their owner only, and existing files are not overwritten. Without
an ID or a filter, everything is exported, archived conversations included.

examples:
  mcp-sessions export --out sessions.jsonl      everything, as a backup
  mcp-sessions export 20261118_09 --format md   one conversation, to read
  mcp-sessions export --project ~/shop --since 30d --format md --out notes/
  mcp-sessions export --source cron | gzip > cron.jsonl.gz
"""

_FORMATS = {"jsonl": "jsonl", "md": "markdown"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "session", nargs="*", metavar="ID", help="id, prefix of an id, session key or title"
    )
    parser.add_argument(
        "--format", choices=tuple(_FORMATS), default="jsonl", help="file format (default: jsonl)"
    )
    parser.add_argument(
        "--out",
        type=parse_text,
        metavar="FILE",
        default="-",
        help="new file, or folder for one file each (default: -, standard output)",
    )
    filters.add_filter_options(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Export the conversations and report their number and size."""
    to = None if options.out == "-" else _prepare_target(options.out)
    if to is None and options.json:
        raise InvalidInput("--json needs a file; name it with --out")
    with ToolCaller(options, transcripts=False) as tools:
        if len(tools.served.home_names) != 1 or tools.served.transcript_names:
            raise InvalidInput("an export covers one home; name it with one --store")
        missing = (
            None
            if options.session or options.json
            else missing_home.format_missing_note(tools.served)
        )
        if missing is not None:
            Terminal(sys.stderr).write_line(missing)
            return DONE
        try:
            done = _export_sessions(options, tools.home, to or _choose_printer())
        except Conflict as error:  # the file exists; a retry fails too
            raise Denied(str(error)) from error
    if options.json:
        print_json(asdict(done))
    else:
        _show_result(options, done)
    return PARTIAL if done.gone or done.changed or done.there else DONE


def _export_sessions(
    options: argparse.Namespace, home: ServedHome, to: Path | Callable[[bytes], object]
) -> ExportResult:
    sessions = [resolve.find_session(home, each).id for each in options.session] or None
    with ProgressBar("Exporting") as bar:
        return home.maintenance.export_sessions(
            to,
            sessions,
            where=_build_filter(options),
            form="markdown" if options.format == "md" else "jsonl",
            client=TerminalProgress.client,
            progress=bar.report_progress,
        )


def _build_filter(options: argparse.Namespace) -> SessionFilter | None:
    """Return the filter from the options; archived conversations are included by default.

    Raises:
        InvalidInput: An option is not valid.
    """
    values = filters.read_given_options(options)
    values.pop("store", None)
    if not values:
        return None
    try:
        arguments = filters.ListFilterArguments.read({"status": "all"} | values)
    except ValidationError as error:
        raise InvalidInput(
            translate_arguments(
                explain_error(error) or "", filters.ListFilterArguments.model_fields
            )
        ) from error
    where: SessionFilter = arguments.build_filter(time.time())
    return where


def _prepare_target(name: str) -> Path:
    """Return the target path; create a folder if the name ends with a slash.

    Raises:
        StorageError: The folder cannot be created.
    """
    path = Path(name).expanduser()
    if name.endswith(("/", os.sep)):
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"cannot create {path}: {error.strerror}") from error
    return path


def _choose_printer() -> Callable[[bytes], object]:
    """Return a function that prints the export, cleaned if standard output is a terminal."""
    if sys.stdout.isatty():
        return lambda part: sys.stdout.write(to_plain_text(part.decode()))
    return sys.stdout.buffer.write


def _show_result(options: argparse.Namespace, done: ExportResult) -> None:
    errors = Terminal(sys.stderr)
    if options.out != "-":
        sessions = f"{done.sessions:,} session" + "s" * (done.sessions != 1)
        size = decimal(done.bytes)
        Terminal(sys.stdout).write_line(
            f"Wrote {sessions} with {done.messages:,} messages, {size}, to {options.out}"
        )
    for name in done.there:
        errors.write_line(f"{name} exists and was not overwritten.")
    for name in done.gone:
        errors.write_line(f"{name} was deleted during the export.")
    for name in done.changed:
        errors.write_line(f"{name} changed during the export; export it again.")
