"""`mcp-sessions export`: write whole conversations to files."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mcp_serve.cli import filters
from mcp_serve.cli.argument_parser import parse_text
from mcp_serve.cli.command_errors import DONE, PARTIAL, translate_arguments, translate_tool_text
from mcp_serve.cli.options import add_home_options, add_json_option, add_quiet_option
from mcp_serve.cli.output import print_json
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import Terminal, format_bytes, format_number
from mcp_serve.cli.tool_calls import ToolCaller
from mcp_serve.error_messages import explain_error
from mcp_serve.stores import known_values, session_lookup
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.locate import find_session_store
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tools import read
from session_core import Conflict, Denied, InvalidInput, SessionFilter, StorageError
from session_core.maintenance import ExportResult, export_transcripts

EXAMPLES = """\
Exports contain everything stored: secrets, compressed and rewound messages. Files
are readable by their owner only, and existing files are not overwritten. Without
an ID or a filter, everything is exported, archived conversations included. Sessions
of other agents are exported by ID, or all of one --store, with their subagents.

examples:
  mcp-sessions export --out sessions.jsonl      everything, as a backup
  mcp-sessions export 20261118_09 --format md --out 18.md   one conversation, to read
  mcp-sessions export --project ~/shop --since 30d --format md --out notes/
  mcp-sessions export --source cron | gzip > cron.jsonl.gz
  mcp-sessions export 0190a3f2 --raw > session.jsonl   as its agent wrote it
"""

_FORMATS = ("jsonl", "md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "session", nargs="*", metavar="ID", help="id, prefix of an id, session key or title"
    )
    parser.add_argument(
        "--format", choices=_FORMATS, default="jsonl", help="file format (default: jsonl)"
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="the bytes of another agent's session: its file, or its database rows as JSON",
    )
    parser.add_argument(
        *("-o", "--out"),
        type=parse_text,
        metavar="FILE",
        default="-",
        help="new file, or folder for one file each (default: -, standard output, in a pipe)",
    )
    add_quiet_option(parser)
    filters.add_filter_options(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Export the conversations and report their number and size."""
    to = None if options.out == "-" else _prepare_target(options.out)
    if to is None and options.json:
        raise InvalidInput("--json needs a file; name it with --out")
    if to is None and sys.stdout.isatty():
        raise InvalidInput("an export is not for a terminal; name a file with --out, or use a pipe")
    if options.raw and options.format != "jsonl":
        raise InvalidInput("--raw has the format of the agent; leave --format out")
    with ToolCaller(options, transcripts=bool(options.session)) as tools:
        store = _choose_store(options, tools.served)
        try:
            result = _export_sessions(options, store, to or sys.stdout.buffer.write)
        except Conflict as error:  # the file exists; a retry fails too
            raise Denied(str(error)) from error
    if options.json:
        print_json(asdict(result))
    else:
        _show_result(options, result)
    return PARTIAL if result.gone or result.changed or result.there else DONE


def _choose_store(options: argparse.Namespace, served: ServedStores) -> ServedStore:
    """Return the store of the named sessions, or the only store that is served.

    Raises:
        InvalidInput: there are several.
    """
    if not options.session:
        if len(served.names) != 1:
            raise InvalidInput("an export covers one store; name it with one --store")
        return served.get_store(None)
    stores = served.get_stores()
    names = {
        find_session_store(stores, reference, read.SPEC): reference for reference in options.session
    }
    if len(served.names) > 1 and len(names) > 1:
        groups = " and ".join(f"{reference!r:.80} of {name}" for name, reference in names.items())
        raise InvalidInput(f"an export covers one store, got {groups}; export them one by one")
    return served.get_store(next(iter(names)))


def _export_sessions(
    options: argparse.Namespace, store: ServedStore, to: Path | Callable[[bytes], object]
) -> ExportResult:
    sessions = [
        session_lookup.find_session(store, reference).id for reference in options.session
    ] or None
    where, form = _build_filter(options, store), _choose_form(options)
    if not isinstance(store, ServedHome):
        from mcp_serve.stores.transcripts import ServedTranscripts  # noqa: PLC0415 -- only if one is served

        if not isinstance(store, ServedTranscripts):
            raise TypeError(f"{store.name} cannot be exported")
        with ProgressBar("Exporting") as bar:
            return export_transcripts(
                store.library, to, sessions, where=where, form=form, progress=bar.report_progress
            )
    if options.raw:
        raise InvalidInput("--raw is for sessions of other agents; leave it out for a home")
    with ProgressBar("Exporting") as bar:
        return store.maintenance.export_sessions(
            to,
            sessions,
            where=where,
            form=form,
            client=TerminalProgress.client,
            progress=bar.report_progress,
        )


def _choose_form(options: argparse.Namespace) -> Literal["jsonl", "markdown", "raw"]:
    if options.raw:
        return "raw"
    return "markdown" if options.format == "md" else "jsonl"


def _build_filter(options: argparse.Namespace, store: ServedStore) -> SessionFilter | None:
    """Return the filter from the options.

    Archived conversations are included by default.

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
    matched = known_values.match_known_values([store], arguments)
    if matched.is_unknown:  # an empty export would look like a backup
        raise InvalidInput(translate_tool_text(" ".join(matched.notes)))
    where: SessionFilter = matched.arguments.build_filter(time.time())
    return where


def _prepare_target(name: str) -> Path:
    """Return the target path, and create a folder if its name ends with a slash.

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


def _show_result(options: argparse.Namespace, result: ExportResult) -> None:
    errors = Terminal(sys.stderr)
    if options.out != "-" and not options.quiet:
        sessions = format_number(result.sessions, "session")
        size = format_bytes(result.bytes)
        messages = format_number(result.messages, "message")
        Terminal(sys.stdout).write_line(
            f"Wrote {sessions} with {messages}, {size}, to {options.out}"
        )
    for name in result.there:
        errors.write_line(f"{name} exists and was not overwritten.")
    for name in result.gone:
        errors.write_line(f"{name} was deleted during the export.")
    for name in result.changed:
        errors.write_line(f"{name} changed during the export; export it again.")
