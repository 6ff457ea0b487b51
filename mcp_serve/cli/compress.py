"""`mcp-sessions compress`: replace the middle of a long conversation with a summary.

The summary is extractive unless one is passed, since the command has no model.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from mcp_serve.cli import plan_command, plan_output
from mcp_serve.cli.argument_parser import make_integer_parser, parse_text
from mcp_serve.cli.options import add_extension_option, add_home_options, add_json_option
from mcp_serve.cli.terminal import TableColumn, Terminal
from mcp_serve.cli.tool_calls import Answer
from mcp_serve.tools import compress
from session_core import InvalidInput
from session_core.compression import CompressionLimits

EXAMPLES = """\
examples:
  mcp-sessions compress 20261118_090909_ab12cd     show the summary and ask
  mcp-sessions compress 20261118_090909_ab12cd --keep-last 40 --yes
  mcp-sessions compress 20261118_090909_ab12cd --summary mine.md

to let a model write the summary:
  mcp-sessions compress 20261118_090909_ab12cd --method summary --plan-only
  mcp-sessions compress --plan p-23456789 --summary - --yes < summary.md
"""

_MAX_STATEMENTS = 8
_MAX_LINES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "session", nargs="?", metavar="ID", help="id, prefix of an id, session key or title"
    )
    parser.add_argument(
        "--summary",
        type=parse_text,
        metavar="FILE",
        help="file with the summary; - reads standard input",
    )
    parser.add_argument(
        "--method",
        choices=("extractive", "summary"),
        help="extractive: built from the messages (default); summary: passed by --summary",
    )
    parser.add_argument(
        "--shape",
        choices=("auto", "in_place", "continuation"),
        help="how the result is stored (default: auto)",
    )
    parser.add_argument(
        "--keep-last",
        type=make_integer_parser(0, 100_000),
        metavar="N",
        help=(
            f"messages to keep at the end (default: the last {CompressionLimits().tail_tokens:,} "
            "tokens)"
        ),
    )
    plan_command.add_plan_arguments(parser)
    add_extension_option(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, show the summary, ask and apply."""
    if options.session is None and options.plan is None:
        raise InvalidInput("name the session to compress, or pass --plan HANDLE")
    with_handle = {} if options.summary is None else {"summary": _read_summary(options.summary)}
    method = options.method
    if method is None and options.plan is None:
        method = "summary" if with_handle else "extractive"
    if method == "summary" and not with_handle and not options.plan_only:
        raise InvalidInput(
            "--method summary needs --summary FILE, or --plan-only to print its brief"
        )
    arguments = {
        "session": options.session,
        "method": method,
        "shape": options.shape,
        "keep_last": options.keep_last,
    }
    again = ("--summary", options.summary or "FILE") if with_handle or method == "summary" else ()
    change = plan_command.ChangeRequest(
        compress.SPEC,
        "compress",
        arguments,
        with_handle=with_handle,
        again=again,
        plan=partial(_show_plan, summary=with_handle.get("summary")),
        done=_show_result,
    )
    return plan_command.plan_and_apply(options, change)


def _read_summary(name: str) -> str:
    """Return the summary from a file or from standard input.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the summary from {name}: {error}") from error


def _show_plan(out: Terminal, kind: str, answer: Answer, *, summary: str | None) -> None:
    brief = answer.get("brief")
    if brief is None:
        plan_output.show_plan(out, kind, answer)
        return
    out.write_line(
        f"Compress {brief['messages']:,} messages, about {brief['tokens']:,} tokens", "bold"
    )
    out.write_line(
        f"Messages {brief['from_id']} to {brief['to_id']}; the messages before and after stay. "
        f"The summary has at most {brief['target_chars']:,} characters."
    )
    essential = brief["must_survive"]
    if essential:
        out.write_line()
        out.write_line("Statements that the summary must keep:", "bold")
        for text in essential[:_MAX_STATEMENTS]:
            out.write_truncated(f"  {text}")
        _show_remaining_count(out, len(essential) - _MAX_STATEMENTS)
    lines = (summary or brief["digest"]).strip().splitlines()
    if lines:
        out.write_line()
        out.write_line("The summary:" if summary else "The summary, made without a model:", "bold")
        for line in lines[:_MAX_LINES]:
            out.write_truncated(f"  {line}")
        _show_remaining_count(out, len(lines) - _MAX_LINES)
    plan_output.show_space(out, kind, answer["bytes"])


def _show_remaining_count(out: Terminal, count: int) -> None:
    if count > 0:
        out.write_line(f"  and {count:,} more; --plan-only --json shows all", "dim")


_RETENTION_COLUMNS = (
    TableColumn("kind", yields=True),
    TableColumn("found", right=True),
    TableColumn("kept", right=True),
)


def _show_result(out: Terminal, kind: str, answer: Answer) -> None:
    before, after = answer["tokens_before"], answer["tokens_after"]
    less = f" ({100 * (before - after) // before} % less)" if before else ""
    out.write_line(f"Done: {before:,} tokens reduced to {after:,}{less}.", "bold")
    if answer["shape"] == "continuation":
        out.write_line(f"The conversation continues in {answer['session_id']}.")
    retention = answer["retention"]
    out.write_line(f"The summary keeps {retention['kept']:,} of {retention['found']:,} statements.")
    if retention["by_kind"]:
        rows = [
            [name, f"{total:,}", f"{kept_count:,}"]
            for name, (total, kept_count) in retention["by_kind"].items()
        ]
        out.write_table(_RETENTION_COLUMNS, rows)
    plan_output.show_skipped(out, answer)
    del kind
