"""`mcp-sessions trash`: list removed data that is kept for undo, and delete it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_serve import arguments, render
from mcp_serve.arguments import format_time
from mcp_serve.cli import filters, plan_command
from mcp_serve.cli.argument_parser import parse_before_option
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import TableColumn, format_age, format_bytes, format_time_left
from mcp_serve.cli.tool_calls import Answer, fetch_and_show_answer, get_terminal, show_list
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.homes import ServedHome
from mcp_serve.tools import prune
from mcp_serve.tools.spec import ToolSpec
from session_core.ledger import Batch

_COLUMNS = (
    TableColumn("age", right=True),
    TableColumn("size", right=True),
    TableColumn("what", wraps=True),
    TableColumn("items", right=True),
    TableColumn("expires", right=True),
    TableColumn("batch", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions trash list                    list batches and expiry
  mcp-sessions trash empty                   delete expired batches
  mcp-sessions trash empty --older-than 7d   batches older than 7 days
  mcp-sessions trash empty b-23456789        only this batch
"""


class TrashArguments(arguments.PageArguments):
    """The arguments of the list."""

    limit: int = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|empty")
    for name, does in (
        ("list", "list the batches in the trash"),
        ("empty", "permanently delete batches; cannot be undone"),
    ):
        action = actions.add_parser(
            name,
            help=does,
            description=does.capitalize() + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "list":
            add_page_options(action, 20)
        else:
            action.add_argument(
                "--older-than",
                type=parse_before_option,
                metavar="TIME",
                help="older than this, expired or not: 7d, a date; 0 is all",
            )
            action.add_argument(
                "batch", nargs="*", metavar="BATCH", help="only these batches, regardless of age"
            )
            plan_command.add_plan_arguments(action, limit=True)
        add_home_options(action)
        add_json_option(action)


def run(options: argparse.Namespace) -> int:
    """List the trash, or empty it."""
    if options.action == "list":
        return fetch_and_show_answer(
            options,
            lambda tools: tools.collect_pages(_SPEC, {}, "batches", options.limit, options.cursor),
            _show_batches,
        )
    arguments: Answer = {"older_than_days": filters.parse_age_days(options.older_than)}
    if options.batch:
        arguments["sessions"] = options.batch
    if options.plan is None:
        arguments["what"] = "trash"
    return plan_command.plan_and_apply(
        options, plan_command.ChangeRequest(_EMPTY_SPEC, "prune", arguments)
    )


def _list_batches(home: ServedHome, arguments: TrashArguments, page_query: PagedQuery) -> Answer:
    """Return the batches that can be restored, then expired batches that still exist."""
    page = home.maintenance.batches(arguments.limit, page_query.place)
    batches = list(page.items)
    if page.next_cursor is None:
        # Expired batches are few and in no page, so they follow the last one.
        listed_ids = {batch.id for batch in batches}
        batches += [
            batch
            for batch in reversed(home.ledger.list_expired_batches())
            if batch.id not in listed_ids
        ]
    listed = [_build_batch(home, batch) for batch in batches if batch.emptied_at is None]
    return {"batches": listed, "next_cursor": page_query.make_cursor(page.next_cursor)}


def _build_batch(home: ServedHome, batch: Batch) -> Answer:
    return {
        "batch": batch.id,
        "at": format_time(batch.at),
        "tool": render.render_line(home, batch.what) or "",
        "count": batch.count,
        "bytes": batch.bytes,
        "expires_at": format_time(batch.expires_at),
        "undone": batch.undone_at is not None,
        **({"store": home.store_name} if home.store_name else {}),
    }


_EMPTY_SPEC = replace(prune.SPEC, asks="prune trash")
"""The tool limited to plans that empty the trash, so that no other plan is applied."""

_SPEC = ToolSpec(
    name="trash",
    title="Trash",
    description="Removed data that is kept for undo.",
    arguments=TrashArguments,
    answers=None,
    run=_list_batches,
)


def _show_batches(answer: Answer) -> None:
    out = get_terminal()
    if not answer["batches"]:
        out.write_line("The trash is empty.")
        return
    show_list(_COLUMNS, answer["batches"], _format_row)
    out.write_line(
        f"{format_bytes(sum(batch['bytes'] for batch in answer['batches']))} in total.", "dim"
    )
    if answer["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit to show them.")
    out.write_hint("Restore one with: mcp-sessions restore BATCH")


def _format_row(row: Answer) -> list[str]:
    undone = " (restored)" if row["undone"] else ""
    return [
        format_age(row["at"]),
        format_bytes(row["bytes"]),
        row["tool"] + undone,
        f"{row['count']:,}",
        format_time_left(row["expires_at"]),
        row["batch"],
    ]
