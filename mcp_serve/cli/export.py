"""`mcp-sessions export`: whole conversations as files, to keep, to read or to carry elsewhere."""

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
from mcp_serve.cli.arguments import some
from mcp_serve.cli.errors import DONE, PARTIAL, in_options
from mcp_serve.cli.options import of_answers, of_homes
from mcp_serve.cli.output import print_json
from mcp_serve.cli.progress import Bar, Working
from mcp_serve.cli.terminal import Terminal
from mcp_serve.cli.tool_calls import Tools
from mcp_serve.errors import explain
from mcp_serve.homes import Home
from mcp_serve.render import harmless
from session_core import Conflict, Denied, Exported, InvalidInput, SessionFilter, StorageError

EXAMPLES = """\
What is written is what is stored, secrets included, with all that was compressed
or taken back; a file is its owner's alone, and nothing is overwritten. Without
an ID or a filter it is everything, the archive too.

examples:
  mcp-sessions export --out sessions.jsonl      everything, to keep or to import
  mcp-sessions export 20261118_09 --format md   one conversation, to read
  mcp-sessions export --project ~/shop --since 30d --format md --out notes/
  mcp-sessions export --source cron | gzip > cron.jsonl.gz
"""

_FORMS = {"jsonl": "jsonl", "md": "markdown"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument(
        "session", nargs="*", metavar="ID", help="an id, how one begins, a session key, a title"
    )
    parser.add_argument("--format", choices=tuple(_FORMS), default="jsonl", help="(jsonl)")
    parser.add_argument(
        "--out",
        type=some,
        metavar="FILE",
        default="-",
        help="a new file, or a folder for a file each; - prints it (-)",
    )
    filters.add(parser)
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Write them, and say how much it was."""
    to = None if options.out == "-" else _place(options.out)
    if to is None and options.json:
        raise InvalidInput("--json says what was written where; name a file by --out")
    with Tools(options) as tools:
        if len(tools.served.names) > 1:
            raise InvalidInput("an export is of one home; name it by one --profile")
        missing = None if options.session or options.json else missing_home.note(tools.served)
        if missing is not None:
            Terminal(sys.stderr).line(missing)
            return DONE
        try:
            done = _export(options, tools.home, to or _printing())
        except Conflict as error:  # of a file that is there, which is so the next time as well
            raise Denied(str(error)) from error
    if options.json:
        print_json(asdict(done))
    else:
        _say(options, done)
    return PARTIAL if done.gone or done.changed or done.there else DONE


def _export(
    options: argparse.Namespace, home: Home, to: Path | Callable[[bytes], object]
) -> Exported:
    sessions = [resolve.find(home, each).id for each in options.session] or None
    maintenance = home.maintenance_for(Working.client)
    with Bar("Exporting") as bar:
        return maintenance.export(
            to,
            sessions,
            where=_where(options),
            form="markdown" if options.format == "md" else "jsonl",
            progress=bar.tell,
        )


def _where(options: argparse.Namespace) -> SessionFilter | None:
    """Return the filters that were given; an export leaves out the archive only when told so.

    Raises:
        InvalidInput: one of them makes no sense.
    """
    given = filters.given(options)
    given.pop("profile", None)
    if not given:
        return None
    try:
        read = filters.Filtered.read({"status": "all"} | given)
    except ValidationError as error:
        raise InvalidInput(
            in_options(explain(error) or "", filters.Filtered.model_fields)
        ) from error
    where: SessionFilter = read.where(time.time())
    return where


def _place(given: str) -> Path:
    """Return a file, or a folder, which is made where it is named as one.

    Raises:
        StorageError: it cannot be made.
    """
    path = Path(given).expanduser()
    if given.endswith(("/", os.sep)):
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"{path} cannot be made: {error.strerror}") from error
    return path


def _printing() -> Callable[[bytes], object]:
    """Return what prints it: as it is, but nothing that a terminal would obey."""
    if sys.stdout.isatty():
        return lambda part: sys.stdout.write(harmless(part.decode()))
    return sys.stdout.buffer.write


def _say(options: argparse.Namespace, done: Exported) -> None:
    beside = Terminal(sys.stderr)
    if options.out != "-":
        sessions = f"{done.sessions:,} session" + "s" * (done.sessions != 1)
        size = decimal(done.bytes)
        Terminal(sys.stdout).line(
            f"Wrote {sessions} with {done.messages:,} messages, {size}, to {options.out}"
        )
    for name in done.there:
        beside.line(f"{name} was there already, and stays as it is.")
    for name in done.gone:
        beside.line(f"{name} was deleted meanwhile.")
    for name in done.changed:
        beside.line(f"{name} was changed meanwhile; export it again.")
