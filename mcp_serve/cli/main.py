"""The command `mcp-sessions`: its verbs, its parser, and the exit code of an error.

A verb is a module with `add_arguments(parser)` and `run(options) -> int`, imported on demand.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from mcp_serve.cli.argument_parser import CommandParser
from mcp_serve.cli.command_errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    QuestionInterrupted,
    format_error,
    get_exit_code,
)
from mcp_serve.cli.options import add_home_options, add_json_option, refuse_misplaced_options
from mcp_serve.cli.output import log_to_stderr, print_error
from session_core import SessionError, __version__

VERBS = {
    "list": ("mcp_serve.cli.list", "list the newest conversations"),
    "show": ("mcp_serve.cli.show", "show the messages of a conversation"),
    "search": ("mcp_serve.cli.search", "search the text of all messages"),
    "routes": ("mcp_serve.cli.routes", "list chats and their current sessions"),
    "stats": (
        "mcp_serve.cli.stats",
        "show growth and sizes; list problems with the command that fixes each",
    ),
    "watch": ("mcp_serve.cli.watch", "print new messages and session changes as they happen"),
    "resume": ("mcp_serve.cli.resume", "continue a session of another agent in its agent"),
    "keep": ("mcp_serve.cli.keep", "keep copies of sessions that their agents may delete"),
    "prune": ("mcp_serve.cli.prune", "move old and unused data to the trash"),
    "finalize": ("mcp_serve.cli.finalize", "end sessions"),
    "compress": (
        "mcp_serve.cli.compress",
        "replace the middle of a long conversation with a summary",
    ),
    "edit": ("mcp_serve.cli.edit", "change the title; archive, pin or reopen"),
    "restore": ("mcp_serve.cli.restore", "list changes that can be undone, or undo one"),
    "trash": ("mcp_serve.cli.trash", "list the trash, or empty it"),
    "log": ("mcp_serve.cli.log", "list the changes made by this program and its clients"),
    "export": ("mcp_serve.cli.export", "write whole conversations to files"),
    "import": ("mcp_serve.cli.importing", "import conversations from an export"),
    "copy": ("mcp_serve.cli.copy", "copy the sessions of one home into another"),
    "migrate": ("mcp_serve.cli.migrate", "prepare or update the tables of a PostgreSQL home"),
    "serve": ("mcp_serve.cli.serve", "run the MCP server"),
    "install": ("mcp_serve.cli.install", "register the server with a client"),
    "uninstall": ("mcp_serve.cli.uninstall", "unregister the server from a client"),
    "doctor": ("mcp_serve.cli.doctor", "check the home and every configured client"),
    "demo": ("mcp_serve.cli.demo", "build a sample home and query its server as a client does"),
    "completion": ("mcp_serve.cli.options", "print a shell completion script"),
}
"""The module and the one-line help of each verb."""

_WELCOME_MODULE = "mcp_serve.cli.welcome"

_EXAMPLES = """\
example:
  mcp-sessions demo          try the program with a sample home
  mcp-sessions demo --keep   keep the sample home to explore it
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    _replace_unencodable_text()
    parser = build_parser(words)
    options = parser.parse_args(words)
    if options.verb is None and not sys.stdin.isatty():
        # A client starts the bare command with a pipe as standard input.
        options = build_parser(["serve"]).parse_args([*words, "serve"])
    elif options.verb is None:
        options.of_homes = True
    refuse_misplaced_options(parser, options)
    log_to_stderr(traces=options.verb == "serve")
    module = VERBS[options.verb][0] if options.verb else _WELCOME_MODULE
    try:
        return _run_verb(module, options)
    finally:
        if arguments is None:
            # The interpreter exits next; Ctrl-C would print a traceback after the last line.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_verb(module: str, options: argparse.Namespace) -> int:
    """Run a verb and return its exit code."""
    try:
        code: int = import_module(module).run(options)
        sys.stdout.flush()
    except QuestionInterrupted:
        print_error("\nStopped; nothing was changed.")
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # the reader closed the pipe
        # With --yes the change may not have been started yet.
        return FAILED if getattr(options, "yes", False) else DONE
    except OSError as error:
        _discard_output()
        print_error(f"mcp-sessions: {error}")
        return FAILED
    except SessionError as error:
        print_error(f"mcp-sessions: {format_error(error)}")
        return get_exit_code(error)
    return code


def _discard_output() -> None:
    """Redirect standard output to the null device, so that flushing at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command.

    Only verbs among `words` are imported for their arguments.
    """
    parser = CommandParser(
        prog="mcp-sessions",
        description="An agent's sessions: list, read, search and maintain them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mcp-sessions {__version__}")
    add_home_options(parser, before=True)
    add_json_option(parser, before=True)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, (module, does) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=does,
            description=f"{does[:1].upper()}{does[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in words:
            verb_module = import_module(module)
            verb.epilog = getattr(verb_module, "EXAMPLES", None)
            verb_module.add_arguments(verb)
    return parser


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the parent process closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 -- stays open until exit
            setattr(sys, name, stream)


def _replace_unencodable_text() -> None:
    """Write characters that the encoding lacks as question marks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
