"""`mcp-sessions log`: list the changes in the audit log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from mcp_serve import arguments, render
from mcp_serve.arguments import format_time
from mcp_serve.cli.options import add_home_options, add_json_option, add_page_options
from mcp_serve.cli.terminal import TableColumn, format_local_time
from mcp_serve.cli.tool_calls import Answer, fetch_and_show_answer, get_terminal, show_list
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores.merging import merge_newest
from mcp_serve.stores.served_store import ServedStore
from mcp_serve.tools.spec import ToolSpec
from session_core.ledger import AuditEntry
from session_core.types import Page

_COLUMNS = (
    TableColumn("when"),
    TableColumn("who", wraps=True),
    TableColumn("what", wraps=True),
    TableColumn("counts", wraps=True),
    TableColumn("plan", copied=True),
)

EXAMPLES = """\
examples:
  mcp-sessions log                 the last changes
  mcp-sessions log --limit 1000 --json
"""


class LogArguments(arguments.PageArguments):
    """The arguments of the log."""

    limit: int = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    add_page_options(parser, 20)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the entries."""
    return fetch_and_show_answer(
        options,
        lambda tools: tools.collect_pages(_SPEC, {}, "lines", options.limit, options.cursor),
        _show_entries,
    )


def _list_entries(
    stores: Sequence[ServedStore], arguments: LogArguments, page_query: PagedQuery
) -> Answer:
    page = merge_newest(stores, _read_entries, arguments.limit, page_query.place)
    lines = [
        {
            "at": format_time(entry.at),
            "who": render.render_line(store, entry.client),
            "what": render.render_line(store, entry.what),
            "plan": entry.plan,
            "counts": entry.counts,
            **({"store": entry.store or store.name} if store.store_name else {}),
        }
        for store, entry in page.rows
    ]
    return {"lines": lines, "next_cursor": page_query.make_cursor(page.places or None)}


def _read_entries(store: ServedStore, limit: int, cursor: str | None) -> Page[AuditEntry]:
    return store.list_audit_entries(limit, cursor)


_SPEC = ToolSpec(
    name="log",
    title="Log",
    description="The recorded changes.",
    arguments=LogArguments,
    answers=None,
    run=_list_entries,
    merges=True,
    place=dict[str, str],
)


def _show_entries(answer: Answer) -> None:
    out = get_terminal()
    if not answer["lines"]:
        out.write_line("No changes are recorded.")
        return
    show_list(_COLUMNS, answer["lines"], _format_row)
    if answer["next_cursor"] is not None:
        out.write_hint("There are more; raise --limit to show them.")


def _format_row(row: Answer) -> list[str]:
    return [
        format_local_time(row["at"]),
        row["who"],
        row["what"],
        _format_counts(row["counts"]),
        row["plan"] or "",
    ]


def _format_counts(counts: Any) -> str:
    """Return the counts as text, without zeros."""
    if not isinstance(counts, dict):
        return str(counts)
    nonzero = ((name, value) for name, value in counts.items() if value not in (0, False, None))
    return ", ".join(
        name if value is True else f"{name} {_format_value(value)}" for name, value in nonzero
    )


def _format_value(value: Any) -> str:
    """Return a count as text.

    A list holds the values before and after.
    """
    if isinstance(value, list):
        return " to ".join(map(_format_value, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
