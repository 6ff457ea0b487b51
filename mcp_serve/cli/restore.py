"""`mcp-sessions restore`: list changes that can be undone, and undo them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from mcp_serve import plan_answers, render
from mcp_serve.arguments import format_time
from mcp_serve.cli import plan_command, plan_output
from mcp_serve.cli.options import (
    add_extension_option,
    add_home_options,
    add_json_option,
    add_page_options,
)
from mcp_serve.cli.terminal import TableColumn, Terminal, format_local_time
from mcp_serve.cli.tool_calls import (
    Answer,
    ToolCaller,
    fetch_and_show_answer,
    get_terminal,
    show_list,
)
from mcp_serve.stores import locate
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools import restore
from session_core import InvalidInput
from session_core.ledger import LabelChange
from session_core.maintenance import PlanPreview

_COLUMNS = (
    TableColumn("when"),
    TableColumn("what", wraps=True),
    TableColumn("items", right=True),
    TableColumn("until"),
    TableColumn("batch", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions restore              list changes that can be undone
  mcp-sessions restore b-23456789   show the items and ask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="batch to undo")
    add_page_options(parser, 20)
    plan_command.add_plan_arguments(
        parser, "show the items and exit; prints a handle if the undo drops data"
    )
    add_extension_option(parser)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the batches, or undo a batch."""
    if options.cursor is not None and (options.plan or options.batch):
        raise InvalidInput("--cursor applies only to the list")
    if options.yes and options.plan is None and options.batch is None:
        raise InvalidInput("--yes needs a BATCH")
    if options.plan is None and options.batch is None:
        return fetch_and_show_answer(
            options,
            lambda tools: tools.collect_pages(
                _LIST_SPEC, {}, "batches", options.limit, options.cursor
            ),
            _show_batches,
        )
    change = plan_command.ChangeRequest(
        restore.SPEC,
        "restore",
        {"batch": options.batch},
        plan=_show_plan,
        preview=partial(_preview_restore, options.batch),
        typed=(options.batch,),
    )
    return plan_command.plan_and_apply(options, change)


def _preview_restore(batch: str, tools: ToolCaller) -> Answer:
    """Return the preview of an undo, with a plan if the undo drops data."""
    located = locate.locate_store(tools.served, restore.SPEC, {"batch": batch})["store"]
    store = tools.served.get_store(located)
    if not isinstance(store, ServedHome):
        return _preview_labels(store, batch)
    return _preview_in_home(store, batch)


def _preview_labels(store: ServedStore, batch: str) -> Answer:
    """Return the sessions of another agent whose labels an undo changes."""
    labels = restore.get_labels(store)
    undone = labels.get_undoable_batch(batch)
    changes = labels.list_changes(batch)
    planned = PlanPreview("planned", None, undone.expires_at, len(changes), ())
    items = [
        {"id": render.render_id(change.session_id), "title": None, "why": _describe_label(change)}
        for change in changes
    ]
    return plan_answers.render_preview(store, planned) | {
        "items": items,
        "batch": undone.id,
        "at": format_time(undone.at),
        "tool": undone.what,
    }


def _describe_label(change: LabelChange) -> str:
    names = ("title", "archived", "pinned")
    return ", ".join(
        f"{name} as before"
        for name in names
        if getattr(change.before, name) != getattr(change.after, name)
    )


def _preview_in_home(home: ServedHome, batch: str) -> Answer:
    preview = home.maintenance.preview_restore(batch)
    if preview.plan is not None:
        return plan_answers.render_preview(home, preview.plan)
    done = preview.batch
    planned = PlanPreview("planned", None, done.expires_at, preview.count, preview.items)
    what = render.render_line(home, done.what) or ""
    return plan_answers.render_preview(home, planned) | {
        "batch": done.id,
        "at": format_time(done.at),
        "tool": what,
    }


def _show_plan(out: Terminal, kind: str, answer: Answer) -> None:
    if answer["plan"] is not None:
        plan_output.show_plan(out, kind, answer)
        return
    out.write_line(plan_output.describe_plan(kind, answer["count"]), "bold")
    out.write_line(
        f"Undoes `{answer['tool']}` of {format_local_time(answer['at'])}. "
        "This undo cannot be undone."
    )
    if answer["items"]:
        out.write_line()
        plan_output.show_items(out, answer)


_LIST_SPEC = replace(restore.SPEC, run=restore.list_batches)
"""The tool, used only to list batches."""


def _show_batches(answer: Answer) -> None:
    out = get_terminal()
    if not answer["batches"]:
        out.write_line("There is nothing to undo.")
        return
    show_list(_COLUMNS, answer["batches"], _format_row)
    if answer["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit to show them.")
    else:
        out.write_hint("Undo one with: mcp-sessions restore BATCH")


def _format_row(row: Answer) -> list[str]:
    until = format_local_time(row["expires_at"])[:10]
    return [format_local_time(row["at"]), row["tool"], f"{row['count']:,}", until, row["batch"]]
